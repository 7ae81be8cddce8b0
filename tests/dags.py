"""Graphs of kernels that write memory, built node by node, and what they must compute.

Each node has a row of words. Its kernel fills it from the rows of the nodes that it waits for, so
that a node that ran too early has read zeros and its row, and every row after it, is wrong.
"""

import ctypes

import numpy as np

WORDS = 64
MULTIPLIER, INCREMENT = 6364136223846793005, 1442695040888963407

SOURCE = rb"""
extern "C" __global__ void mix(unsigned long long *rows, int row, int spin,
                               const int *before, int count) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    long long start = clock64();
    while (clock64() - start < spin) {}
    unsigned long long word = row + 1 + threadIdx.x;
    for (int i = 0; i < count; i++)
        word = (word ^ rows[before[i] * 64ull + threadIdx.x]) * 6364136223846793005ull
               + 1442695040888963407ull;
    rows[row * 64ull + threadIdx.x] = word;
}
"""


def expected(nodes, edges):
    """Return what the rows hold after the graph has run once; edges point forward."""
    rows = np.zeros((nodes, WORDS), np.uint64)
    for row in range(nodes):
        word = np.arange(WORDS, dtype=np.uint64) + np.uint64(row + 1)
        for before in sorted(a for a, b in edges if b == row):
            word = (word ^ rows[before]) * np.uint64(MULTIPLIER) + np.uint64(INCREMENT)
        rows[row] = word
    return rows


def said(result):
    """Return the values of a call of cuda-bindings; fail with its status otherwise."""
    status, *values = result
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else tuple(values)


class Device:
    """The primary context of the first GPU, the kernel, and one block of memory."""

    def __init__(self, rows=512, most_edges=4096):
        from cuda.bindings import driver as api

        self.api = api
        said(api.cuInit(0))
        self.number = said(api.cuDeviceGet(0))
        self.context = said(api.cuDevicePrimaryCtxRetain(self.number))
        said(api.cuCtxSetCurrent(self.context))
        self.module = said(api.cuModuleLoadData(self._compiled()))
        self.mix = said(api.cuModuleGetFunction(self.module, b"mix"))
        self.rows = int(said(api.cuMemAlloc(rows * WORDS * 8)))
        self.before = int(said(api.cuMemAlloc(most_edges * 4)))
        self.size = rows * WORDS * 8
        self.stream = said(api.cuStreamCreate(api.CUstream_flags.CU_STREAM_NON_BLOCKING.value))

    def _compiled(self):
        from cuda.bindings import nvrtc

        kinds = self.api.CUdevice_attribute
        major = said(
            self.api.cuDeviceGetAttribute(
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.number
            )
        )
        minor = said(
            self.api.cuDeviceGetAttribute(
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self.number
            )
        )
        program = said(nvrtc.nvrtcCreateProgram(SOURCE, b"mix.cu", 0, [], []))
        options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if int(status):
            log = b" " * said(nvrtc.nvrtcGetProgramLogSize(program))
            said(nvrtc.nvrtcGetProgramLog(program, log))
            raise AssertionError(log.decode())
        code = b" " * said(nvrtc.nvrtcGetCUBINSize(program))
        said(nvrtc.nvrtcGetCUBIN(program, code))
        return code

    def clear(self):
        said(self.api.cuMemsetD8Async(self.rows, 0, self.size, self.stream))

    def read(self, nodes):
        """Wait for the stream and return the rows."""
        rows = np.empty((nodes, WORDS), np.uint64)
        said(self.api.cuStreamSynchronize(self.stream))
        said(self.api.cuMemcpyDtoH(rows.ctypes.data, self.rows, rows.nbytes))
        return rows

    def new_graph(self):
        return said(self.api.cuGraphCreate(0))

    def add_kernel(self, graph, row, first=0, count=0, spin=0):
        """Add a node that fills a row from those that the table names from `first` on."""
        node = self.api.CUDA_KERNEL_NODE_PARAMS()
        node.func = self.mix
        node.gridDimX = node.gridDimY = node.gridDimZ = 1
        node.blockDimX, node.blockDimY, node.blockDimZ = WORDS, 1, 1
        values = (self.rows, row, spin, self.before + 4 * first, count)
        kinds = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
        node.kernelParams = (values, kinds)
        return said(self.api.cuGraphAddKernelNode(graph, None, 0, node))

    def connect(self, graph, pairs, programmatic=False):
        """Add edges between nodes."""
        data = None
        if programmatic:
            kind = self.api.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
            data = [self.api.CUgraphEdgeData() for _ in pairs]
            for edge in data:
                edge.from_port, edge.type = 1, kind
        begin, end = [a for a, _ in pairs], [b for _, b in pairs]
        said(self.api.cuGraphAddDependencies(graph, begin, end, data, len(pairs)))

    def dag(self, nodes, edges, order=None, spins=None, programmatic=()):
        """Return a graph whose node fills row i from the rows before it, created in any order."""
        table, firsts = [], []
        for row in range(nodes):
            firsts.append(len(table))
            table += sorted(a for a, b in edges if b == row)
        firsts.append(len(table))
        if table:
            words = np.array(table, np.int32)
            said(self.api.cuStreamSynchronize(self.stream))
            said(self.api.cuMemcpyHtoD(self.before, words.ctypes.data, words.nbytes))
        graph = self.new_graph()
        made = {}
        for row in order or range(nodes):
            count = firsts[row + 1] - firsts[row]
            spin = spins[row] if spins else 0
            made[row] = self.add_kernel(graph, row, firsts[row], count, spin)
        for kind in (False, True):
            pairs = [(made[a], made[b]) for a, b in edges if ((a, b) in programmatic) == kind]
            if pairs:
                self.connect(graph, pairs, kind)
        return graph
