"""What gaptrace says of real programs, and what is measured of them, on a GPU.

    gaptrace calibrate && python benchmarks/real_programs.py --out results.jsonl

Programs whose step can be captured are timed in every way by `gaptrace profile --arms`, in a
process without a recorder; the same arms recorded in both granularities, and the program as it is
(launched kernel by kernel), each with the calibration of the machine, give predictions. Programs
that make their graphs themselves (torch.compile, JAX) are timed with and without them.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

from gaptrace.timings import measurement_of

PROGRAMS = Path(__file__).parent / "programs"
CHUNKS = (16, 64, 256)
#: name -> script and arguments; chunks of these sizes are among `Recommendation.by_size`.
STEPS = {
    "CuPy, 600 in a line": ("cupy_chain.py",),
    "CuPy, 600 of 3 us": ("cupy_chain.py", "--rounds", "500"),
    "PyTorch decoder, tiny": ("torch_decoder.py", "--size", "tiny"),
    "PyTorch decoder, small": ("torch_decoder.py", "--size", "small"),
    "PyTorch decoder, small, branches": ("torch_decoder.py", "--size", "small", "--branches"),
    "PyTorch decoder, medium": ("torch_decoder.py", "--size", "medium"),
    "PyTorch decoder, large": ("torch_decoder.py", "--size", "large"),
}
#: name -> without graphs, with the program's own.
PAIRS = {
    "torch.compile, small": (
        ("torch_decoder.py", "--size", "small", "--compile", "default"),
        ("torch_decoder.py", "--size", "small", "--compile", "reduce-overhead"),
    ),
    "JAX decoder": (
        ("jax_decoder.py", "--command-buffers", "off"),
        ("jax_decoder.py", "--command-buffers", "default"),
    ),
}
RUNS = 3


def profile(folder, program, *options):
    """Profile a program into a folder."""
    script, *arguments = program
    command = [sys.executable, "-m", "gaptrace", "profile", "-o", str(folder), *options]
    done = subprocess.run(
        [*command, str(PROGRAMS / script), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{folder.name}: {done.stderr[-2000:]}")


def advice(folder):
    return json.loads((folder / "analysis.json").read_text())["recommendation"]


def predictions(found):
    """Predicted ns of each arm that was timed."""
    by_size = {f"chunk:{each['chunk']}": each["step_ns"] for each in found["by_size"]}
    arms = {"per_launch": "per_launch", "one_graph": f"graph:{found['nodes']}"}
    predicted = found["predicted_ns"]
    return by_size | {arm: predicted[name] for name, arm in arms.items() if name in predicted}


def of_step(name, program, folder):
    """Time, record and predict one program; one record."""
    chunks = ",".join(map(str, CHUNKS))
    options = ("--arms", "per_launch,graph,chunks", "--chunks", chunks, "--granularity", "both")
    profile(folder / "arms", program, *options)
    profile(folder / "plain", program)
    (measured,) = json.loads((folder / "arms" / "arms.json").read_text()).values()
    measured = measurement_of(measured)
    record = {"program": name, "nodes": measured.nodes, "verdict": {}, "predicted_ns": {}}
    record["measured_ns"] = {each.arm.name: each.step_ns for each in measured.timings}
    record["error_ns"] = {each.arm.name: each.error_ns for each in measured.timings}
    for granularity in ("graph", "node"):
        found = advice(folder / "arms" / granularity)
        record["verdict"][granularity] = found["verdict"]
        record["predicted_ns"][granularity] = predictions(found)
    found = advice(folder / "plain")
    steps = [each for each in found["ungraphed"] if each["unit"].endswith(("token", "chain"))]
    if steps:
        record["verdict"]["plain"] = steps[0]["verdict"]
        record["predicted_ns"]["plain"] = {
            "per_launch": steps[0]["per_launch_ns"],
            f"graph:{measured.nodes}": steps[0]["one_graph_ns"],
        }
    return record


def of_pair(name, programs, folder):
    """Time both, record both, predict from that without graphs; one record."""
    record = {"program": name, "measured_ns": {}, "verdict": {}, "predicted_ns": {}}
    for label, program in zip(("without", "with"), programs, strict=True):
        record["measured_ns"][label] = [timed(program) for _ in range(RUNS)]
        profile(folder / label, program)
        found = advice(folder / label)
        steps = [each for each in found["ungraphed"] if each["unit"].endswith("token")]
        record["verdict"][label] = [found["verdict"], found["cause"], found["nodes"]]
        record["predicted_ns"][label] = found["predicted_ns"] | {
            f"ungraphed_{key}": steps[0][key]
            for key in ("kernels", "verdict", "cause", "per_launch_ns", "one_graph_ns")
            if steps
        }
    return record


def timed(program):
    """Median step in ns that a program prints, without a recorder."""
    script, *arguments = program
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / script), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return 1e3 * float(re.search(r"median step ([\d.]+) us", done.stdout)[1])


def line_of(record):
    """One program: each arm as measured, and by how much each prediction is off."""
    measured, errors = record["measured_ns"], []
    text = [f"{record['program']} ({record.get('nodes')} nodes): {record['verdict']}"]
    for source, predicted in record["predicted_ns"].items():
        if not isinstance(measured.get("per_launch"), float):
            text.append(f"  {source}: measured {measured[source]}, said {predicted}")
            continue
        off = {arm: predicted[arm] / ns - 1 for arm, ns in measured.items() if arm in predicted}
        errors = [abs(each) for each in off.values()]
        text.append(
            f"  {source:>6}: "
            + ", ".join(
                f"{arm} {measured[arm] / 1e3:.0f} us {each:+.1%}" for arm, each in off.items()
            )
            + (f"; median {statistics.median(errors):.1%}" if errors else "")
        )
    return "\n".join(text)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="append each program as a line of JSON")
    parser.add_argument("--folder", type=Path, default=Path("gaptrace-runs"), help="for recordings")
    parser.add_argument("--only", default="", help="programs whose name holds this")
    options = parser.parse_args(argv)
    kinds = ((STEPS, of_step), (PAIRS, of_pair))
    for number, (name, program, of_kind) in enumerate(
        (name, program, of_kind)
        for programs, of_kind in kinds
        for name, program in programs.items()
    ):
        if options.only not in name:
            continue
        record = of_kind(name, program, options.folder / f"program{number}")
        print(line_of(record), flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
