"""A calibration of one H200 against untraced chunk sweeps that another session ran on an H200."""

import numpy as np
import pytest
from chunk_steps import last
from test_calibrated import H200
from test_chunk_sweep import measured

from gaptrace.cost import ChunkModel, makespan
from gaptrace.machine_costs import at_nodes, cut_gap, host_costs

#: Rows of the sweep, as `test_chunk_sweep.measured` returns them.
STEP = {"replay": 0, "update": 2, "instantiate": 3}
CALLS = {"capture_ns": 4, "exec_update_ns": 5, "instantiate_ns": 6}
TYPICAL = 512


def predicted(cycles, regime):
    """Relative errors by chunk size.

    The device's times are the program's own, from its sweep in regime replay. So is what its calls
    of building take at one size, as a trace would tell; the rest is the calibration's.
    """
    chunk, columns, step = measured(cycles)
    row = chunk.tolist().index(TYPICAL)
    factors = {
        name: columns[column][row] / at_nodes(H200.table(name), TYPICAL)
        for name, column in CALLS.items()
    }
    host, ready = host_costs(H200, regime, "value", factors)
    model = ChunkModel(host, 2000, step["node_ns"], cut_gap_ns=cut_gap(H200, "value"), ready=ready)
    time = columns[STEP[regime]]
    run = time > 0
    found = [makespan(model, last(2000, int(size))) for size in chunk[run]]
    return np.abs(np.array(found) / time[run] - 1)


#: Regime, clocks of a node (0.55, 2.5 and 8.6 us) -> the median error and the largest, over the
#: chunk sizes, rounded up. Where the device is the slower side 0.2 to 2 % in the middle; where
#: building is, host figures of two sessions are compared, which differ by tens of percent: chunks
#: of 8 in regime update are the worst.
ERRORS = {
    ("replay", 0): (0.006, 0.01),
    ("replay", 4000): (0.003, 0.005),
    ("replay", 16000): (0.003, 0.004),
    ("update", 0): (0.09, 0.86),
    ("update", 4000): (0.016, 0.033),
    ("update", 16000): (0.011, 0.075),
    ("instantiate", 0): (0.065, 0.21),
    ("instantiate", 4000): (0.085, 0.32),
    ("instantiate", 16000): (0.011, 0.062),
}


@pytest.mark.parametrize(("regime", "cycles"), ERRORS)
def test_steps_of_another_session_are_predicted(regime, cycles):
    error = predicted(cycles, regime)
    typical, worst = ERRORS[regime, cycles]

    assert np.median(error) <= typical
    assert error.max() <= worst
