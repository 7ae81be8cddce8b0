"""A copy of an Nsight export that can be shared: what analysis needs, and nothing else.

An export holds the whole environment with its tokens, command lines, names of hosts, users and
threads, all processes of the machine, paths, and what programs printed. The copy is made of an
allow-list (`kept`), never by blanking, and the names in it are kept unless one looks like a path,
an address or a secret, or holds the name of the user or the host (`names`). It is then analysed,
and thrown away if any figure differs from the source's (`proof`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaptrace.drafts import check_is_free, new_file
from gaptrace.errors import GaptraceError, NotRecordedError, WindowError
from gaptrace.read import read
from gaptrace.read.nsys_device import device_rows, middle_of_work
from gaptrace.read.secrets import looks_secret, variables
from gaptrace.read.sqlite import ExportFile
from gaptrace.redact.copying import Call, Cut, write_copy
from gaptrace.redact.dropped import Dropped
from gaptrace.redact.names import Hider
from gaptrace.redact.proof import answer, first_difference, of_window, totals, without
from gaptrace.redact.window import Window, find_window, narrow
from gaptrace.trace import Trace

__all__ = ["Dropped", "Redaction", "redact"]


@dataclass(frozen=True)
class Redaction:
    """A copy that was made and proved.

    Attributes:
        target: the copy.
        source_bytes, target_bytes: sizes of the files.
        window_ns: from and to, null for the whole trace.
        figures: what both source and copy give, as `render.json.analysis_object`, of a window
            without what depends on times outside; or, of a trace that cannot be analysed,
            `refused`: why, the same for both.
        dropped: tables, columns, rows and strings that are not in the copy.
        variables: names of the environment variables and options that are not in the copy.
        secrets: those of them that look like secrets.
        hidden: how many names that are kept were numbered, as `hidden 1`.
    """

    target: Path
    source_bytes: int
    target_bytes: int
    window_ns: Window | None
    figures: dict[str, Any]
    dropped: Dropped
    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    hidden: int


def redact(
    source: Path,
    target: Path,
    *,
    range_name: str | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
    made_by: str = "gaptrace redact",
    progress: Callable[[int], None] | None = None,
) -> Redaction:
    """Write a copy of an export without anything personal, and prove that its figures are the same.

    Args:
        source: an SQLite export of Nsight Systems; opened read-only.
        target: where the copy goes; nothing may be there.
        range_name: cut to NVTX ranges of this name or path, from the first to the end of the last.
        from_ns: cut from this time on, in nanoseconds since the session began.
        to_ns: cut at this time.
        made_by: is noted in the copy.
        progress: told how many percent are done.

    Raises:
        TraceFormatError: the source is no export, or damaged.
        NotRecordedError: a window was asked for, and there is no device work at all.
        WindowError: there is no such range, or no device work in the window.
        GaptraceError: the target exists or cannot be written, or the figures differ.
    """
    check_is_free(target)
    done = progress or (lambda _: None)
    trace = expected = _read(source)
    done(20)
    window, cut = None, None
    if (range_name, from_ns, to_ns) != (None, None, None):
        if not isinstance(trace, Trace):
            raise NotRecordedError(f"{source}: {trace}")
        window = find_window(trace, range_name, from_ns, to_ns)
    with ExportFile(source) as export:
        told = sorted(set(variables(export)))
        hider = Hider(export)
        if isinstance(trace, Trace) and window is not None:
            expected = narrow(trace, window)
            cut = Cut(window, _calls(expected), middle_of_work(export, device_rows(export)))
    with new_file(target) as draft:
        dropped = write_copy(source, draft, hider, cut=cut, made_by=made_by)
        done(60)
        figures = _prove(trace, expected, _read(draft), window, hider.hidden, target)
        done(100)
    return Redaction(
        target=target,
        source_bytes=source.stat().st_size,
        target_bytes=target.stat().st_size,
        window_ns=window,
        figures=figures,
        dropped=dropped,
        variables=tuple(dict.fromkeys(name for name, _ in told)),
        secrets=tuple(dict.fromkeys(name for name, value in told if looks_secret(name, value))),
        hidden=len(hider.hidden),
    )


def _read(path: Path) -> Trace | str:
    """Read a trace, or say why nothing in it can be analysed."""
    try:
        return read(path)
    except NotRecordedError as error:
        return str(error).removeprefix(f"{path}: ")


def _calls(trace: Trace) -> list[Call]:
    return trace.api.select(
        "thread_id", "start_ns", "end_ns", "process_id", "correlation_id"
    ).rows()


def _prove(
    trace: Trace | str,
    expected: Trace | str,
    copied: Trace | str,
    window: Window | None,
    hidden: dict[str, str],
    target: Path,
) -> dict[str, Any]:
    """Return the figures that both give.

    Raises:
        GaptraceError: they do not give the same ones.
    """
    figures = answer(copied)
    if window is not None and "refused" in figures and "refused" not in answer(trace):
        reason = str(figures["refused"]).split(";")[0]
        raise WindowError(
            f"{target}: not written, since the window alone cannot be analysed ({reason}); take a "
            "wider one"
        )
    shown = figures if window is None else of_window(figures)
    wanted = answer(_without(expected, hidden))
    difference = first_difference(wanted if window is None else of_window(wanted), shown)
    if difference is None and window is not None and "refused" not in figures:
        assert isinstance(trace, Trace)
        assert isinstance(copied, Trace)
        whole = totals(trace, window, figures["devices"])
        if "refused" not in whole:
            cut = totals(copied, window, figures["devices"])
            difference = first_difference(whole, cut)
    if difference is not None:
        raise GaptraceError(
            f"{target}: not written, since the copy does not give the figures of its source: "
            f"{difference}; report this, with the version of Nsight Systems"
        )
    return shown


def _without(trace: Trace | str, hidden: dict[str, str]) -> Trace | str:
    if isinstance(trace, Trace):
        return without(trace, hidden)
    for name, number in hidden.items():
        trace = trace.replace(" ".join(name.split()), number)
    return trace
