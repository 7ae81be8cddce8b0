"""What a device was busy with, against a count of nanoseconds."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from rows import graph, op, trace

from gaptrace.work import busy_with

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def of(ops, *windows):
    whole = windows or ((0, 0, 1_000),)
    schema = {"device_id": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    frame = pl.DataFrame(whole, schema, orient="row")
    return busy_with(trace(ops), frame).rows()


def test_copies_count_where_nothing_else_runs():
    ops = [op(0, 10), op(5, 30, kind="memcpy"), op(28, 32, kind="memset"), graph(40, 50)]

    assert of(ops) == [(0, 20, 22, 0)]


def test_collectives_count_where_they_run_alone():
    ops = [op(0, 10), op(5, 30, name=NCCL), op(25, 40, kind="memcpy"), op(50, 60, name=NCCL)]

    assert of(ops) == [(0, 40, 10, 30)]
    assert of([op(0, 10, name="ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t")]) == [(0, 10, 0, 10)]
    assert of([op(0, 10, name="void my_nccl_like<float>()")]) == [(0, 10, 0, 0)]


def test_only_what_is_inside_the_windows_counts():
    ops = [op(0, 100), op(100, 200, kind="memcpy"), op(0, 50, kind="memcpy", device_id=1)]

    assert of(ops, (0, 90, 120), (0, 150, 160), (1, 0, 10)) == [(0, 10, 30, 0), (1, 0, 10, 0)]


kinds = st.sampled_from([("kernel", "scale"), ("kernel", NCCL), ("memcpy", "copy"), ("graph", "g")])
drawn = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), kinds), min_size=1, max_size=8)


@given(drawn, st.integers(0, 30), st.integers(1, 30))
def test_every_nanosecond_counts_once_for_what_runs_then(spans, begin, length):
    ops = [op(at, at + ns, kind=kind, name=name) for at, ns, (kind, name) in spans]
    kernel = copy = collective = 0
    for now in range(begin, begin + length):
        running = {(o["kind"], o["name"]) for o in ops if o["start_ns"] <= now < o["end_ns"]}
        works = {each for each in running if each[0] != "memcpy"}
        kernel += bool(works)
        copy += bool(running) and not works
        collective += works == {("kernel", NCCL)}

    assert of(ops, (0, begin, begin + length)) == [(0, kernel, copy, collective)]
