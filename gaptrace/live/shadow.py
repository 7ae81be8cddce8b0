"""Replays each step of a program beside it, from a graph captured once, and compares results.

A graph holds the addresses, values and decisions of its capture. What the program changes later
(buffers that move or are freed, inputs in other places, counters on the host) makes a replay wrong
without any error. `gaptrace verify` runs the program as it is and at each call of a step asks
whether a replay would have computed the same. The program gets the results of its own call. The
step is called more often than the program does: for the capture, with changed inputs, after freeing
memory, and to explain a wrong result; with all that it does on the host.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from gaptrace.errors import GaptraceError, ResultError
from gaptrace.live import arrays
from gaptrace.live.agreement import TOLERANCE
from gaptrace.live.arrays import largest_difference, magnitude
from gaptrace.live.capture import capture
from gaptrace.live.driver import done, driver
from gaptrace.live.node_params import Change, KernelNode, addresses, changes, is_live, kernel_nodes
from gaptrace.live.notes import RunNotes
from gaptrace.live.split import split
from gaptrace.live.streams import current_stream

#: Calls that are replayed: what goes wrong does so within a few, or when something grows. Own
#: choice.
_CALLS_REPLAYED = 32
#: Memory taken after the caches were emptied, so that freed addresses hold something else.
_JUNK_BLOCKS, _JUNK_BYTES = 64, 2**20
#: Parameters named for one problem.
_MOST_NAMED = 8


@dataclass(frozen=True)
class Problem:
    """A call at which a replay was wrong, or would be.

    Attributes:
        kind: other_result, dead_address.
        call: number of the call of the step, from 0 on.
        when: inputs as they were, changed inputs, memory freed.
        message: what is wrong and what to do.
        parameters: nodes and parameters behind it, as text.
    """

    kind: str
    call: int
    when: str
    message: str
    parameters: tuple[str, ...] = ()


@dataclass
class _Found:
    """What is known of a step; written into the notes as it grows."""

    nodes: int = 0
    calls: int = 0
    problems: list[Problem] = field(default_factory=list)


class Shadow:
    """The graph of a step, replayed beside its calls; open until it failed or has seen enough."""

    def __init__(self, function: Callable[..., Any], name: str, notes: RunNotes) -> None:
        self.is_open = True
        self._function = function
        self._name = name
        self._notes = notes
        self._found = _Found()
        self._held = ExitStack()
        self._nodes: list[KernelNode] = []
        self._seen: set[int] = set()
        self._stays: list[Any] = []

    def see(self, result: Any) -> None:
        """Note where a call that is not replayed left its results."""
        self._seen = {arrays.address(array) for array in arrays.arrays_in(result)}

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make one call of the program, and replay it."""
        try:
            if not self._nodes:
                self._open(args, kwargs)
            result = self._check(number, args, kwargs)
        except GaptraceError as error:
            self._close({"error": f"step {self._name}: {error}"})
            # All that a check has changed is as it was before the call.
            return self._function(*args, **kwargs)
        self._found.calls += 1
        if self._found.calls == _CALLS_REPLAYED or self._found.problems:
            self._close(asdict(self._found))
        else:
            self._note(asdict(self._found))
        return result

    def _open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cuda = driver()
        done(cuda.cuCtxSynchronize(), "waiting for the program")
        flags = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = int(done(cuda.cuStreamCreate(flags), "creating a stream"))
        self._held.callback(cuda.cuStreamDestroy, self._stream)
        captured = self._held.enter_context(
            capture(lambda: self._function(*args, **kwargs), stream=self._stream)
        )
        self._outputs = arrays.arrays_in(captured.outputs)
        # What lies where it lay before the capture is the program's own, and state of the step.
        given = {arrays.address(array) for array in arrays.arrays_in((args, kwargs))}
        own = self._seen - given
        self._stays = [array for array in self._outputs if arrays.address(array) in own]
        self._graph = self._held.enter_context(split(captured))
        self._nodes = kernel_nodes(captured.handle)
        self._addresses = addresses(self._nodes)
        self._found.nodes = self._graph.nodes

    def _check(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compare a replay with the call: as it is, with changed inputs, after freeing memory."""
        state = [*arrays.arrays_in((args, kwargs)), *self._stays]
        done(driver().cuCtxSynchronize(), "waiting for the program")
        with current_stream(self._stream):
            start = [arrays.copied(array) for array in state]
            if self._found.calls == 0:
                with _put_back_after(state, start, self._stream):
                    for array in state:
                        arrays.perturb(array)
                    self._compare_changed(number, state, args, kwargs)
            last = self._found.calls == _CALLS_REPLAYED - 1
            if (self._found.calls == 0 or last) and not self._found.problems:
                with _freed_memory(), _put_back_after(state, start, self._stream):
                    self._compare(number, "memory freed and taken again", state, args, kwargs)
            try:
                if self._found.problems:
                    result = self._function(*args, **kwargs)
                else:
                    result = self._compare(number, "inputs as they were", state, args, kwargs)
            except GaptraceError:  # of the replay; what the step itself raises is the program's
                with _put_back_after(state, start, self._stream):
                    raise
            done(driver().cuStreamSynchronize(self._stream), "waiting for the step")
        self._find_dead(number)
        return result

    def _compare_changed(
        self, number: int, state: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        try:
            self._compare(number, "changed inputs", state, args, kwargs)
        except GaptraceError:
            raise
        except Exception as error:
            raise ResultError(
                f"with changed inputs it raises {type(error).__name__}: {error}; a graph would "
                "replay what it captured, whatever the inputs are"
            ) from error

    def _compare(
        self,
        number: int,
        when: str,
        state: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the call, then its replay from the same start; leave what the call left."""
        start = [arrays.copied(array) for array in state]
        result = self._function(*args, **kwargs)
        left = [*arrays.arrays_in(result), *state]
        after = [arrays.copied(array) for array in left]
        expected = [arrays.on_host(array) for array in left]
        for array in self._outputs:
            arrays.poison(array)
        _put_back(state, start)
        self._graph.launch(self._stream)
        returned = len(left) - len(state)
        if returned != len(self._outputs):
            self._found.problems.append(_other_form(number, when, returned, len(self._outputs)))
            return result
        found = [arrays.on_host(array) for array in (*self._outputs, *state)]
        _put_back(left, after)
        worst = [
            (index, largest_difference(a, b))
            for index, (a, b) in enumerate(zip(expected, found, strict=True))
            if largest_difference(a, b) > TOLERANCE * magnitude(a)
        ]
        if worst:
            parameters = self._explain(state, start, args, kwargs)
            _put_back(left, after)
            self._found.problems.append(_wrong(number, when, worst[0], parameters))
        return result

    def _explain(
        self,
        state: Sequence[Any],
        start: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[str, ...]:
        """Capture the step as it is now, and say which parameters would differ."""
        _put_back(state, start)
        with capture(lambda: self._function(*args, **kwargs), stream=self._stream) as now:
            differing = changes(self._nodes, kernel_nodes(now.handle))
        if differing is None:
            return ("the step now launches other kernels than when it was captured",)
        known = {(w.node, w.parameter, w.offset) for w in self._addresses}
        own = {arrays.address(array) for array in self._outputs}
        return tuple(
            _described(change, is_address=_place(change) in known)
            for change in differing
            # Results of a step lie elsewhere in each capture, and rightly so.
            if change.before.value not in own
        )[:_MOST_NAMED]

    def _find_dead(self, number: int) -> None:
        dead = [word for word in self._addresses if not is_live(word.value)]
        if dead:
            named = tuple(
                f"node {w.node} {w.kernel}, parameter {w.parameter}{_at(w.offset)}: {w.value:#x}"
                for w in dead[:_MOST_NAMED]
            )
            self._found.problems.append(
                Problem(
                    "dead_address", number, "after the call",
                    f"{len(dead)} addresses in the graph no longer lie in allocated memory: build "
                    "the graph again after freeing, or keep the buffers", named,
                )
            )  # fmt: skip

    def _close(self, content: dict[str, Any]) -> None:
        self.is_open = False
        self._held.close()
        self._note(content)

    def _note(self, content: dict[str, Any]) -> None:
        self._notes.verify[self._name] = content
        self._notes.write()


def _wrong(
    number: int, when: str, worst: tuple[int, float], parameters: tuple[str, ...]
) -> Problem:
    index, difference = worst
    return Problem(
        "other_result", number, when,
        f"array {index} of the results differs by up to {difference:g} from the step run per "
        "launch: what differs below was fixed when the graph was captured; copy inputs into "
        "buffers that stay, keep host values in device memory, or capture again", parameters,
    )  # fmt: skip


def _other_form(number: int, when: str, returned: int, captured: int) -> Problem:
    return Problem(
        "other_result", number, when,
        f"the step returns {returned} arrays where it returned {captured} when it was captured, "
        "which a graph would always do: capture a graph for each form of the step",
    )  # fmt: skip


def _place(change: Change) -> tuple[int, int, int]:
    return change.before.node, change.before.parameter, change.before.offset


def _described(change: Change, *, is_address: bool) -> str:
    before, after = change.before, change.after
    where = f"node {before.node} {before.kernel}, parameter {before.parameter}{_at(before.offset)}"
    if not is_address:
        return f"{where}: a value of the host, {before.value} when captured, {after.value} now"
    fate = "still allocated" if is_live(before.value) else "freed since"
    return f"{where}: the address {before.value:#x} when captured ({fate}), {after.value:#x} now"


def _at(offset: int) -> str:
    return f" at byte {offset}" if offset else ""


def _put_back(state: Sequence[Any], copies: Sequence[Any]) -> None:
    for array, copy in zip(state, copies, strict=True):
        arrays.put_back(array, copy)


@contextmanager
def _put_back_after(state: Sequence[Any], copies: Sequence[Any], stream: int) -> Iterator[None]:
    """Put arrays back after a check, however it ends, before anything else is done with them."""
    try:
        yield
    finally:
        _put_back(state, copies)
        driver().cuStreamSynchronize(stream)


@contextmanager
def _freed_memory() -> Iterator[None]:
    """Give cached memory back to the driver and take some again, filled with other bytes."""
    cuda = driver()
    doing = "taking memory that was freed"
    done(cuda.cuCtxSynchronize(), doing)
    gc.collect()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.get_default_memory_pool().free_all_blocks()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    blocks = []
    try:
        for _ in range(_JUNK_BLOCKS):
            blocks.append(done(cuda.cuMemAlloc(_JUNK_BYTES), doing))
            done(cuda.cuMemsetD8(blocks[-1], arrays.POISON, _JUNK_BYTES), doing)
        done(cuda.cuCtxSynchronize(), doing)
        yield
        done(cuda.cuCtxSynchronize(), doing)
    finally:
        for block in blocks:
            cuda.cuMemFree(block)
