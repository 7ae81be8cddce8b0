"""The shape of CuPy 14.2 around graphs: streams take new methods, graphs take no attribute."""

from cupy import cuda as cuda
