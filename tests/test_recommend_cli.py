"""gaptrace recommend with a calibration: which one is used, and what is printed."""

import json
import shutil
from pathlib import Path

import pytest

from gaptrace.cli import main
from gaptrace.recommendation import Recommendation
from gaptrace.record.calibration_json import to_object
from gaptrace.record.calibrations import load
from gaptrace.render.app_nodes import app_sizes

SAMPLES = Path(__file__).parent.parent / "sample_traces"
DEMO = str(SAMPLES / "demo_graph.sqlite")
SAVED = SAMPLES / "h200_calibration.json"


def printed(capsys, *arguments):
    assert main(list(arguments)) == 0
    return " ".join(capsys.readouterr().out.split())


def changed(path, **machine):
    content = to_object(load(SAVED))
    content["machine"] |= machine
    path.write_text(json.dumps(content))
    return str(path)


def test_a_named_calibration_gives_a_verdict_and_what_each_way_costs(capsys):
    text = printed(capsys, "recommend", DEMO, "--calibration", str(SAVED))

    assert "Keep one graph of 75 CUDA nodes: without a recorder" in text
    assert "verdict one_graph, regime replay" in text
    assert "one graph of 75 CUDA nodes (as recorded) 1 78.5 us -" in text
    assert "the step is graph:75/step " in text
    assert "host cost that grows with nodes, of one graph" in text
    # It is known from its graph what the same step takes as one.
    assert "kernels one by one" not in text
    assert "calibration of NVIDIA H200, driver 580.159.04, CUDA 13.0" in text
    assert "needs_calibration" in printed(capsys, "recommend", DEMO)


def test_what_a_step_gains_is_within_the_cap_of_all_steps(capsys):
    options = ("--range", "graph:10", "--calibration", str(SAVED), "--json")
    found = json.loads(printed(capsys, "recommend", DEMO, *options))
    (steps,) = (
        unit["steps"]
        for unit in json.loads(printed(capsys, "analyze", DEMO, *options))["steps"]["sequences"]
        if unit["unit"] == "graph:10/step"
    )
    assert (found["verdict"], found["step"]) == ("one_graph", "graph:10/step")
    assert 0 < found["gain_ns"] * steps <= found["gain_cap_ns"]


def test_steps_launched_kernel_by_kernel_say_what_a_graph_would_bring(capsys):
    options = ("recommend", DEMO, "--range", "per_launch", "--calibration", str(SAVED))
    text = printed(capsys, *options)
    (step,) = json.loads(printed(capsys, *options, "--json"))["ungraphed"]

    assert "per_launch/step, 75 kernels one by one" in text
    assert (step["device"], step["kernels"], step["verdict"]) == (0, 75, "one_graph")
    # As one graph it took 79 to 82 us where no other stream had been used, 0.18 us a node less than
    # where one has.
    assert 79_000 < step["one_graph_ns"] < 82_000 + 75 * 180 + 2_000


