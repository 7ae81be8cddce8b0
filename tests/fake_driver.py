"""Enough of `cuda.bindings.driver` to cut and capture graphs where there is none: handles, no GPU.

Any call can be made to fail; what is left behind can be counted.
"""

from enum import Enum, IntEnum
from itertools import count

SUCCESS = 0


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904


class CUstreamCaptureStatus(Enum):
    CU_STREAM_CAPTURE_STATUS_NONE = 0
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2


class CUstreamCaptureMode(Enum):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class CUstream_flags(Enum):
    CU_STREAM_NON_BLOCKING = 1


class Graph:
    """Nodes by handle, each with the label that it keeps in copies; edges between handles."""

    def __init__(self):
        self.labels = {}
        self.edges = set()
        self.twins = {}


class FakeDriver:
    CUresult, CUstreamCaptureMode, CUstream_flags = CUresult, CUstreamCaptureMode, CUstream_flags
    CUstream = int

    def __init__(self, fail_at=None):
        self._handles = count(1000)
        self._calls = count()
        self.fail_at = fail_at
        self.graphs = {}
        self.execs = {}
        self.types = {}
        self.events = {}
        self.children = {}
        self.launched = []
        self.uploaded = []
        self.streams = {}
        self.ending = CUresult.CUDA_SUCCESS

    def _fails(self):
        return next(self._calls) == self.fail_at

    def new_graph(self, nodes=0, edges=(), types=None):
        """Return the handle of a graph whose nodes are labelled 0.. in order of creation."""
        handle, graph = next(self._handles), Graph()
        made = [next(self._handles) for _ in range(nodes)]
        graph.labels = {node: label for label, node in enumerate(made)}
        graph.edges = {(made[a], made[b]) for a, b in edges}
        self.types.update({made[label]: kind for label, kind in (types or {}).items()})
        self.graphs[handle] = graph
        return handle

    def node(self, graph, label):
        labels = self.graphs[graph].labels
        return next(node for node, found in labels.items() if found == label)

    # Reading

    def cuGraphGetNodes(self, graph, number=0):
        nodes = list(self.graphs[graph].labels)
        return (SUCCESS, nodes[:number], len(nodes))

    def cuGraphNodeGetType(self, node):
        return (SUCCESS, self.types.get(node, 0))

    def cuGraphChildGraphNodeGetGraph(self, node):
        return (SUCCESS, self.children[node])

    def cuGraphEventWaitNodeGetEvent(self, node):
        return (SUCCESS, self.events[node])

    cuGraphEventRecordNodeGetEvent = cuGraphEventWaitNodeGetEvent

    # Cutting

    def cuGraphClone(self, graph):
        if self._fails():
            return (CUresult.CUDA_ERROR_INVALID_VALUE, None)
        handle, copy, original = next(self._handles), Graph(), self.graphs[graph]
        copy.twins = {node: next(self._handles) for node in original.labels}
        copy.labels = {copy.twins[node]: label for node, label in original.labels.items()}
        copy.edges = {(copy.twins[a], copy.twins[b]) for a, b in original.edges}
        self.graphs[handle] = copy
        return (SUCCESS, handle)

    def cuGraphNodeFindInClone(self, node, graph):
        twin = self.graphs[graph].twins.get(node)
        if self._fails() or twin not in self.graphs[graph].labels:
            return (CUresult.CUDA_ERROR_INVALID_VALUE, None)
        return (SUCCESS, twin)

    def cuGraphDestroyNode(self, node):
        if self._fails():
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        (owner,) = [graph for graph in self.graphs.values() if node in graph.labels]
        del owner.labels[node]
        owner.edges = {edge for edge in owner.edges if node not in edge}
        return (SUCCESS,)

    def cuGraphInstantiate(self, graph, flags):
        if self._fails():
            return (CUresult.CUDA_ERROR_INVALID_VALUE, None)
        handle, source = next(self._handles), self.graphs[graph]
        edges = {(source.labels[a], source.labels[b]) for a, b in source.edges}
        self.execs[handle] = (set(source.labels.values()), edges)
        return (SUCCESS, handle)

    def cuGraphDestroy(self, graph):
        del self.graphs[graph]
        return (SUCCESS,)

    def cuGraphExecDestroy(self, piece):
        del self.execs[piece]
        return (SUCCESS,)

    def cuGraphLaunch(self, piece, stream):
        if self._fails():
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.launched.append((piece, stream))
        return (SUCCESS,)

    def cuGraphUpload(self, piece, stream):
        self.uploaded.append((piece, stream))
        return (SUCCESS,)

    # Capturing

    def cuStreamCreate(self, flags):
        handle = next(self._handles)
        self.streams[handle] = CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return (SUCCESS, handle)

    def cuStreamDestroy(self, stream):
        del self.streams[stream]
        return (SUCCESS,)

    def cuStreamIsCapturing(self, stream):
        return (SUCCESS, self.streams[stream])

    def cuStreamBeginCapture(self, stream, mode):
        if self._fails():
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.streams[stream] = CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
        self.captured = self.new_graph()
        return (SUCCESS,)

    def launch(self, stream):
        """Launch a kernel on a stream, which is captured if the stream is."""
        if self.streams[stream] == CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            labels = self.graphs[self.captured].labels
            labels[next(self._handles)] = len(labels)

    def invalidate(self, stream):
        self.streams[stream] = CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_INVALIDATED
        self.ending = CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED

    def cuStreamEndCapture(self, stream):
        self.streams[stream] = CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        if self.ending:
            del self.graphs[self.captured]
            return (self.ending, None)
        return (SUCCESS, self.captured)
