"""Figures: each takes an analysis, or a part of one, and returns a plotly `Figure`.

One colour stands for one cause in all of them; text and lines are readable on light and on dark
pages. Importing this loads plotly.
"""

from gaptrace.render.figures.chunks import step_by_chunk
from gaptrace.render.figures.comparison import before_after
from gaptrace.render.figures.idle import gap_histogram, idle_by_cause
from gaptrace.render.figures.repeated import launch_costs, steps
from gaptrace.render.figures.schedules import schedule_lanes
from gaptrace.render.figures.sensitivity import sensitivity
from gaptrace.render.figures.style import CAUSE_COLORS
from gaptrace.render.figures.timeline import timeline

__all__ = [
    "CAUSE_COLORS",
    "before_after",
    "gap_histogram",
    "idle_by_cause",
    "launch_costs",
    "schedule_lanes",
    "sensitivity",
    "step_by_chunk",
    "steps",
    "timeline",
]
