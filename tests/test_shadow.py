"""Replays beside a program, with NumPy arrays on a device that runs everything at once.

The graph of a step is stood in for by the function that was captured, called with the arguments of
its capture: what a graph is, too. On a GPU: tests/test_measure_gpu.py.
"""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from gaptrace.errors import GpuError
from gaptrace.live import arrays, plans, shadow
from gaptrace.live.notes import RunNotes


class Graph:
    """A function with what it was captured with; its outputs lie where the capture put them."""

    def __init__(self, function):
        self.handle, self.nodes, self._function = 1, 3, function
        result = function()
        # A capture does not run anything, and its results come from memory of its own.
        self.outputs = result if id(result) in OWN else result.copy()

    def launch(self, stream):
        result = self._function()
        if id(self.outputs) not in OWN:
            self.outputs[...] = result

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


OWN = set()


def own(array):
    OWN.add(id(array))
    return array


@pytest.fixture
def device(monkeypatch):
    OWN.clear()
    snapshots = []

    def capture(function, stream):
        kept = [(array, array.copy()) for array in snapshots]
        graph = Graph(function)
        for array, before in kept:
            array[...] = before
        return graph

    answer = SimpleNamespace(
        cuCtxSynchronize=lambda: (0,),
        cuStreamSynchronize=lambda stream: (0,),
        cuStreamCreate=lambda flags: (0, 7),
        cuStreamDestroy=lambda stream: (0,),
        CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=1),
    )

    def arrays_in(value):
        if isinstance(value, np.ndarray):
            return [value]
        if isinstance(value, dict):
            value = list(value.values())
        return (
            [a for each in value for a in arrays_in(each)]
            if isinstance(value, (list, tuple))
            else []
        )

    on_host = SimpleNamespace(
        POISON=arrays.POISON,
        arrays_in=arrays_in,
        address=lambda array: array.ctypes.data,
        copied=lambda array: array.copy(),
        put_back=lambda array, copy: np.copyto(array, copy),
        poison=lambda array: array.fill(np.nan),
        perturb=lambda array: np.multiply(array, 0.75, out=array),
        on_host=lambda array: array.copy(),
    )

    @contextmanager
    def freed():
        yield

    for name, stand_in in {
        "capture": capture,
        "split": lambda graph: graph,
        "driver": lambda: answer,
        "arrays": on_host,
        "kernel_nodes": lambda graph: [object()],
        "addresses": lambda nodes: [],
        "changes": lambda before, after: [],
        "current_stream": lambda stream: nullcontext(),
        "_freed_memory": freed,
    }.items():
        monkeypatch.setattr(shadow, name, stand_in)
    return snapshots


@pytest.fixture
def notes(monkeypatch):
    made = RunNotes(None, [])
    monkeypatch.setattr(plans, "_plan", None)
    plans.plan_steps(made, arms=None, replays="1")
    return made


def test_a_step_that_would_compute_the_same(device, notes):
    x = np.zeros(4)
    device.append(x)

    def step(x):
        x += 1
        return own(x)

    watched = plans.planned(step, "token")
    for _ in range(10):
        watched(x)
    # The program's own results are those of a run that nobody watches.
    assert x.tolist() == [10.0] * 4
    assert notes.verify["token"] == {"nodes": 3, "calls": 7, "problems": []}


def test_results_that_the_program_keeps_where_they_are_are_state(device, notes):
    total = own(np.zeros(4))
    device.append(total)

    def step(x):
        np.add(total, x, out=total)
        return total

    watched = plans.planned(step, "token")
    for _ in range(10):
        watched(np.ones(4))
    assert total.tolist() == [10.0] * 4
    assert [p.get("kind") for p in notes.verify["token"]["problems"]] == []


def test_inputs_that_move_are_a_problem_at_the_call_where_they_do(device, notes):
    watched = plans.planned(lambda x: x * 2, "token")
    x = np.ones(4)
    for number in range(10):
        watched(x if number < 6 else np.full(4, 5.0))
    (problem,) = notes.verify["token"]["problems"]
    assert (problem["kind"], problem["call"]) == ("other_result", 6)
    assert problem["when"] == "inputs as they were"
    assert "differs by up to 8" in problem["message"]


