"""What replays beside a program's steps computed, as text."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gaptrace.render.page import printed
from gaptrace.render.units import count


def replays_text(steps: Mapping[str, Mapping[str, Any]], *, width: int, color: bool) -> str:
    """Return a paragraph for each step.

    Args:
        steps: by name, what `gaptrace.live.shadow` noted: nodes, calls, problems.
        width: columns of the terminal.
        color: whether to write ANSI colours.
    """
    return printed([_step(name, step) for name, step in steps.items()], width, color)


def _step(name: str, step: Mapping[str, Any]) -> RenderableType:
    head = f"step {name}: {count(step['nodes'])} CUDA nodes, replayed beside {step['calls']} calls"
    if not step["problems"]:
        return Text.assemble((head, "bold"), ": all computed the same")
    lines: list[RenderableType] = [Text(f"{head}: a graph would NOT compute the same", "bold red")]
    for problem in step["problems"]:
        lines.append(Text(f"call {problem['call']}, {problem['when']}: {problem['message']}"))
        lines += [Padding(Text(text), (0, 0, 0, 2)) for text in problem["parameters"]]
    return Group(lines[0], Padding(Group(*lines[1:]), (0, 0, 0, 2)))
