"""What a program builds at every launch of a graph."""

import polars as pl

from gaptrace.captures import captures
from gaptrace.trace import Trace

#: Builds or updates per graph launch from which on they belong to every step. A judgement: a
#: warm-up builds far less often, a program that builds in each step at least this often.
PER_LAUNCH = 0.5
#: Fewer builds than this may be a warm-up and the real one. A judgement.
LEAST_BUILDS = 3
#: Update calls per launch from which on nodes are set one by one. A judgement: updating a whole
#: exec takes one call.
NODE_BY_NODE = 2.0


def rebuilds(trace: Trace, executions: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Say what each process builds per graph launch.

    Returns:
        process_id; launches: graph launches called between the first op and the last, as all that
        follows; instantiated, updated: calls; refused: further updates that failed, because the
        graph had changed too much; captures: sound ones; shapes: distinct node counts among those
        of a thread, the most; shape_changes: captures with another node count than the one before
        on their thread; kept: the most execs
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
        instantiated=((phase == "instantiate") & ~failed).sum(),
        updated=((phase == "update") & ~failed).sum(),
        refused=((phase == "update") & failed).sum(),
    )
    nodes = pl.col("nodes")
    shapes = (
        captures(trace.api)
        .filter(pl.col("start_ns") >= begin, pl.col("end_ns") <= end)
        .filter(pl.col("is_sound") & (nodes > 0))
        # Threads take turns with graphs of their own, each of one shape.
        .group_by("process_id", "thread_id", maintain_order=True)
        .agg(
            captures=pl.len(),
            shapes=nodes.n_unique(),
            shape_changes=(nodes != nodes.shift(1)).sum(),
        )
        .group_by("process_id", maintain_order=True)
        .agg(pl.col("captures").sum(), pl.col("shapes").max(), pl.col("shape_changes").sum())
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
