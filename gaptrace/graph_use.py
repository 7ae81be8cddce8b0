"""How a program uses graphs: what it builds at every launch, and what runs between its replays."""

from dataclasses import dataclass

import polars as pl

from gaptrace.captures import captures
from gaptrace.launches import TINY_COPY_BYTES
from gaptrace.ranges import innermost_ranges
from gaptrace.trace import Trace

#: Builds or updates per graph launch from which on they belong to every step. A judgement: a
#: warm-up builds far less often, a program that builds in each step at least this often.
PER_LAUNCH = 0.5
#: Fewer builds than this may be a warm-up and the real one. A judgement.
LEAST_BUILDS = 3
#: Update calls per launch from which on nodes are set one by one. A judgement: updating a whole
#: exec takes one call.
NODE_BY_NODE = 2.0
#: Single launches between two replays, above the usual number there, that make a burst. A
#: judgement: set-up belongs to a replay (PyTorch fills in two random seeds, pytorch/pytorch#143572)
#: and takes a few kernels, a pass over a network takes dozens.
LEAST_BURST = 8
#: Replays that wait for a value read before them, from which on they are a loop. A judgement.
LEAST_ITERATIONS = 8
#: Gap before a replay in a loop, in durations of the replay, from which on the reading costs as
#: much as the work. A judgement: a step of some milliseconds that ends with a value is no loop.
LOOP_GAP = 0.5
#: Kernels launched one by one from which on graphs are missed. A judgement: below, they are a
#: set-up or a handful of large kernels.
LEAST_KERNELS = 100

_KEY = ["process_id", "device_id"]


@dataclass(frozen=True)
class GraphUse:
    """What graphs are used for, inside the windows.

    Attributes:
        rebuilds: see `rebuilds`.
        bursts: see `eager_bursts`.
        loops: see `value_loops`.
        ungraphed: see `ungraphed_kernels`.
    """

    rebuilds: pl.DataFrame
    bursts: pl.DataFrame
    loops: pl.DataFrame
    ungraphed: pl.DataFrame


def graph_use(
    trace: Trace,
    launches: pl.DataFrame,
    executions: pl.DataFrame,
    windows: pl.DataFrame,
    tree: pl.DataFrame,
) -> GraphUse:
    """Look at how graphs are used.

    Args:
        trace: the trace.
        launches: `launches.launches` inside the windows.
        executions: `graphs.graph_executions` inside the windows.
        windows: device_id, start_ns, end_ns.
        tree: `ranges.range_tree`.
    """
    return GraphUse(
        rebuilds(trace, executions, windows),
        eager_bursts(trace, launches, tree),
        value_loops(trace, executions),
        ungraphed_kernels(launches, executions),
    )


