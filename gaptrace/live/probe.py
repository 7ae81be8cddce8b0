"""Says by its exit status whether NVTX ranges are recorded: 0 yes, 1 no, 2 there is no `nvtx`.

Asked in a process of its own, since `nvtx` keeps the first answer of the recorder, and imports
NumPy, which a program may want to import later and otherwise.
"""

import sys
from importlib.util import find_spec

from gaptrace.live.ranges import recording_domain

if __name__ == "__main__":
    sys.exit(2 if find_spec("nvtx") is None else int(recording_domain() is None))
