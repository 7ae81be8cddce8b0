"""The shape of PyTorch's CUDAGraph: 2.11 with $TORCH_STAND_IN=old, else 2.14."""

from torch import cuda as cuda