def rebuilds(trace: Trace, executions: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Say what each process builds per graph launch.

    Returns:
        process_id; launches: graph launches called between the first op and the last, as all that
        follows; instantiated, updated: calls; refused: further updates that failed, because the
        graph had changed too much; captures: sound ones; shapes: distinct node counts among them;
        shape_changes: captures with another node count than the one before; kept: the most execs
        that existed at once, as far as their making and destroying was recorded;
        habit: what comes with about every launch (`PER_LAUNCH`, `LEAST_BUILDS`), else null:
        instantiated_alike: anew from captures of one shape, alternating_shapes: anew because
        shapes come and go that were there before, more_shapes_than_kept: likewise, although
        several execs are kept (a cache smaller than the cycle of its keys never hits),
        instantiated: anew for another or an unseen reason, node_by_node: several updates a launch,
        updated: an update.
    """
    begin, end = windows.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    api = trace.api.filter(pl.col("start_ns").is_between(begin, end))
    phase, failed = pl.col("phase"), pl.col("return_code").fill_null(0) != 0
    made = api.group_by("process_id").agg(
        instantiated=(phase == "instantiate").sum(),
        updated=((phase == "update") & ~failed).sum(),
        refused=((phase == "update") & failed).sum(),
    )
    nodes = pl.col("nodes")
    shapes = (
        captures(trace.api)
        .filter(pl.col("start_ns") >= begin, pl.col("end_ns") <= end)
        .filter(pl.col("is_sound") & (nodes > 0))
        .group_by("process_id", maintain_order=True)
        .agg(
            captures=pl.len(),
            shapes=nodes.n_unique(),
            shape_changes=(nodes != nodes.shift(1)).sum(),
        )
    )
    counts = ["instantiated", "updated", "refused", "captures", "shapes", "shape_changes", "kept"]
    return (
        executions.group_by("process_id", maintain_order=True)
        .agg(launches=(pl.col("call_start_ns") >= begin).fill_null(True).sum().cast(pl.Int64))
        .join(made, on="process_id", how="left", maintain_order="left")
        .join(shapes, on="process_id", how="left", maintain_order="left")
        .join(
            _kept(trace.api, end),
            on="process_id",
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col(counts).fill_null(0).cast(pl.Int64))
        .with_columns(habit=_habit())
    )


def _kept(api: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """Per process, the most execs alive at once until a time."""
    made, gone = (
        pl.col("phase") == "instantiate",
        pl.col("name").cast(pl.String).str.contains("GraphExecDestroy"),
    )
    alive = pl.when(made).then(1).otherwise(-1).cum_sum()
    return (
        api.filter(
            (made | gone) & (pl.col("return_code").fill_null(0) == 0), pl.col("start_ns") <= end_ns
        )
        .group_by("process_id", maintain_order=True)
        # Execs from before the recording are missed when they are destroyed: there were as many.
        .agg(kept=alive.max() - pl.min_horizontal(alive.min(), 0))
    )


def _habit() -> pl.Expr:
    def often(calls: str) -> pl.Expr:
        return (pl.col(calls) >= LEAST_BUILDS) & (pl.col(calls) >= PER_LAUNCH * pl.col("launches"))

    # The first time each shape is met makes one change fewer than there are shapes.
    recur = (pl.col("shapes") > 1) & (pl.col("shape_changes") >= pl.col("shapes"))
    exceed = (pl.col("kept") > 1) & (pl.col("shapes") > pl.col("kept"))
    alike = (pl.col("shapes") == 1) & (pl.col("refused") == 0) & (pl.col("captures") > 1)
    return (
        pl.when(often("instantiated") & recur & exceed)
        .then(pl.lit("more_shapes_than_kept"))
        .when(often("instantiated") & recur)
        .then(pl.lit("alternating_shapes"))
        .when(often("instantiated") & alike)
        .then(pl.lit("instantiated_alike"))
        .when(often("instantiated"))
        .then(pl.lit("instantiated"))
        .when(often("updated") & (pl.col("updated") >= NODE_BY_NODE * pl.col("launches")))
        .then(pl.lit("node_by_node"))
        .when(often("updated"))
        .then(pl.lit("updated"))
    )


def eager_bursts(trace: Trace, launches: pl.DataFrame, tree: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels that were launched one by one where a replay usually follows a replay.

    Between two graph launches a program makes some number of single launches, often none. Where it
    makes `LEAST_BURST` more than it usually does (the median), a step ran without its graph. What
    `gaptrace profile --arms` launches one by one, to compare, is none of the program's.

    Returns:
        one row per kernel launch in a burst: burst_id, process_id, device_id, call_id; is_rebuilt:
        a graph was instantiated before the next replay; range: the innermost NVTX range around the
        launch, null when there is none.
    """
    is_graph = pl.col("call_kind") == "graph_launch"
    calls = (
        launches.filter(pl.col("call_kind").is_in(["launch", "graph_launch"]))
        .sort("call_start_ns")
        .with_columns(_replay=is_graph.cum_sum().over(_KEY))
    )
    singles = _of_the_program(trace, calls.filter(~is_graph))
    counts = singles.group_by(*_KEY, "_replay").agg(_singles=pl.len().cast(pl.Int64))
    between = (
        calls.filter(is_graph)
        .select(
            *_KEY,
            "_replay",
            _from="call_start_ns",
            _to=pl.col("call_start_ns").shift(-1).over(_KEY),
        )
        .filter(pl.col("_to").is_not_null())
        .join(counts, on=[*_KEY, "_replay"], how="left", maintain_order="left")
        .with_columns(pl.col("_singles").fill_null(0))
    )
    usual = pl.col("_singles").median().over(_KEY)
    bursts = _with_rebuilt(
        trace, between.filter(pl.col("_singles") >= usual + LEAST_BURST).with_row_index("burst_id")
    )
    found = singles.join(bursts, on=[*_KEY, "_replay"], how="inner", maintain_order="left")
    return innermost_ranges(tree, found.with_columns(time_ns="call_start_ns")).select(
        pl.col("burst_id").cast(pl.Int64), *_KEY, "call_id", "is_rebuilt", "range"
    )


def _of_the_program(trace: Trace, launches: pl.DataFrame) -> pl.DataFrame:
    """Launches outside the ranges of the arm per_launch (`timings.Arm.name`)."""
    arms = trace.nvtx.filter((pl.col("domain") == "gaptrace") & (pl.col("name") == "per_launch"))
    return (
        launches.sort("call_start_ns")
        .join_asof(
            arms.select("thread_id", _arm_ns="start_ns", _arm_end_ns="end_ns").sort("_arm_ns"),
            left_on="call_start_ns",
            right_on="_arm_ns",
            by="thread_id",
            check_sortedness=False,
        )
        .filter((pl.col("call_start_ns") >= pl.col("_arm_end_ns")).fill_null(True))
        .drop("_arm_ns", "_arm_end_ns")
    )


def _with_rebuilt(trace: Trace, bursts: pl.DataFrame) -> pl.DataFrame:
    built = trace.api.filter(pl.col("phase") == "instantiate").select(
        "process_id", _built="start_ns"
    )
    return (
        bursts.sort("_to")
        .join_asof(built, left_on="_to", right_on="_built", by="process_id", check_sortedness=False)
        .with_columns(is_rebuilt=(pl.col("_built") > pl.col("_from")).fill_null(False))
    )


def value_loops(trace: Trace, executions: pl.DataFrame) -> pl.DataFrame:
    """Return the graph executions that waited until the host had read a value.

    Between the graph before and such an execution a tiny copy went to the host, which launched only
    then. There are at least `LEAST_ITERATIONS` of them, and the gaps are at least `LOOP_GAP` of the
    executions, by their medians: short iterations whose continuation the host decides.

    Returns:
        process_id, device_id, call_id: of the graph launch; read_op_id: the copy; gap_ns: graph
        gap before the execution; duration_ns: of the execution.
    """
    reads = trace.ops.filter(
        (pl.col("kind") == "memcpy")
        & (pl.col("name").cast(pl.String) == "copy DtoH")
        & (pl.col("bytes") <= TINY_COPY_BYTES)
        & pl.col("graph_exec_id").is_null()
    ).select(*_KEY, read_op_id="op_id", _read_ns="start_ns")
    waited = (
        executions.filter(pl.col("gap_kind") == "starved")
        .join_asof(reads, left_on="start_ns", right_on="_read_ns", by=_KEY, check_sortedness=False)
        .filter(pl.col("_read_ns") >= pl.col("start_ns") - pl.col("gap_ns"))
        .with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    )
    is_loop = (pl.len().over(_KEY) >= LEAST_ITERATIONS) & (
        pl.col("gap_ns").median().over(_KEY) >= LOOP_GAP * pl.col("duration_ns").median().over(_KEY)
    )
    return waited.filter(is_loop).select(*_KEY, "call_id", "read_op_id", "gap_ns", "duration_ns")


def ungraphed_kernels(launches: pl.DataFrame, executions: pl.DataFrame) -> pl.DataFrame:
    """Say where many small kernels run and no graph does.

    Small: shorter than the host takes from one launch to the next, so that the device waits.

    Returns:
        device_id; kernels: launched one by one, at least `LEAST_KERNELS`; kernel_ns, launch_ns:
        medians of their duration and of the time from one launch call to the next.
    """
    single = launches.filter(
        (pl.col("call_kind") == "launch")
        & ~pl.col("device_id").is_in(executions["device_id"].unique().implode())
    )
    return (
        single.sort("call_start_ns")
        .with_columns(_since=pl.col("call_start_ns").diff().over("thread_id"))
        .group_by("device_id", maintain_order=True)
        .agg(
            kernels=pl.len().cast(pl.Int64),
            kernel_ns=(pl.col("end_ns") - pl.col("start_ns")).median(),
            launch_ns=pl.col("_since").median(),
        )
        .filter((pl.col("kernels") >= LEAST_KERNELS) & (pl.col("kernel_ns") < pl.col("launch_ns")))
    )
