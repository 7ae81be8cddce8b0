"""Sizes in the nodes that an application counts, beside CUDA nodes."""

from itertools import accumulate, pairwise
from typing import Any

from gaptrace.recommendation import Recommendation


def converted(size: int, nodes: int, app_nodes: int) -> int:
    """Return a size in CUDA nodes as so many of the application's, in proportion, at least 1."""
    return max(1, round(size * app_nodes / nodes))


def app_sizes(recommendation: Recommendation, app_nodes: int | None) -> dict[str, Any] | None:
    """Return the advised sizes in the application's nodes; None where nothing is to convert."""
    nodes = recommendation.nodes
    if app_nodes is None or not nodes:
        return None

    def sizes(found: tuple[int, ...] | None) -> list[int] | None:
        return None if found is None else [converted(each, nodes, app_nodes) for each in found]

    chunk, schedule = recommendation.chunk, recommendation.schedule
    # So that they sum to all: where each ends, not how long it is, is converted.
    ends = [round(each * app_nodes / nodes) for each in accumulate(schedule or ())]
    return {
        "nodes": app_nodes,
        "chunk": None if chunk is None else converted(chunk, nodes, app_nodes),
        "plateau": sizes(recommendation.plateau),
        "schedule": None if schedule is None else [b - a for a, b in pairwise([0, *ends]) if b > a],
    }
