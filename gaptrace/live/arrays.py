"""Device arrays of CuPy and PyTorch: found in results, copied, put back, compared."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

#: What outputs are filled with before an arm runs, so that one which computes nothing is found out:
#: not a number as a float of any width, and no likely value of an integer.
POISON = 0xFF


def arrays_in(value: Any) -> list[Any]:
    """Return the CuPy arrays and PyTorch tensors on a GPU that a value holds, in order.

    Looks into tuples, lists, dicts and their subclasses, nested. Others are left alone.
    """
    return list(_walk(value))


def _walk(value: Any) -> Iterator[Any]:
    if _is_cupy(value) or _is_torch(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _walk(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk(item)


def _is_cupy(value: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.is_cuda


def address(array: Any) -> int:
    """Return where the data of an array begins on the device."""
    return int(array.data.ptr if _is_cupy(array) else array.data_ptr())


def copied(array: Any) -> Any:
    """Return a copy on the device, made on the current stream."""
    return array.copy() if _is_cupy(array) else array.detach().clone()


def put_back(array: Any, copy: Any) -> None:
    """Write a copy into the array that it was made of, on the current stream."""
    if _is_cupy(array):
        array[...] = copy
    else:
        array.detach().copy_(copy)


def poison(array: Any) -> None:
    """Fill the bytes of an array with `POISON`, on the current stream."""
    if _is_cupy(array):
        cupy = sys.modules["cupy"]
        if array.flags.c_contiguous:
            array.reshape(-1).view(cupy.uint8).fill(POISON)
        else:
            array.fill(-1)
        return
    torch = sys.modules["torch"]
    array = array.detach()
    if array.is_contiguous():
        array.reshape(-1).view(torch.uint8).fill_(POISON)
    else:
        array.fill_(float("nan") if array.is_floating_point() else -1)


def perturb(array: Any) -> None:
    """Change the values of a floating-point array a little; leave others, which may be indices."""
    if _is_cupy(array):
        if array.dtype.kind in "fc":
            array *= 0.75
    elif array.is_floating_point() or array.is_complex():
        array.detach().mul_(0.75)


def on_host(array: Any) -> Any:
    """Return the array as NumPy's, after waiting for the current stream.

    Types that NumPy lacks (bfloat16, 8-bit floats) come as float32.
    """
    if _is_cupy(array):
        return array.get()
    torch = sys.modules["torch"]
    array = array.detach()
    known = {torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128}
    if array.is_floating_point() and array.dtype not in known:
        array = array.to(torch.float32)
    return array.cpu().numpy()


def largest_difference(one: Any, other: Any) -> float:
    """Return the largest absolute difference of two host arrays.

    0.0 when they are equal, NaN at the same place included; infinite when the shapes differ, or one
    holds NaN or infinity where the other does not.
    """
    import numpy as np

    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if one.tobytes() == other.tobytes():
        return 0.0
    if not np.issubdtype(one.dtype, np.inexact):
        wide = np.float64 if one.dtype == bool else object if one.dtype.itemsize == 8 else np.int64
        return float(np.abs(one.astype(wide) - other.astype(wide)).max())
    wide = np.complex128 if np.iscomplexobj(one) else np.float64
    a, b = one.astype(wide), other.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    same = np.where(finite, True, (a == b) | (np.isnan(a) & np.isnan(b)))
    if not same.all():
        return float("inf")
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))


def magnitude(array: Any) -> float:
    """Return the largest finite absolute value of a host array; 0.0 when it holds none."""
    import numpy as np

    values = np.abs(array.astype(np.complex128 if np.iscomplexobj(array) else np.float64))
    return float(values[np.isfinite(values)].max(initial=0.0))
