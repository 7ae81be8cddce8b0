import itertools


class Graph:
    __slots__ = ("graphExec",)

    def launch(self, stream=None):
        return ("launched on", stream)

    def upload(self, stream=None):
        return ("uploaded to", stream)


class _BaseStream:
    _pointers = itertools.count(1000)

    def __init__(self):
        self.ptr = next(self._pointers)

    def begin_capture(self, mode=None):
        if mode == "wrong":
            raise ValueError("no such mode")

    def end_capture(self):
        graph = Graph()
        graph.graphExec = self.ptr
        return graph


class Stream(_BaseStream):
    pass
