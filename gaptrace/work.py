"""What a device was busy with: kernels, copies, and kernels that may only wait for other ranks."""

import polars as pl

from gaptrace import intervals
from gaptrace.trace import Trace

#: NCCL's kernels, of every version and operation (`ncclDevKernel_AllReduce_Sum_bf16_RING_LL`,
#: `ncclKernel_SendRecv`). Collectives of other libraries are not told apart from other kernels.
_COLLECTIVE = r"(?i)\bnccl(dev)?kernel"


def busy_with(trace: Trace, windows: pl.DataFrame) -> pl.DataFrame:
    """Add up what ran on each device, inside the windows.

    Args:
        trace: the trace.
        windows: device_id, start_ns, end_ns; disjoint on a device.

    Returns:
        device_id; kernel_ns: time in which at least one kernel or graph ran; copy_ns: in which a
        copy or set ran and neither kernel nor graph; collective_ns: in which a collective's kernel
        ran, and nothing else but other collectives' and copies. Of graphs in graph granularity it
        is not known what is in them.
    """
    ops = trace.ops.select(
        "device_id",
        "start_ns",
        "end_ns",
        works=pl.col("kind").is_in(["kernel", "graph"]),
        is_collective=pl.col("name").cast(pl.String).str.contains(_COLLECTIVE),
    )
    works, by = pl.col("works"), ["device_id"]
    kernels = intervals.merge(ops.filter(works), by)
    copies = intervals.subtract(intervals.merge(ops.filter(~works), by), kernels, by)
    own = intervals.merge(ops.filter(works & ~pl.col("is_collective")), by)
    waits = intervals.subtract(
        intervals.merge(ops.filter(works & pl.col("is_collective")), by), own, by
    )
    found = windows.select("device_id").unique(maintain_order=True)
    parts = {"kernel_ns": kernels, "copy_ns": copies, "collective_ns": waits}
    for name, spans in parts.items():
        inside = intervals.intersect(spans, windows, by)
        summed = inside.group_by("device_id").agg((pl.col("end_ns") - pl.col("start_ns")).sum())
        found = found.join(
            summed.rename({"end_ns": name}), on="device_id", how="left", maintain_order="left"
        )
    return found.with_columns(pl.col(*parts).fill_null(0))
