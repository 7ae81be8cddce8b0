"""Reports as one HTML file that needs nothing else: no network, no server, no other file."""

from gaptrace.render.html.comparison import html_comparison
from gaptrace.render.html.report import html_report

__all__ = ["html_comparison", "html_report"]
