"""The report as one HTML file that needs nothing else: no network, no server, no other file."""

from gaptrace.render.html.report import html_report

__all__ = ["html_report"]
