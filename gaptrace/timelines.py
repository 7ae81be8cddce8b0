"""What every host thread does at every time, in the terms that explain idle time.

A launch that is under way is not among them: it is known only for the op that ends a gap.
"""

import polars as pl

from gaptrace import intervals
from gaptrace.captures import captures
from gaptrace.launches import call_names
from gaptrace.trace import CALL_PHASES, NAMES, Trace

CAUSES = pl.Enum(
    [
        "unrecorded",
        "profiler",
        "device_queued",
        "launch_call",
        "graph_build",
        "host_sync",
        "api_other",
        "host_code",
    ]
)

#: Bounds of a host thread's timeline: beyond any time of a session, and far from overflow.
FOREVER = 2**62


def named_cause(name: str) -> pl.Expr:
    """Return one of `CAUSES` as a column."""
    return pl.lit(name, CAUSES)


def thread_timelines(trace: Trace) -> pl.DataFrame:
    """Say for every host thread with CUDA calls what it does at every time, without overlaps.

    Layers, the upper one winning: the recorder's own overhead; loading and compiling by the driver;
    the outermost API call; and `host_code` where there is no row at all.

    Returns:
        thread_id, start_ns, end_ns, cause, detail; is_driver: the second layer.
    """
    key = ["thread_id"]
    layers = _recorded(trace)
    whole = (
        trace.api.select("thread_id")
        .unique()
        .drop_nulls()
        .with_columns(start_ns=pl.lit(-FOREVER, pl.Int64), end_ns=pl.lit(FOREVER, pl.Int64))
    )
    host = intervals.subtract(whole, layers.select("thread_id", "start_ns", "end_ns"), key)
    # Code that runs between the calls of a capture runs in order to build a graph.
    capturing = captures(trace.api).drop_nulls("thread_id").select(*key, "start_ns", "end_ns")
    host = pl.concat(
        [
            intervals.intersect(host, capturing, key).with_columns(detail=pl.lit("in capture")),
            intervals.subtract(host, capturing, key).with_columns(detail=pl.lit(None, pl.String)),
        ]
    ).with_columns(
        pl.col("detail").cast(NAMES), cause=named_cause("host_code"), is_driver=pl.lit(False)
    )
    return pl.concat([layers, host], how="diagonal").sort("thread_id", "start_ns")


def _recorded(trace: Trace) -> pl.DataFrame:
    """The layers that have rows, without overlaps; columns as in `thread_timelines`."""
    key = ["thread_id"]
    overhead = trace.overhead.filter(pl.col("thread_id").is_not_null())
    recorder = intervals.merge(overhead.filter(pl.col("kind") == "profiler"), key)
    driver = intervals.subtract(
        intervals.disjoint(
            overhead.filter(pl.col("kind") == "driver").select(
                "thread_id", "start_ns", "end_ns", detail="name"
            ),
            key,
        ),
        recorder,
        key,
    )
    upper = pl.concat([recorder, driver.drop("detail")])
    calls = intervals.subtract(intervals.disjoint(_calls(trace), key), upper, key)
    return pl.concat(
        [
            recorder.with_columns(cause=named_cause("profiler"), is_driver=pl.lit(False)),
            driver.with_columns(
                pl.col("detail").cast(NAMES),
                cause=named_cause("api_other"),
                is_driver=pl.lit(True),
            ),
            calls.with_columns(is_driver=pl.lit(False)),
        ],
        how="diagonal",
    )


def _calls(trace: Trace) -> pl.DataFrame:
    """API calls with the cause and detail that they stand for while no launch is under way."""
    is_build = (pl.col("kind") == "graph_build") | pl.col("capture_id").is_not_null()
    phase = pl.coalesce("phase", pl.lit("capture", CALL_PHASES))
    named = trace.api.with_columns(call_name=call_names(trace))
    return named.filter(pl.col("thread_id").is_not_null()).select(
        "thread_id",
        "start_ns",
        "end_ns",
        cause=pl.when(is_build)
        .then(named_cause("graph_build"))
        .when(pl.col("kind").is_in(["wait", "blocking_copy"]))
        .then(named_cause("host_sync"))
        .otherwise(named_cause("api_other")),
        detail=pl.when(is_build).then(phase.cast(NAMES)).otherwise("call_name"),
    )
