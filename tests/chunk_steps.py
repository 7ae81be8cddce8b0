"""Random steps of a program, all ways to cut them, and the recurrence of `gaptrace.cost` again.

The oracle shares nothing with the package but the names of arguments.
"""

from itertools import combinations, pairwise

from hypothesis import strategies as st

from gaptrace.cost import ChunkModel, HostCost


def last(nodes: int, chunk: int) -> list[int]:
    """Uniform chunks, remainder last."""
    return [min(chunk, nodes - begin) for begin in range(0, nodes, chunk)]


def oracle(fields, sizes):
    host_at, done, begin = 0.0, [], 0
    nodes = fields["node_ns"]
    for i, size in enumerate(sizes):
        cost = fields["fixed"] + fields["slope"] * size
        began, host_at = host_at, host_at + cost
        depth = fields["queue_depth"]
        if depth and i - depth >= 0 and done[i - depth] > host_at:
            began, host_at = done[i - depth] - cost, done[i - depth]
        start = max(began, host_at + fields["delta_ns"])
        if i == 0:
            start = max(start, fields["device_free_ns"])
        else:
            start = max(start, done[-1] + fields["in_graph_gap_ns"] + fields["cut_gap_ns"])
        run = sum(nodes[begin : begin + size]) + fields["in_graph_gap_ns"] * (size - 1)
        done.append(start + run + (fields["overlap_ns"][begin] if begin else 0))
        begin += size
    return done[-1]


def compositions(nodes, cuts):
    for count in range(len(cuts) + 1):
        for chosen in combinations(cuts, count):
            yield tuple(b - a for a, b in pairwise((0, *chosen, nodes)))


@st.composite
def steps(draw, longest=9):
    nodes = draw(st.integers(1, longest))
    inner = range(1, nodes)
    whole = st.integers(0, 40)
    return {
        "fixed": draw(whole),
        "slope": draw(whole),
        "node_ns": draw(st.lists(whole, min_size=nodes, max_size=nodes)),
        "in_graph_gap_ns": draw(st.integers(0, 5)),
        "cut_gap_ns": draw(st.integers(0, 20)),
        "delta_ns": draw(st.integers(-60, 60)),
        "device_free_ns": draw(st.integers(0, 200)),
        "queue_depth": draw(st.none() | st.integers(1, nodes)),
        "overlap_ns": draw(st.lists(whole, min_size=nodes + 1, max_size=nodes + 1)),
        "cuts": draw(st.none() | st.sets(st.sampled_from(inner)) if inner else st.none()),
    }


def model_of(fields):
    rest = {k: v for k, v in fields.items() if k not in ("fixed", "slope")}
    host = HostCost.linear(fields["fixed"], fields["slope"])
    return ChunkModel(host, len(fields["node_ns"]), **rest)


def allowed(fields):
    inner = range(1, len(fields["node_ns"]))
    return list(inner) if fields["cuts"] is None else sorted(fields["cuts"])
