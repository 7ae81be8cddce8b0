"""Recordings of real programs: the bundled samples, and those of the folder in GAPTRACE_TRACES."""

import os
from pathlib import Path

import pytest

SAMPLES = sorted((Path(__file__).parent.parent / "sample_traces").glob("*.sqlite"))
FOLDER = os.environ.get("GAPTRACE_TRACES")
REAL = sorted([*SAMPLES, *(Path(FOLDER).rglob("*.sqlite") if FOLDER else ())])

needs_folder = pytest.mark.skipif(not FOLDER, reason="GAPTRACE_TRACES names no folder of traces")
