"""Nsight's global ids, as the operating system knows them."""

import pytest

from gaptrace.read.ids import os_process, os_thread

HOST = 3 << 56 | 1 << 48


@pytest.mark.parametrize("host", [0, HOST, HOST - 2**63, -(2**63)])
def test_numbers_of_processes_and_threads(host):
    process = host | 4711 << 24
    assert os_process(process) == 4711
    assert os_thread(process | 4712) == 4712


def test_numbers_that_are_no_global_ids_stay():
    assert (os_process(1000), os_thread(1001)) == (1000, 1001)
