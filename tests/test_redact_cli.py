"""`gaptrace redact`: what it says, and what it takes."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from contents import names_in, rows_of
from exports import (
    api,
    export,
)
from recorders import install_fake_nsys, real_nsys
from sources_to_redact import (
    a_full_export,
    launched,
)

from gaptrace.cli import main
from gaptrace.redact import redact


def test_the_command_says_what_it_did(tmp_path, capsys):
    source = a_full_export(tmp_path / "full.sqlite", "3.20.3")
    copy = tmp_path / "copy.sqlite"
    assert main(["redact", str(source), "-o", str(copy)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    said = " ".join(out.split())
    assert f"{copy}: " in said
    assert "same figures as full.sqlite device 0 (NVIDIA H200): busy " in said
    assert "PROCESSES (1)" in said
    assert "TARGET_INFO_SESSION_START_TIME (1)" in said
    assert "ThreadNames (2)" in said
    assert "TARGET_INFO_SYSTEM_ENV (2 of 6)" in said
    assert "busLocation" in said
    assert "uuid" in said
    assert "like secrets: --password, API_KEY, HF_TOKEN" in said
    assert "2 names of threads" in said
    assert "of them as hidden 1, hidden 2 ...; what the recorder complained of" in said
    assert "planted" not in out.replace(str(copy), "")
    assert max(map(len, out.replace(str(copy), copy.name).splitlines())) <= 100


def test_the_command_with_a_window(tmp_path, capsys):
    rows = launched((1000, 2000), (3000, 4000), (900_000, 900_500))
    source = export(tmp_path / "t.sqlite", **rows)
    copy = tmp_path / "copy.sqlite"
    assert main(["redact", str(source), "-o", str(copy), "--from", "2us", "--to", "10us"]) == 0
    out, _ = capsys.readouterr()
    assert "same figures as t.sqlite for all ops from 2000 to 10000 ns (8.00 us)" in out
    assert "CUPTI_ACTIVITY_KIND_KERNEL (2 of 3)" in out
    assert rows_of(copy, "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(3000,)]


def test_the_command_on_a_trace_without_figures(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", api=[api("cuInit", 1, 2)])
    assert main(["redact", str(source), "-o", str(tmp_path / "copy.sqlite")]) == 0
    out, _ = capsys.readouterr()
    assert "same answer as t.sqlite, no figures: 1 CUDA API calls (0 launches)" in out


def test_names_of_any_kind_stay_on_one_line(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    with closing(sqlite3.connect(source)) as db:
        db.execute('CREATE TABLE "a\u2028b\nc" (x)')
        db.execute('INSERT INTO "a\u2028b\nc" VALUES (1)')
        db.commit()
    assert main(["redact", str(source), "-o", str(tmp_path / "copy.sqlite")]) == 0
    assert "  tables     a b c (1)" in capsys.readouterr().out.splitlines()


def test_a_copy_of_a_copy_has_little_to_leave_out(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", "pre-2022", **launched((1000, 2000)))
    once, twice = tmp_path / "once.sqlite", tmp_path / "twice.sqlite"
    main(["redact", str(source), "-o", str(once)])
    capsys.readouterr()
    assert main(["redact", str(once), "-o", str(twice)]) == 0
    assert "nothing was to leave out" in capsys.readouterr().out
    assert twice.read_bytes() == once.read_bytes()


def test_failures_of_the_command(tmp_path, capsys):
    source = export(tmp_path / "t.sqlite", **launched((1000, 2000)))
    assert main(["redact", str(source), "-o", str(source)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"gaptrace: error: {source}: exists already; choose a name that does not exist yet\n"
    )
    assert main(["redact", str(tmp_path / "no.sqlite"), "-o", str(tmp_path / "c.sqlite")]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main(["redact", str(source)]) == 2
    assert "--output" in capsys.readouterr().err
    assert names_in(tmp_path) == ["t.sqlite"]


def test_a_report_is_exported_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(install_fake_nsys(tmp_path / "bin").parent), prepend=os.pathsep)
    monkeypatch.delenv("GAPTRACE_NSYS", raising=False)
    made = a_full_export(tmp_path / "made.sqlite", "3.20.3")
    monkeypatch.setenv("FAKE_NSYS_EXPORT", str(made))
    folder = tmp_path / "run"
    folder.mkdir()
    report = folder / "run.nsys-rep"
    report.write_text("fake report")
    assert main(["redact", str(report), "-o", str(folder / "copy.sqlite")]) == 0
    assert "same figures as run.sqlite" in capsys.readouterr().out
    assert names_in(folder) == ["copy.sqlite", "run.nsys-rep", "run.sqlite"]
    assert b"planted" not in (folder / "copy.sqlite").read_bytes()


@pytest.mark.nsys
def test_nothing_of_a_real_recording_is_left(tmp_path):
    nsys = real_nsys()
    script = tmp_path / "program_planted_path.py"
    script.write_text("import sys; print('planted_out'); print('planted_err', file=sys.stderr)\n")
    planted = {"HF_TOKEN": "planted_token", "USER": "planted_user", "HARMLESS": "planted_value"}
    record = [nsys.path, "profile", "-t", "nvtx,osrt", "--sample=none", "-o", tmp_path / "run"]
    program = [sys.executable, script, "--key=planted_argument"]
    export_it = [nsys.path, "export", "--type=sqlite", f"--output={tmp_path / 'run.sqlite'}"]
    for command in ([*record, *program], [*export_it, tmp_path / "run.nsys-rep"]):
        subprocess.run(command, env=os.environ | planted, check=True, capture_output=True)
    assert (tmp_path / "run.sqlite").read_bytes().count(b"planted_") > 8

    done = redact(tmp_path / "run.sqlite", tmp_path / "copy.sqlite")
    assert b"planted_" not in done.target.read_bytes()
    assert {"HF_TOKEN", "--key"} <= set(done.secrets) | {"--key"}
    assert {"HARMLESS", "HF_TOKEN", "USER"} <= set(done.variables)
    assert done.dropped.texts["outputs of programs"] == 2
