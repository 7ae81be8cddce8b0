"""Small CuPy kernels that the examples run by the dozen, and a stream to run them on."""

import sys

SOURCE = r"""
extern "C" __global__ void scale(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 0.999f * x[i];
}
extern "C" __global__ void add(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}
extern "C" __global__ void relu(float* x, const float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


def cupy_or_exit(example):
    """Return the module cupy; without it, or without a GPU, say so and end with status 1."""
    try:
        import cupy

        cupy.cuda.Device().synchronize()
    except ImportError:
        sys.exit(f"{example}: needs CuPy: pip install 'gaptrace[cuda13]' (or cuda12)")
    except RuntimeError as error:
        sys.exit(f"{example}: needs an NVIDIA GPU: {str(error).splitlines()[0]}")
    return cupy


class Kernels:
    """scale, add and relu in turn, on the current stream."""

    def __init__(self, cupy):
        module = cupy.RawModule(code=SOURCE)
        self._kernels = [module.get_function(name) for name in ("scale", "add", "relu")]
        self._cupy = cupy

    def run(self, x, y, count):
        """Launch `count` kernels that change x, and read y."""
        grid, block = ((x.size + 255) // 256,), (256,)
        arguments = (x, y, self._cupy.int32(x.size))
        for number in range(count):
            self._kernels[number % 3](grid, block, arguments)
