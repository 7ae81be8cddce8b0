"""Is the chunk size that the model chooses the best one? Predicted against measured, on a GPU.

    python benchmarks/recommend.py --out results.jsonl

Steps of N kernels in a line (one warp each, spinning for about 0.6, 2.5, 9 us, or a mix), in three
regimes: graphs replayed, captured and exec-updated each step, captured and instantiated each step.
What chunks cost the host is calibrated right before the settings of one regime and N, in steps of
as many empty nodes; the device's time is that of such nodes in graphs that were launched in time,
as new as the regime has them. From these the model predicts the step for a set of chunk sizes and
chooses a size and a growing schedule; then all are measured in random order, by the host's clock.
A host that has waited for the device for milliseconds is slower at first: by how much is measured
with chunks of empty nodes right after such steps, and added to each prediction.
Nothing that is measured of these steps goes into the prediction. Only what ran on a host at full
pace counts (`gaptrace.live.host_pace`); a setting for which there was too little of that is left
out. Settings that are in the file of results already are not measured again. Columns:
by how much the chosen size takes longer than the best of all, and than the best of the other half
of the runs; one graph and 512 likewise; the growing schedule against the device's time alone, and
against that and a first chunk of one node from a host that has waited, which nothing can hide, with
a star where it is predicted to be within 1 % of that; errors of the prediction; how far two
measurements of one schedule are apart.
"""

import argparse
import itertools
import json
import math
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gaptrace.cost import ChunkModel, HostCost, makespan
from gaptrace.live.bench import Bench
from gaptrace.live.chains import Chains, executable
from gaptrace.live.driver import done
from gaptrace.live.host_pace import HostPace
from gaptrace.live.probes import graph_costs, queued
from gaptrace.schedules import growing_with_reserve, plateau, uniform, uniform_sizes

CLOCKS = {"0.6 us": (0,), "2.5 us": (4_000,), "9 us": (16_000,), "mixed": (0, 4_000, 16_000, 0)}
NODES = (300, 1_000, 3_000)
SIZES = (16, 32, 64, 100, 128, 200, 256, 400, 512, 1_024)
REGIMES = ("replay", "update", "instantiate")
#: Steps of each schedule: so many, when measuring until their median is known to this fraction
#: (its standard error); after the first number of seconds the least will do, and after the second
#: the setting is left out.
REPEATS, LEAST, KNOWN_TO = 16, 5, 0.01
ENOUGH_S, LIMIT_S = 25.0, 60.0
#: Rounds that are timed with the same execs: where their memory lies makes steps of short nodes up
#: to 4 % longer or shorter for as long as they live, so that equal schedules are that far apart.
BUILT_FOR = 2
#: Chunks in the steps by which the host's costs are measured, at most.
MOST_CHUNKS = 300
#: Nodes of the graphs by which the device's time is measured; times that is done.
PIECE, TIMES = 256, 5


class Shared(NamedTuple):
    """What the settings of a regime and N share.

    Gap at a cut; from the device's end until the host knows, both in ns; and `chunk_costs`.
    """

    gap_ns: float
    notice_ns: float
    costs: dict[str, dict[int, float]]


def calibrate(bench, pace, nodes, regime):
    gap_ns, notice_ns = pace.undisturbed(partial(latencies, bench))
    return Shared(gap_ns, notice_ns, chunk_costs(bench, pace, nodes, regime))


def latencies(bench):
    """Gap at a cut; from the device's end until the host knows, both in ns."""
    gaps, starts = [], []
    with queued(bench) as lines:
        chains = Chains(bench, 1)
        for _ in range(5):
            starts.append(graph_costs(bench, chains, 1, 1)["graph_launch_latency_ns", 1, 1])
            gaps += [ns for (name, *_), ns in lines.round().items() if name == "cut_gap_ns"]
    if not gaps:
        raise HostTooSlow("left something out: the device began before all was queued")
    return max(0.0, statistics.median(gaps)), alone_ns(bench) - statistics.median(starts)


def alone_ns(bench):
    """Ns from the launch of an empty graph, alone, until the host knows of its end."""
    with executable(bench, bench.spin(0), 1) as made:
        times = []
        for _ in range(51):
            begin = time.perf_counter_ns()
            bench.cuda.cuGraphLaunch(made, bench.stream)
            bench.wait()
            times.append(time.perf_counter_ns() - begin)
    return statistics.median(times)


class HostTooSlow(Exception):
    """Others kept the host slow for too long."""


def are_many(times):
    return len(times) >= REPEATS


