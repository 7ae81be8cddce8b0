"""The comparison of two traces as one HTML file."""

from gaptrace.compare import Comparison
from gaptrace.render import figures
from gaptrace.render.comparison import comparison_object, head, names, sections
from gaptrace.render.html.blocks import blocks
from gaptrace.render.html.page import Data, Part, page
from gaptrace.render.html.pictures import Picture
from gaptrace.render.terms import COMPARED

#: Lists of the JSON that grow with the traces.
_GROWING = (("ranges",), ("steps",))


def html_comparison(compared: Comparison) -> str:
    """Return the comparison as one HTML document, made as `report.html_report` is.

    Args:
        compared: the two traces.
    """
    of = (
        "a step of each sequence that both traces hold, by the medians of steady steps"
        if compared.steps.height
        else "each device's whole window"
    )
    picture = Picture(
        figures.before_after(compared), f"Busy time, and idle time by cause, of {of}."
    )
    parts = [Part("before-and-after", "Before and after", [picture], [])]
    parts += [
        Part(f"part-{number}", each.title, [], blocks(each.parts))
        for number, each in enumerate(sections(compared), 1)
    ]
    data = Data(
        "comparison", "The comparison", comparison_object(compared), _GROWING,
        "gaptrace compare --json",
    )  # fmt: skip
    before, after = names(compared)
    return page(f"{before}, then {after}", blocks([head(compared)]), parts, COMPARED, data)
