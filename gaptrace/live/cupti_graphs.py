"""When graphs and graph execs are made, as CUPTI tells it: not their nodes.

A call into Python for each node would make a capture several times as long as it is.
"""

import ctypes
import json
import threading
from collections.abc import Callable
from typing import Any

from gaptrace.spool import frame

_RESOURCE = 3  # CUPTI_CB_DOMAIN_RESOURCE
#: void (void *userdata, CUpti_CallbackDomain, CUpti_CallbackId, const void *cbdata)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
_EVENTS = {"GRAPH_CREATED": "graph", "GRAPH_CLONED": "graph", "GRAPHEXEC_CREATED": "exec"}


class _Resource(ctypes.Structure):
    """The part of CUpti_ResourceData that is used."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("handle", ctypes.c_void_p),
        ("descriptor", ctypes.c_void_p),
    )


class _Graph(ctypes.Structure):
    """CUpti_GraphData."""

    _fields_ = (
        ("graph", ctypes.c_void_p),
        ("original_graph", ctypes.c_void_p),
        ("node", ctypes.c_void_p),
        ("original_node", ctypes.c_void_p),
        ("node_type", ctypes.c_int),
        ("dependency", ctypes.c_void_p),
        ("graph_exec", ctypes.c_void_p),
    )


class GraphEvents:
    """A subscription; `problem` says why there is none: CUPTI has a single subscriber."""

    def __init__(self, library: Any, cupti: Any, write: Callable[[bytes], None]) -> None:
        self._library = library
        self._write = write
        self._now = cupti.get_timestamp
        self._callback = _CALLBACK(self._made)
        self._subscriber = ctypes.c_void_p()
        self._names = {int(cupti.CallbackIdResource[name]): what for name, what in _EVENTS.items()}
        self.problem: str | None = None
        status = library.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None)
        if status != 0:
            self._subscriber = ctypes.c_void_p()
            self.problem = f"cuptiSubscribe failed with {status}"
            return
        for number in self._names:
            status = library.cuptiEnableCallback(1, self._subscriber, _RESOURCE, number)
            if status != 0:
                self.problem = f"cuptiEnableCallback failed with {status}"

    def stop(self) -> None:
        """End the subscription."""
        if self._subscriber:
            self._library.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()

    def _made(self, user: int | None, domain: int, number: int, data: int) -> None:
        event = self._names.get(number)
        if domain != _RESOURCE or event is None:
            return
        descriptor = ctypes.cast(data, ctypes.POINTER(_Resource)).contents.descriptor
        if not descriptor:
            return
        made = ctypes.cast(descriptor, ctypes.POINTER(_Graph)).contents
        graph = self._id(self._library.cuptiGetGraphId, made.graph)
        if event == "exec":
            other = self._id(self._library.cuptiGetGraphExecId, made.graph_exec)
        else:
            other = self._id(self._library.cuptiGetGraphId, made.original_graph)
        row = [self._now(), threading.get_native_id(), event, graph, other]
        self._write(frame(b"G", json.dumps(row).encode()))

    @staticmethod
    def _id(ask: Any, handle: int | None) -> int | None:
        if not handle:
            return None
        number = ctypes.c_uint32()
        return number.value if ask(handle, ctypes.byref(number)) == 0 else None