def tell_median(times):
    """Whether the median of times is known well enough.

    Its standard error is 1.25 standard deviations over the root of their number (normal deviates),
    and a standard deviation the distance of the quartiles over 1.35.
    """
    if not are_many(times):
        return False
    low, median, high = statistics.quantiles(times, n=4)
    return 1.25 * (high - low) / 1.35 <= KNOWN_TO * median * math.sqrt(len(times))


def rounds(times, are_enough):
    """Count rounds until there are enough in all lists of times; the first is for warming up."""
    begin = time.monotonic()
    for number in itertools.count():
        fewest, spent_s = min(map(len, times)), time.monotonic() - begin
        if all(map(are_enough, times)) or (spent_s > ENOUGH_S and fewest >= LEAST):
            return
        if spent_s > LIMIT_S:
            raise HostTooSlow(f"left something out: {fewest} steps at full pace")
        yield number


def sizes_to(most):
    """Node counts to calibrate: 1, 2, 3, 4, 6, 8, 12, and so on."""
    powers = [2**power for power in range(most.bit_length())]
    between = [3 * power for power in powers if 3 * power < most]
    return sorted({*powers, *between, most})


def chunk_costs(bench, pace, most, regime):
    """Median host ns of a chunk by nodes, in steps of `most`, and of steps of one chunk, all done.

    Whole steps, since an exec costs more to make the more of them there are already; of nodes that
    the device runs faster than the host launches them. The first chunk of a step is left out: it
    costs more. All sizes in turn, in random order: a host that slows down for a second shall not
    make some of them look dearer than the others.
    """
    sizes = sizes_to(most)
    rows = {nodes: (nodes,) * min(most // nodes, MOST_CHUNKS) for nodes in sizes}
    steps = {nodes: Step(bench, sum(row), (0,)) for nodes, row in rows.items()}
    execs = dict.fromkeys(sizes, ())
    runs = {name: {nodes: [] for nodes in sizes} for name in ("first", "later", "alone")}
    needed = {
        nodes: [runs["later" if len(row) > 1 else "first"][nodes], runs["alone"][nodes]]
        for nodes, row in rows.items()
    }
    try:
        for number in rounds([*itertools.chain(*needed.values())], tell_median):
            for nodes in random.sample(sizes, len(sizes)):
                if all(map(tell_median, needed[nodes])):
                    continue
                row, step = rows[nodes], steps[nodes]
                if number % BUILT_FOR == 0 and regime != "instantiate":
                    execs[nodes] = step.built_anew(regime, row, execs[nodes])
                made = execs[nodes]
                timed = step.run_undisturbed(pace, regime, row, made)
                alone = step.run_undisturbed(pace, regime, row[:1], made[:1])
                if number and timed:
                    runs["first"][nodes].append(timed.first_ns)
                    if len(row) > 1:
                        rest_ns = timed.called_ns - timed.first_ns
                        runs["later"][nodes].append(rest_ns / (len(row) - 1))
                if number and alone:
                    runs["alone"][nodes].append(alone.ns)
    finally:
        destroy(bench, itertools.chain(*execs.values()))
    return {
        name: {nodes: statistics.median(each) for nodes, each in table.items() if each}
        for name, table in runs.items()
    }


def waited_costs(bench, pace, step, regime):
    """Median host ns of steps of one chunk of empty nodes, by nodes, begun by a host that waited.

    As in a program that does nothing but such steps: right before, the host made a whole step of
    empty nodes that began with that chunk, and has waited for the device as long as `step` lasts.
    """
    sizes = [4**power for power in range(step.nodes.bit_length()) if 4**power < step.nodes]
    sizes.append(step.nodes)
    wholes = {nodes: (nodes, *pieces_of(step.nodes - nodes)) for nodes in sizes}
    empty = Step(bench, step.nodes, (0,))
    replays = regime != "instantiate"
    execs = {nodes: empty.build(whole) if replays else [] for nodes, whole in wholes.items()}
    meanwhile = step.build(pieces_of(step.nodes))
    runs = {nodes: [] for nodes in sizes}

    def after_a_step(nodes):
        made = empty.renewed(regime, wholes[nodes], execs[nodes], 0)
        empty.launch(made)
        step.launch(meanwhile)
        bench.wait()
        if made is not execs[nodes]:
            destroy(bench, made)
        return empty.run(regime, (nodes,), execs[nodes][:1], 1)

    try:
        for number in rounds(list(runs.values()), are_many):
            for nodes in random.sample(sizes, len(sizes)):
                timed = pace.undisturbed(partial(after_a_step, nodes))
                if number and pace.was_full:
                    runs[nodes].append(timed.ns)
    finally:
        destroy(bench, itertools.chain(meanwhile, *execs.values()))
    return {nodes: statistics.median(each) for nodes, each in runs.items()}


def pieces_of(nodes):
    """Sizes of pieces of at most `PIECE` nodes."""
    return tuple(min(PIECE, nodes - begin) for begin in range(0, nodes, PIECE))


class Timed(NamedTuple):
    """Host ns from the begin of a step until: its first chunk was launched, all were, all ran."""

    first_ns: int
    called_ns: int
    ns: int


class Step:
    """A step of kernels in a line that can be captured in any pieces."""

    def __init__(self, bench, nodes, clocks):
        self.bench, self.nodes = bench, nodes
        kinds = {each: [bench.spin(each), bench.spin(each + 1)] for each in set(clocks)}
        pattern = random.Random(nodes)
        self.clocks = [pattern.choice(clocks) for _ in range(nodes)]
        self.calls = [
            [bench.launching(kinds[each][variant], bench.stream) for each in self.clocks]
            for variant in (0, 1)
        ]

    def capture(self, begin, end, variant=0):
        cuda, stream = self.bench.cuda, self.bench.stream
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        done(cuda.cuStreamBeginCapture(stream, mode), "capturing")
        for call in self.calls[variant][begin:end]:
            call()
        return done(cuda.cuStreamEndCapture(stream), "capturing")

    def pieces(self, sizes):
        begin = 0
        for size in sizes:
            yield begin, begin + size
            begin += size

    def build(self, sizes):
        made = self.renewed("instantiate", sizes, (), 0)
        for each in made:
            self.bench.cuda.cuGraphUpload(each, self.bench.stream)
        self.bench.wait()
        return made

    def built_anew(self, regime, sizes, execs):
        """Other execs in place of these, that have run both variants."""
        destroy(self.bench, execs)
        made = self.build(sizes)
        self.run_again(regime, sizes, made)
        return made

    def renewed(self, regime, sizes, execs, variant):
        """Graphs that were made ready for a step as in the regime, and not launched."""
        cuda, made = self.bench.cuda, []
        if regime == "replay":
            return execs
        for place, (begin, end) in enumerate(self.pieces(sizes)):
            graph = self.capture(begin, end, variant)
            if regime == "update":
                cuda.cuGraphExecUpdate(execs[place], graph)
            else:
                made.append(done(cuda.cuGraphInstantiate(graph, 0), "instantiating"))
            cuda.cuGraphDestroy(graph)
        return execs if regime == "update" else made

    def launch(self, execs):
        for each in execs:
            self.bench.cuda.cuGraphLaunch(each, self.bench.stream)

    def run(self, regime, sizes, execs, variant):
        """Time one step."""
        cuda, stream, fresh, first_ns = self.bench.cuda, self.bench.stream, [], 0
        begin = time.perf_counter_ns()
        for place, (first, last) in enumerate(self.pieces(sizes)):
            if regime != "replay":
                graph = self.capture(first, last, variant)
            if regime == "update":
                cuda.cuGraphExecUpdate(execs[place], graph)
            if regime == "instantiate":
                fresh.append(done(cuda.cuGraphInstantiate(graph, 0), "instantiating"))
            cuda.cuGraphLaunch((fresh or execs)[place], stream)
            if regime != "replay":
                cuda.cuGraphDestroy(graph)
            first_ns = first_ns or time.perf_counter_ns() - begin
        called_ns = time.perf_counter_ns() - begin
        self.bench.wait()
        ns = time.perf_counter_ns() - begin
        destroy(self.bench, fresh)
        return Timed(first_ns, called_ns, ns)

    def run_again(self, regime, sizes, execs):
        """Two steps; times of the second."""
        self.run(regime, sizes, execs, 0)
        return self.run(regime, sizes, execs, 1)

    def run_undisturbed(self, pace, regime, sizes, execs):
        """Two steps on a host at full pace; times of the second, None if it was slow."""
        timed = pace.undisturbed(partial(self.run_again, regime, sizes, execs))
        return timed if pace.was_full else None

    def measure(self, pace, regime, schedules):
        """Steps of each schedule in ns, all in turn in random order, on a host at full pace.

        Long ones pass at full pace less often: the others do not get more than `REPEATS` ahead.
        Each is timed right after one of the same schedule, as in a program that does nothing else:
        nodes that the device's cache has lost take 0.1 us more each.
        """
        execs = [() for _ in schedules]
        times = [[] for _ in schedules]
        try:
            for number in rounds(times, tell_median):
                most = min(map(len, times)) + REPEATS
                for place in random.sample(range(len(schedules)), len(schedules)):
                    sizes = schedules[place]
                    if len(times[place]) >= most:
                        continue
                    if number % BUILT_FOR == 0 and regime != "instantiate":
                        execs[place] = self.built_anew(regime, sizes, execs[place])
                    timed = self.run_undisturbed(pace, regime, sizes, execs[place])
                    if number and timed:
                        times[place].append(timed.ns)
        finally:
            destroy(self.bench, itertools.chain(*execs))
        return times


def node_time(bench, nodes, clocks, gap_ns, regime):
    """Device ns of a node with the gap after it, from steps of such behind a latch.

    The graphs are as in the regime: launched before, just updated, or new; and as many nodes, since
    those that the device's cache does not hold take 0.1 us more each.
    """
    step = Step(bench, nodes, (clocks,))
    piece = min(PIECE, nodes // 2)
    count = nodes // piece
    sizes = (piece,) * count
    execs = step.build(sizes)
    found = {1: [], count: []}
    for number, launched in enumerate((1, count) * (TIMES + 1)):
        step.run("replay", sizes, execs, 0)
        made = step.renewed(regime, sizes, execs, number % 2)
        ns = bench.device_ns(partial(step.launch, made[:launched]))
        if number > 1 and ns is not None:
            found[launched].append(ns)
        if made is not execs:
            destroy(bench, made)
    destroy(bench, execs)
    more_ns = statistics.median(found[count]) - statistics.median(found[1])
    return max(0.0, (more_ns / (count - 1) - gap_ns) / piece)


def destroy(bench, execs):
    for each in execs:
        bench.cuda.cuGraphExecDestroy(each)


def model_of(step, shared, node_ns):
    """The chunk model of a step; times of the nodes by clocks."""
    costs, empty_ns = shared.costs, node_ns[0]
    sizes = sorted(costs["alone"])
    host = [costs["later"].get(nodes, costs["first"][nodes]) for nodes in sizes]
    # From when the host begins a chunk to when the device may start it.
    waited_ns = [costs["alone"][nodes] - nodes * empty_ns for nodes in sizes]
    ready = [max(0.0, ns - shared.notice_ns) for ns in waited_ns]
    return ChunkModel(
        HostCost.fit(sizes, host, quantile=0.5),
        step.nodes,
        np.array([node_ns[clocks] for clocks in step.clocks]),
        cut_gap_ns=shared.gap_ns,
        ready=HostCost.fit(sizes, ready, quantile=0.5),
    )


def setting(bench, pace, shared, nodes, kind, regime):
    """Predict and measure one setting; returns a record."""
    step = Step(bench, nodes, CLOCKS[kind])
    kinds = sorted({0, *step.clocks})
    node_ns = {clocks: node_time(bench, nodes, clocks, shared.gap_ns, regime) for clocks in kinds}
    model = model_of(step, shared, node_ns)
    waited = waited_costs(bench, pace, step, regime)
    alone = shared.costs["alone"]
    late_ns = {size: max(0.0, ns - alone[size]) for size, ns in waited.items()}

    def predicted_ns(sizes):
        late = np.interp(sizes[0], list(late_ns), list(late_ns.values()))
        return makespan(model, sizes) + shared.notice_ns + float(late)

    curve = uniform(model)
    best = plateau(curve)
    schedules = {f"{size}": uniform_sizes(model, size) for size in SIZES if size < nodes}
    schedules |= {"one": (nodes,), "chosen": uniform_sizes(model, best.recommended)}
    schedules["growing"] = growing_with_reserve(model)
    # Equal schedules, as of 64 and of the chosen size if that is 64, are one; the chosen one is
    # measured twice, to know how far apart equal steps are.
    distinct = list(dict.fromkeys(schedules.values()))
    *times, again = step.measure(pace, regime, [*distinct, schedules["chosen"]])
    by_schedule = dict(zip(distinct, times, strict=True))
    runs = {name: by_schedule[sizes] for name, sizes in schedules.items()} | {"again": again}
    return {
        "nodes": nodes,
        "node": kind,
        "regime": regime,
        "recommended": best.recommended,
        "plateau": [best.lo, best.hi],
        "growing": list(schedules["growing"]),
        "device_ns": model.device_only_ns,
        # From when a host that has waited begins a step of one node until it knows of its end, but
        # that node.
        "first_ns": waited[1] - node_ns[0],
        "waited_ns": waited,
        "gap_ns": shared.gap_ns,
        "notice_ns": shared.notice_ns,
        "node_ns": node_ns,
        "costs_ns": shared.costs,
        "host_loop_ns": statistics.quantiles(pace.loops_ns, n=10),
        "predicted_ns": {name: predicted_ns(sizes) for name, sizes in schedules.items()},
        "runs_ns": runs,
        "measured_ns": {name: statistics.median(each) for name, each in runs.items()},
    }


def tried(work):
    """Do work; return None and say so where the host was too slow."""
    try:
        return work()
    except HostTooSlow as error:
        print(error, flush=True)
    return None


def records_of(path):
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(each) for each in lines]


def figures(record):
    """What a record shows, as fractions; the best size by name."""
    measured, predicted = record["measured_ns"], record["predicted_ns"]
    uniforms = {name: ns for name, ns in measured.items() if name not in ("growing", "again")}
    best = min(uniforms, key=uniforms.get)
    errors = [abs(predicted[name] / ns - 1) for name, ns in uniforms.items()]
    over = ("chosen", "one", "512", "growing")
    return {
        "best": best,
        "over": {name: measured[name] / uniforms[best] - 1 for name in over if name in measured},
        "growing": measured["growing"] / record["device_ns"] - 1,
        "after_first": measured["growing"] / after_first_ns(record) - 1,
        "error": statistics.median(errors),
        "worst": max(errors),
        "noise": abs(measured["again"] / measured["chosen"] - 1),
    }


def summary(record):
    found, halves = figures(record), over_best_of_other_half(record["runs_ns"])
    over = found["over"]
    half_k = f"{over['512']:.1%}" if "512" in over else "-"
    columns = (
        *(str(record["nodes"]), record["node"], record["regime"], str(record["recommended"])),
        *(f"{over['chosen']:.1%}", f"{halves:.1%}", found["best"], f"{over['one']:.1%}", half_k),
        f"{found['growing']:.1%}{'*' if hides(record) else ''}",
        f"{found['after_first']:.1%}{'*' if hides_after_first(record) else ''}",
        *(f"{found[name]:.1%}" for name in ("error", "worst", "noise")),
    )
    return line(columns)


def hides(record):
    """Whether the growing schedule is predicted to take the device's time alone, or 1 % more."""
    return record["predicted_ns"]["growing"] <= 1.01 * record["device_ns"]


def hides_after_first(record):
    """Whether it is to take the device's time after a first chunk of one node, or 1 % more."""
    return record["predicted_ns"]["growing"] <= 1.01 * after_first_ns(record)


def after_first_ns(record):
    """The device's time after a first chunk of one node."""
    return record["device_ns"] + record["first_ns"]


def over_best_of_other_half(runs):
    """How much longer the chosen size takes than the best, where luck does not choose that.

    The least of many medians is low by luck as well. So half of the runs say which size is best,
    and the others how long that takes; then the other way round.
    """
    uniforms = runs.keys() - {"growing", "again"}
    halves = [
        {name: statistics.median(runs[name][first::2]) for name in uniforms} for first in (0, 1)
    ]
    over = []
    for judge, timed in (halves, halves[::-1]):
        best = min(judge, key=judge.get)
        best = "chosen" if judge[best] == judge["chosen"] else best
        over.append(timed["chosen"] / timed[best] - 1)
    return statistics.mean(over)


def line(columns):
    return "".join(f"{column:>12}" for column in columns)


HEAD = (
    *("nodes", "node", "regime", "chosen", "over best", "halves", "best", "one graph", "512"),
    *("growing", "after first", "error", "worst", "noise"),
)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="append each setting that it lacks, as JSON")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES)
    parser.add_argument("--regimes", nargs="*", default=REGIMES)
    options = parser.parse_args(argv)
    random.seed(0)
    known = records_of(options.out) if options.out else []
    settings = itertools.product(range(options.passes), options.nodes, options.regimes, CLOCKS)
    places = {(each["pass"], each["nodes"], each["regime"], each["node"]) for each in known}
    missing = [each for each in settings if each not in places]
    print(line(HEAD))
    with Bench() as bench:
        pace = HostPace()
        patient = partial(HostPace, patience_ns=int(LIMIT_S * 1e9))
        for (number, nodes, regime), group in itertools.groupby(missing, key=lambda each: each[:3]):
            pace = patient(pace.fastest_ns)
            shared = tried(partial(calibrate, bench, pace, nodes, regime))
            for *_, kind in group if shared else ():
                pace = patient(pace.fastest_ns)
                record = tried(partial(setting, bench, pace, shared, nodes, kind, regime))
                if record:
                    print(summary(record), flush=True)
                if record and options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps({"pass": number} | record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
