"""What gaptrace uses of nvtx 0.2.13 and newer, writing down what a recorder would see.

The calls go to `Domain.calls`, and as lines to the file that $NVTX_LOG names; marks, which come at
any time, to `Domain.marks`. With NVTX_STAND_IN set to `dummy` no recorder is there, with `disabled`
$NVTX_DISABLE is set, and with `old` it is nvtx 0.2.11, whose domains cannot push.
"""

import functools
import itertools
import os
from pathlib import Path


class Attributes:
    def __init__(self, message, payload):
        self.text = message if payload is None else f"{message} {payload}"


class Domain:
    def __init__(self, name):
        self.name = name
        self.handle = object()
        self.calls = []
        self.marks = []
        self._open = {}
        self._ids = itertools.count(1)

    def _note(self, call):
        self.calls.append(call)
        if "NVTX_LOG" in os.environ:
            with Path(os.environ["NVTX_LOG"]).open("a") as log:
                log.write(call + "\n")

    def get_event_attributes(self, message=None, color=None, category=None, payload=None):
        return Attributes(message, payload)

    def mark(self, attributes):
        self.marks.append(attributes.text)

    def push_range(self, attributes):
        self._note(f"push {attributes.text}")

    def pop_range(self):
        self._note("pop")

    def start_range(self, attributes):
        self._note(f"start {attributes.text}")
        number = next(self._ids)
        self._open[number] = attributes.text
        return number

    def end_range(self, number):
        self._note(f"end {self._open.pop(number)}")


class DummyDomain:
    def push_range(self, attributes):
        raise AssertionError("a domain that records nothing was used")


class OldDomain:
    handle = object()


def enabled():
    return os.environ.get("NVTX_STAND_IN") != "disabled"


@functools.cache
def get_domain(name):
    kinds = {"dummy": DummyDomain, "old": OldDomain}
    kind = kinds.get(os.environ.get("NVTX_STAND_IN", ""))
    return kind() if kind else Domain(name)