def test_the_saved_calibration_of_the_machine_is_used_by_itself(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "gaptrace" / "calibrations"
    folder.mkdir(parents=True)
    changed(folder / "other.json", driver="570.1")
    assert "needs_calibration" in printed(capsys, "recommend", DEMO)

    shutil.copy(SAVED, folder / "mine.json")
    for command in ("recommend", "analyze"):
        assert "verdict one_graph" in printed(capsys, command, DEMO)


def test_a_damaged_saved_calibration_is_a_warning(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "gaptrace" / "calibrations"
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text("{")

    assert main(["recommend", DEMO]) == 0
    out, err = capsys.readouterr()
    assert "needs_calibration" in out
    assert err.startswith("gaptrace: warning:")
    assert len(err.splitlines()) == 1


def test_a_calibration_of_another_gpu_is_refused(capsys, tmp_path):
    other = changed(tmp_path / "other.json", gpu="NVIDIA RTX 6000")

    assert main(["recommend", DEMO, "--calibration", other]) == 1
    assert "NVIDIA RTX 6000" in capsys.readouterr().err


def test_several_traces_give_the_warning_once(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "gaptrace" / "calibrations"
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text("{")
    for _ in range(2):  # each command anew
        assert main(["analyze", DEMO, DEMO]) == 0
        assert capsys.readouterr().err.count("warning") == 1


def test_a_calibration_of_another_driver_is_used_with_a_warning(capsys, tmp_path):
    other = changed(tmp_path / "other.json", driver="570.1")
    text = printed(capsys, "recommend", DEMO, "--calibration", other)

    assert "made with driver 570.1, the trace with 580.159.04" in text
    assert "verdict one_graph" in text


@pytest.mark.parametrize("missing", ["/nowhere/at/all.json", DEMO])
def test_what_is_no_calibration_is_refused(missing, capsys):
    assert main(["recommend", DEMO, "--calibration", missing]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_sizes_are_given_in_the_applications_nodes_too(capsys):
    arguments = ("recommend", DEMO, "--calibration", str(SAVED), "--app-nodes", "150")
    text = printed(capsys, *arguments)
    found = json.loads(printed(capsys, *arguments, "--json"))

    assert "chunk: 75 CUDA nodes = 150 app nodes" in text
    assert found["app_nodes"] == {
        "nodes": 150,
        "chunk": 150,
        "plateau": [150, 150],
        "schedule": [150],
    }
    assert found["chunk"] == 75


def test_alternatives_are_given_in_the_applications_nodes_too(capsys):
    arguments = ("recommend", DEMO, "--calibration", str(SAVED), "--range", "graph:25/step")
    text = printed(capsys, *arguments, "--app-nodes", "150")

    assert "chunks of 37 CUDA nodes = 74 app nodes, 1 first " in text
    assert "as recorded, chunks of 25 CUDA nodes = 50 app nodes " in text


def test_unequal_sizes_in_the_applications_nodes_sum_to_all_of_them():
    sizes = (9, 10, 12, 19, 45, 117, 339, 449)
    found = Recommendation("chunk", nodes=1_000, chunk=64, schedule=sizes)

    assert app_sizes(found, 300)["schedule"] == [3, 3, 3, 6, 13, 36, 101, 135]
    # What is less than a node of the application is part of the next.
    assert app_sizes(found, 20)["schedule"] == [1, 1, 2, 7, 9]


def test_a_range_of_which_the_device_is_behind_has_the_graphs_launched_in_it(capsys):
    arguments = ("recommend", DEMO, "--calibration", str(SAVED), "--range", "graph:10/step/replay")
    found = json.loads(printed(capsys, *arguments, "--json"))

    # Of eight graphs, of which the last ones run when the host has left the range.
    assert (found["verdict"], found["nodes"]) == ("one_graph", 75)


def test_without_a_size_there_is_nothing_to_convert(capsys):
    text = printed(capsys, "recommend", DEMO, "--app-nodes", "150")

    assert "no size is advised that could be given in app nodes" in text


def test_every_input_says_how_many_observations_it_is_made_of(capsys):
    arguments = ("recommend", DEMO, "--calibration", str(SAVED), "--range", "graph:25/step")
    inputs = json.loads(printed(capsys, *arguments, "--json"))["inputs"]

    samples = {each["name"]: (each["source"], each["samples"]) for each in inputs}
    assert samples["host_one_graph_ns"] == ("calibration", 20)
    assert samples["cut_gap_ns"] == ("calibration", 20)
    assert samples["single_launch_ns"] == ("calibration", 20)
    assert samples["code_per_launch_ns"] == ("trace", 12)


def test_graphs_that_are_built_in_every_step_have_no_replays_to_share_that(capsys):
    rebuilt = str(Path(DEMO).with_name("decoder_node.sqlite"))
    arguments = ("recommend", rebuilt, "--calibration", str(SAVED), "--json", "--range")
    found = json.loads(printed(capsys, *arguments, "recapture_every_step"))
    replayed = json.loads(printed(capsys, *arguments, "graph_sync_item"))

    assert (found["regime"], found["amortised_ns"]) == ("instantiate", {})
    assert (replayed["regime"], len(replayed["amortised_ns"])) == ("replay", 3)


@pytest.mark.parametrize("unit", ["graph:25/step", "graph:10/step"])
def test_a_cut_step_is_told_to_be_uncut_with_the_gain_that_its_table_shows(unit, capsys):
    arguments = ("recommend", DEMO, "--calibration", str(SAVED), "--json", "--range", unit)
    found = json.loads(printed(capsys, *arguments))
    (now,) = (each for each in found["alternatives"] if each["name"] == "now")

    assert (found["verdict"], found["schedule"]) == ("one_graph", [75])
    assert found["gain_ns"] == now["loss_ns"] > 2_000


def test_a_step_that_the_trace_holds_kernel_by_kernel_says_itself_what_launching_it_takes(capsys):
    found = json.loads(printed(capsys, "recommend", DEMO, "--calibration", str(SAVED), "--json"))
    launches = [each for each in found["inputs"] if "launch" in each["name"]]

    assert [(each["name"], each["source"]) for each in launches] == [("single_launch_ns", "trace")]


def test_the_object_holds_what_the_verdict_rests_on(capsys):
    found = json.loads(printed(capsys, "recommend", DEMO, "--calibration", str(SAVED), "--json"))

    assert found["schema"] == "gaptrace.recommendation/1"
    assert found["unit"] == "cuda graph nodes"
    assert (found["verdict"], found["nodes"], found["plateau"]) == ("one_graph", 75, [75, 75])
    assert set(found["predicted_ns"]) == {
        "per_launch",
        "one_graph",
        "chunk",
        "schedule",
        "device_only",
    }
    assert all(isinstance(ns, int) for ns in found["predicted_ns"].values())
    assert found["gain_interval_ns"] == [0, 0]
    assert {each["source"] for each in found["inputs"]} == {"trace", "calibration"}
    assert found["sensitivity"][1]["name"] == "host_by_nodes_ns"
    assert found["alternatives"][1]["loss_ns"] == 0
    assert found["ungraphed"] == []
    # A cut adds 1,190 ns, a node 0.96 ns to a launch: more nodes than there are; the host's fixed
    # part over 960 ns a node.
    assert found["closed_form"] == pytest.approx([75, 12], abs=1)
    shares = found["amortised_ns"]
    assert list(shares) == ["10", "100", "1000"]
    # Capture and instantiation by one graph, the step by itself in the end.
    build_ns = (shares["10"] - shares["100"]) / (1 / 10 - 1 / 100)
    alone_ns = found["predicted_ns"]["one_graph"]
    assert shares["1000"] == pytest.approx(alone_ns + build_ns / 1_000, abs=2)
    assert found["calibration"]["gpu"] == "NVIDIA H200"
    assert found["app_nodes"] is None


def test_a_window_narrows_the_advice(capsys):
    def cap_ns(*window):
        options = ("--calibration", str(SAVED), "--json", *window)
        return json.loads(printed(capsys, "recommend", DEMO, *options))["gain_cap_ns"]

    begin, end = ("--from", "1642ms"), ("--to", "1643ms")
    assert 0 < cap_ns(*begin, *end) < min(cap_ns(*begin), cap_ns(*end))
    assert max(cap_ns(*begin), cap_ns(*end)) < cap_ns()
