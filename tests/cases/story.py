"""What must be said of a recording."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Story:
    """A recording, and what gaptrace must say of it.

    Attributes:
        rows: of the export, by the keywords of `exports.export`.
        findings: all codes, in the order of the report; none is the right answer, too.
        verdict, cause, regime: of the recommendation.
        causes: idle ns by cause over all devices, complete and exact.
        evidence: by code of a finding, figures that it must hold.
        recommendation: other attributes of the recommendation.
        says, never: pieces of the report, with line breaks as spaces.
        granularity: of the recording.
    """

    rows: dict[str, list[dict[str, Any]]]
    findings: tuple[str, ...]
    verdict: str
    causes: dict[str, int]
    cause: str | None = None
    regime: str | None = "replay"
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    recommendation: dict[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    granularity: str = "graph"
