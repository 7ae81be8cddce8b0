"""Names of kernels as people write them, from the names that the compiler gives them."""

import ctypes
import ctypes.util
import re
from collections.abc import Iterable

_OPERATOR = re.compile(r"operator\s*(\(\)|<=>|<<|>>|<=|>=|<|>|->\*?)")


def demangled(names: Iterable[str]) -> dict[str, str]:
    """Return {name: what it stands for}; names that are not C++'s stand for themselves.

    The C++ library of the system does it; without one, names stay as they are.
    """
    library = ctypes.util.find_library("stdc++")
    try:
        demangle = ctypes.CDLL(library or "libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return {name: name for name in names}
    demangle.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free
    free.argtypes = (ctypes.c_void_p,)
    found = {}
    for name in names:
        found[name] = name
        if not name.startswith("_Z"):
            continue
        status = ctypes.c_int()
        text = demangle(name.encode(), None, None, ctypes.byref(status))
        if text:
            found[name] = ctypes.string_at(text).decode(errors="replace")
            free(text)
    return found


def short_name(name: str) -> str:
    """Return the bare name of a demangled one: no scope, template arguments or parameters."""
    plain = _OPERATOR.sub("operator", name.replace("(anonymous namespace)", "anonymous"))
    depth, bare = 0, []
    for character in plain:
        if character in "<(":
            if character == "(" and depth == 0:
                break
            depth += 1
        elif character in ">)":
            depth -= 1
        elif depth == 0:
            bare.append(character)
    words = "".join(bare).split()
    last = words[-1] if words else name
    return last.rpartition("::")[2] or name