def test_a_step_that_returns_another_number_of_arrays_is_a_problem_and_the_program_goes_on(
    device, notes
):
    x, calls = np.zeros(4), []
    device.append(x)

    def step(x):
        calls.append(1)
        x += 1
        return own(x) if len(calls) < 11 else [x, x * 2]

    watched = plans.planned(step, "token")
    results = [watched(x) for _ in range(10)]
    assert x.tolist() == [10.0] * 4
    assert len(results[-1]) == 2
    (problem,) = notes.verify["token"]["problems"]
    assert problem["kind"] == "other_result"
    assert "returns 2 arrays where it returned 1 when it was captured" in problem["message"]


def test_two_steps_of_one_name_are_told_apart(device, notes):
    prefill = plans.planned(lambda x: x * 2, "step")
    decode = plans.planned(lambda x: x * 2, "step")
    x = np.ones(4)
    for number in range(10):
        prefill(x if number < 6 else np.full(4, 5.0))
    for _ in range(10):
        decode(x)
    assert {name: len(found["problems"]) for name, found in notes.verify.items()} == {
        "step": 1,
        "step (2)": 0,
    }


def test_a_step_that_refuses_changed_inputs_is_told_of_and_the_program_goes_on(device, notes):
    p = np.full(4, 1.0)
    device.append(p)

    def step(x):
        if abs(x.sum() - 4) > 1e-6:
            raise RuntimeError("probabilities do not sum to 4")
        return x * 2

    watched = plans.planned(step, "token")
    assert [watched(p).tolist() for _ in range(6)] == [[2.0] * 4] * 6
    assert p.tolist() == [1.0] * 4
    assert notes.verify["token"]["error"].startswith(
        "step token: with changed inputs it raises RuntimeError: probabilities do not sum to 4; "
    )


@pytest.mark.parametrize("sound", [0, 1, 2, 3])
def test_a_replay_that_fails_leaves_the_program_its_own_results(device, notes, monkeypatch, sound):
    x = np.full(4, 8.0)
    device.append(x)

    def step(x):
        x += 1
        return own(x)

    launch, launched = Graph.launch, []

    def fail(graph, stream):
        launched.append(graph)
        if len(launched) > sound:
            raise GpuError("launching: CUDA_ERROR_LAUNCH_FAILED")
        launch(graph, stream)

    monkeypatch.setattr(Graph, "launch", fail)
    watched = plans.planned(step, "token")
    for _ in range(6):
        watched(x)
    assert x.tolist() == [14.0] * 4
    assert notes.verify["token"] == {"error": "step token: launching: CUDA_ERROR_LAUNCH_FAILED"}


@pytest.mark.parametrize("sound", [0, 1, 2, 3])
def test_a_check_that_fails_between_call_and_replay_does_not_count_the_call_twice(
    device, notes, monkeypatch, sound
):
    x = np.full(4, 8.0)
    device.append(x)

    def step(x):
        x += 1
        return own(x)

    poisoned = []

    def fail(array):
        poisoned.append(array)
        if len(poisoned) > sound:
            raise GpuError("copying: out of memory")

    monkeypatch.setattr(shadow.arrays, "poison", fail)
    watched = plans.planned(step, "token")
    for _ in range(6):
        watched(x)
    assert x.tolist() == [14.0] * 4


def test_what_the_step_itself_raises_is_the_programs(device, notes):
    device.append(np.zeros(1))
    calls = []

    def step(x):
        calls.append(x)
        if len(calls) > 8:
            raise KeyError("the program's own")
        return x * 2

    watched = plans.planned(step, "token")
    x = np.ones(4)
    with pytest.raises(KeyError, match="the program's own"):
        for _ in range(20):
            watched(x)
    assert x.tolist() == [1.0] * 4
