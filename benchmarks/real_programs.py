"""What gaptrace says of real programs, and what is measured of them, on a GPU.

    gaptrace calibrate && python benchmarks/real_programs.py --out results.jsonl

Programs whose step can be captured are timed in every way by `gaptrace profile --arms`, in a
process without a recorder; the same arms recorded in both granularities, and the program as it is
(launched kernel by kernel), each with the calibration of the machine, give predictions. The demo
times its arms itself. Programs that make their graphs themselves (torch.compile, JAX) are timed
with and without them. On a host that is shared others slow some CPUs down twofold: programs that
time themselves count only steps at the pace of the calibration, for which predictions are made, and
other processes run on the CPUs that are quietest when they begin.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

from quiet_cpus import quiet_cpus

from gaptrace.analysis import analyze
from gaptrace.calibration_choice import choose_calibration
from gaptrace.cost import makespan
from gaptrace.read import read
from gaptrace.timings import measurement_of

PROGRAMS = Path(__file__).parent / "programs"
CHUNKS = (16, 64, 256)
#: name -> script and arguments; chunks of these sizes are among `Recommendation.by_size`.
STEPS = {
    "CuPy, 600 in a line": ("cupy_chain.py",),
    "PyTorch decoder, tiny": ("torch_decoder.py", "--size", "tiny"),
    "PyTorch decoder, small": ("torch_decoder.py", "--size", "small"),
    "PyTorch decoder, small, branches": ("torch_decoder.py", "--size", "small", "--branches"),
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
#: Times its arms itself, and prints them.
DEMO = {"the demo": ("../../examples/demo.py", "--steps", "50", "--chunks", "25", "10")}

#: Processes that run a step kernel by kernel without a recorder, at the pace of the calibration.
PROCESSES = 3


def profile(folder, program, *options):
    """Profile a program into a folder."""
    script, *arguments = program
    command = [sys.executable, "-m", "gaptrace", "profile", "-o", str(folder), *options]
    command += [str(PROGRAMS / script), *arguments]
    with quiet_cpus():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{folder}: {done.stderr[-2000:]}")


def advice(export):
    """What gaptrace says of a recording, with the calibration of this machine."""
    trace = read(export)
    calibration, _ = choose_calibration(trace, None)
    return analyze(trace, calibration=calibration).recommendation


def of_step(name, program, folder, runs):
    """Time, record and predict one program; one record."""
    options = ("--arms", "per_launch,graph,chunks", "--chunks", ",".join(map(str, CHUNKS)))
    record = {"program": name, "nodes": None, "measured_ns": {}, "said": []}
    for run in range(runs):
        here = folder / f"arms{run}"
        profile(here, program, *options, "--granularity", "both" if run == 0 else "graph")
        (found,) = json.loads((here / "arms.json").read_text()).values()
        measured = measurement_of(found)
        record["nodes"] = measured.nodes
        for each in measured.timings:
            record["measured_ns"].setdefault(each.arm.name, []).append(each.step_ns)
        arms = [each.arm for each in measured.timings]
        graphs = {arm.name: arm.schedule for arm in arms if arm.schedule}
        for export in sorted(here.rglob("*.sqlite")):
            record["said"].append(said_of_graphs(export, graphs))
    profile(folder / "plain", program)
    record["said"].append(said_of_launches(folder / "plain" / "graph.sqlite"))
    loop_ns = calibrated_loop_ns(folder / "plain" / "graph.sqlite")
    record["measured_ns"]["per_launch"] += [timed(program, loop_ns) for _ in range(PROCESSES)]
    return record


def of_demo(name, program, folder, runs):
    """Time and record the demo, and predict its arms; one record."""
    record = {"program": name, "nodes": None, "measured_ns": {}, "said": []}
    for _ in range(max(runs, PROCESSES)):
        with quiet_cpus():
            text = output(program)
        for arm, us in re.findall(r"^(\S+:?\d*) +[-\d]+ +([\d.]+) +[\d.]+$", text, re.M):
            record["measured_ns"].setdefault(arm, []).append(1e3 * float(us))
    sizes = {arm: int(arm.split(":")[1]) for arm in record["measured_ns"] if ":" in arm}
    record["nodes"] = nodes = max(sizes.values())
    graphs = {
        arm: tuple(min(size, nodes - begin) for begin in range(0, nodes, size))
        for arm, size in sizes.items()
    }
    profile(folder, program, "--granularity", "both")
    record["said"] = [said_of_graphs(export, graphs) for export in sorted(folder.rglob("*.sqlite"))]
    return record


def said_of_graphs(export, graphs):
    """What gaptrace says of a recording, and predicts for schedules by the names of their arms."""
    found = advice(export)
    predicted = {}
    if found.schedules is not None:
        model, added_ns = found.schedules.model, found.schedules.added_ns
        predicted = {arm: makespan(model, sizes) + added_ns for arm, sizes in graphs.items()}
        predicted["per_launch"] = found.predicted_ns["per_launch"]
    return {
        "from": f"arms, {export.stem}",
        "verdict": found.verdict,
        "cause": found.cause,
        "predicted_ns": predicted,
    }


def said_of_launches(export):
    found = advice(export)
    said = {"from": "as it is", "verdict": found.verdict, "cause": found.cause, "predicted_ns": {}}
    for each in found.ungraphed:
        if each.unit.rsplit("/", 1)[-1] in ("token", "chain"):
            arms = {"per_launch": each.per_launch_ns, f"graph:{each.kernels}": each.one_graph_ns}
            return said | {"verdict": each.verdict, "cause": each.cause, "predicted_ns": arms}
    return said


def of_pair(name, programs, folder, runs):
    """Time both, record both, predict from that without graphs; one record."""
    record = {"program": name, "nodes": None, "measured_ns": {}, "said": []}
    for label, program in zip(("per_launch", "own graphs"), programs, strict=True):
        profile(folder / label.replace(" ", "_"), program)
        export = folder / label.replace(" ", "_") / "graph.sqlite"
        loop_ns = calibrated_loop_ns(export)
        record["measured_ns"][label] = [timed(program, loop_ns) for _ in range(runs)]
        record["said"].append(said_of_launches(export) | {"from": label})
    return record


def calibrated_loop_ns(export):
    """How long a short loop took when this machine was calibrated."""
    calibration, _ = choose_calibration(read(export), None)
    return calibration.figure("host_loop_ns").value


def timed(program, loop_ns):
    """Median step in ns that a program prints, without a recorder."""
    text = output((*program, "--full-pace", f"{loop_ns:.0f}"))
    return 1e3 * float(re.search(r"median step ([\d.]+) us", text)[1])


def output(program):
    script, *arguments = program
    command = [sys.executable, str(PROGRAMS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script}: {done.stderr[-2000:]}")
    return done.stdout


def lines_of(record):
    """One program: what was measured, then what was said and by how much it was off."""
    measured = record["measured_ns"]
    shown = (
        f"{arm} {' '.join(f'{ns / 1e3:.0f}' for ns in runs)} us" for arm, runs in measured.items()
    )
    yield f"{record['program']}, {record['nodes']} nodes: {', '.join(shown)}"
    for said in record["said"]:
        predicted = said["predicted_ns"]
        off = [
            f"{arm} {predicted[arm] / statistics.median(runs) - 1:+.1%}"
            for arm, runs in measured.items()
            if arm in predicted
        ]
        rest = [
            f"{arm} {ns / 1e3:.0f} us"
            for arm, ns in predicted.items()
            if arm not in measured and not arm.startswith("chunk")
        ]
        yield f"  {said['from']}: {said['verdict']} {said['cause'] or ''}: " + ", ".join(off + rest)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="append each program as a line of JSON")
    parser.add_argument("--folder", type=Path, default=Path("gaptrace-runs"), help="for recordings")
    parser.add_argument("--only", default="", help="programs whose name holds this")
    parser.add_argument("--runs", type=int, default=2, help="processes without a recorder")
    options = parser.parse_args(argv)
    every = [(name, program, of_step) for name, program in STEPS.items()]
    every += [(name, program, of_demo) for name, program in DEMO.items()]
    every += [(name, program, of_pair) for name, program in PAIRS.items()]
    for number, (name, program, of_kind) in enumerate(every):
        if options.only not in name:
            continue
        record = of_kind(name, program, options.folder / f"program{number}", options.runs)
        print(*lines_of(record), sep="\n", flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
