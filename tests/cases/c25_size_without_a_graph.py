"""Case 25: the largest batch has no graph.

vllm-project/vllm#37865, #54933. Asked for graphs of up to 42 tokens, the list of sizes was cut to
40, without an error. A full batch of 42 then ran kernel by kernel: 25.3 instead of 133.3 tokens a
second, the first token after 26.0 instead of 0.84 s.

The recording shows bursts of single launches where other steps are replays. The missing size itself
is not in a trace, unless the program says it: here in the name of its NVTX range.
"""

from exports import push

from cases.program import US, Program
from cases.story import Story

ROUNDS, REPLAYS, KERNELS = 8, 3, 60
LAUNCH, GRAPH, EAGER_LAUNCH, KERNEL = 10_000, 2_000_000, 176_000, 33_000  # made up


def step(run, tokens, work):
    began = run.now
    work()
    run.wait(5 * US)
    run.rows["nvtx"].append(push(f"decode {tokens} tokens", began, run.now))


def recorded():
    run = Program()

    def eager():
        for _ in range(KERNELS):
            run.launch(EAGER_LAUNCH, KERNEL)

    for _ in range(ROUNDS):
        for _ in range(REPLAYS):
            step(run, 40, lambda: run.replay(LAUNCH, GRAPH))
        step(run, 42, eager)
    step(run, 40, lambda: run.replay(LAUNCH, GRAPH))
    return run.rows


STORIES = {
    "as reported": Story(
        recorded(),
        findings=("eager_bursts",),
        verdict="not_a_chunk_problem",
        cause="eager_bursts",
        causes={
            "launch_call": ROUNDS
            * ((KERNELS - 1) * (EAGER_LAUNCH - KERNEL) + EAGER_LAUNCH + REPLAYS * LAUNCH),
            "host_sync": ROUNDS * (REPLAYS + 1) * 5 * US,
        },
        evidence={
            "eager_bursts": {
                "bursts": ROUNDS,
                "single_launches": ROUNDS * KERNELS,
                "ranges": "decode 42 tokens",
            }
        },
        says=("480 kernels in 8 bursts", "in range decode 42 tokens"),
    )
}


def model():
    graph, eager = LAUNCH + GRAPH, KERNELS * EAGER_LAUNCH
    assert round(eager / graph, 1) == round(133.3 / 25.3, 1)
