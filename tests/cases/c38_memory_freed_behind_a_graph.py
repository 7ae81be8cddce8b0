"""Case 38: a graph that writes where nothing is any more.

ggml-org/llama.cpp#26738, #26771; vllm-project/vllm#53915; microsoft/onnxruntime#32121. A memory
pool gives buffers back to the driver, or a buffer moves, while captured graphs still hold its
address. Their replays write into whatever is there now, or end in a page fault.

No timing proves this, and which memory was freed is not recorded. What can be said is that memory
from before the capture was freed between capture and replay, and that nothing was updated since. A
step that frees only what it allocated itself is no reason to warn.
"""

from cases.program import MS, US, Program
from cases.story import Story

CHUNKS, NODES, STEPS, LAUNCH, GRAPH = 4, 20, 6, 5_000, MS


def build(run, first_exec):
    for chunk in range(CHUNKS):
        run.capture(NODES, 2 * US)
        run.instantiate(30 * US, graph_exec=first_exec + chunk)


def steps(run, first_exec, *, before_each=()):
    for _ in range(STEPS):
        for call in before_each:
            run.call(call, 2 * US)
        for chunk in range(CHUNKS):
            run.replay(LAUNCH, GRAPH, graph_exec=first_exec + chunk)


def recorded(*, captured_again):
    run = Program()
    build(run, 10)
    steps(run, 10)
    run.call("cudaFree_v3020", 40 * US)
    run.call("cudaFree_v3020", 40 * US)
    if captured_again:
        build(run, 20)
    steps(run, 20 if captured_again else 10)
    return run.rows


def own_buffers():
    run = Program()
    build(run, 10)
    steps(run, 10, before_each=["cudaMallocAsync_v11020", "cudaFreeAsync_v11020"])
    return run.rows


def healthy(rows, executions, findings=(), **more):
    return Story(
        rows,
        findings=findings,
        verdict="no_difference_shown",
        causes={"device_queued": (executions - 1) * US},
        **more,
    )


STORIES = {
    "as reported": healthy(
        recorded(captured_again=False),
        2 * STEPS * CHUNKS,
        findings=("stale_addresses",),
        evidence={"stale_addresses": {"execs": CHUNKS, "freed": 2, "call": "cudaFree"}},
        says=(
            "graphs may hold addresses of freed memory",
            "each chunk of a cut graph holds addresses of its own",
        ),
    ),
    "captured again": healthy(recorded(captured_again=True), 2 * STEPS * CHUNKS),
    "only its own buffers": healthy(own_buffers(), STEPS * CHUNKS),
}
