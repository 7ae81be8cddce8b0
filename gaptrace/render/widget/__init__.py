"""The timeline of a notebook: asks for another view whenever the window changes.

Importing this loads anywidget and plotly.
"""

import json
from importlib import resources
from typing import Any

import anywidget
import plotly.graph_objects as go
import traitlets
from plotly.offline import get_plotlyjs

from gaptrace.prepared import Prepared
from gaptrace.render.figures.timeline import draw
from gaptrace.view import View, view

#: plotly.js looks for a module system to give itself to; a module of the browser has none.
_PLOTLY = (
    "const Plotly = (() => {{ const module = {{ exports: {{}} }}, exports = module.exports, "
    "define = undefined; {source}\nreturn module.exports; }})();\n"
)


class Timeline(anywidget.AnyWidget):
    """A timeline that is drawn anew for each window, from all spans in it.

    Dragging zooms, a double click shows the whole again. Alive as long as the notebook shows it.

    Attributes:
        window: begin and end of what is shown, in ns since the session began; None for the whole.
            Changes with each zoom, and may be set.
        figure: what is shown, as `render.figures.timeline` draws it.
    """

    _esm = _PLOTLY.format(source=get_plotlyjs()) + resources.files(__name__).joinpath(
        "timeline.js"
    ).read_text(encoding="utf-8")
    window = traitlets.Tuple(
        traitlets.Int(), traitlets.Int(), default_value=None, allow_none=True
    ).tag(sync=True)
    #: The figure as JSON beside the window that it shows.
    picture = traitlets.Unicode().tag(sync=True)
    figure: go.Figure

    def __init__(
        self, prepared: Prepared, from_ns: int | None = None, to_ns: int | None = None
    ) -> None:
        """Draw an analysis between two times; without them, the whole."""
        super().__init__()
        self._prepared = prepared
        seen = view(prepared, from_ns, to_ns)
        if (from_ns, to_ns) != (None, None):
            self.window = seen.start_ns, seen.end_ns
        self._show(seen, self.window)
        self.observe(self._look, "window")

    def _look(self, change: dict[str, Any]) -> None:
        window = change["new"]
        self._show(view(self._prepared, *(window or ())), window)

    def _show(self, seen: View, window: tuple[int, int] | None) -> None:
        self.figure = draw(seen)
        self.picture = f'{{"window": {json.dumps(window)}, "figure": {self.figure.to_json()}}}'

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the widget, and the figure for pages that have no Python to ask."""
        bundle = super()._repr_mimebundle_(**kwargs)
        still = self.figure.to_html(
            full_html=False,
            include_plotlyjs="cdn",
            config={"displaylogo": False, "modeBarButtonsToRemove": ["sendChartToCloud"]},
        )
        return bundle and (bundle[0] | {"text/html": still}, bundle[1])
