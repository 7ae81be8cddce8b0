"""Variables that look like secrets: which are named, where they are found, and what is not said."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from export_schema import SCHEMAS, tables
from exports import VM, export, global_id, kernel, named, push
from hypothesis import given
from hypothesis import strategies as st
from real_traces import REAL
from recorders import real_nsys

from gaptrace.cli import main
from gaptrace.errors import NotRecordedError
from gaptrace.read import read
from gaptrace.read.secrets import (
    holds_secret,
    identities,
    looks_secret,
    secrets,
    variables,
)
from gaptrace.read.sqlite import ExportFile

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"


# Which


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "abcdefghij"),
        ("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCY"),
        ("OPENAI_KEY", '"quoted-and-long"'),
        ("MODAL_TASK_SECRET", "ta-0123456789"),
        ("SECRET_KEY_BASE", "abcdefghij"),
        ("AZURE_CREDENTIALS_JSON", '{"clientId": "a"}'),
        ("HF_TOKEN_2", "abcdefghij"),
        ("GITHUB.TOKEN", "abcdefghij"),
        ("accessToken", "abcdefghij"),
        ("--api-key", "abcdefghij"),
        ("--hf_token", "abcdefghij"),
        ("PGPASSWORD", "x1"),
        ("db_password", "hunter2"),
        ("MYSQL_PWD", "hunter2"),
        ("SSHPASS", "hunter2"),
        ("DOCKER_AUTH_CONFIG", '{"auths": 1}'),
        ("SNAP_COOKIE", "abcdefghij"),
        # The value tells, whatever the name.
        ("PIP_INDEX_URL", "https://alice:hunter2@pypi.example.org/simple"),
        ("DATABASE_URL", "postgres://:hunter2@db/x"),
        ("GH", "ghp_" + LETTERS[:36]),
        ("X", "hf_" + LETTERS[:34]),
        ("X", "AKIAABCDEFGHIJKLMNOP"),
        ("X", "sk-ant-api03-" + LETTERS),
        ("X", "glpat-" + LETTERS[:20]),
        ("X", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz"),
    ],
)
def test_a_secret_is_seen(name, value):
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # Words that only hold a telling one.
        ("TOKENIZERS_PARALLELISM", "false-or-else"),
        ("SSH_AUTH_SOCK", "/run/user/1000/keyring/ssh"),
        ("XAUTHORITY", "/run/user/1000/gdm/Xauthority"),
        ("TOX_TESTENV_PASSENV", "HOME USER PATH"),
        ("GIT_ASKPASS", "echo something"),
        ("KEYTIMEOUT", "1000000000000"),
        ("LESSKEY", "something-long"),
        ("MAX_TOKENS", "as many as fit"),
        ("AWS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"),
        ("PWD", "/home/alice/work"),
        ("OLDPWD", "something-long"),
        ("GPG_KEY", "A035C8C19219BA821ECEA86B64E628F8D684696D"),
        ("SSH_PUBLIC_KEY", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"),
        # Values that are none.
        ("HF_TOKEN", ""),
        ("HF_API_KEY", '""'),
        ("HF_TOKEN", "********************"),
        ("HF_TOKEN", "xxxxxxxxxxxxxxxx"),
        ("HF_TOKEN", "[REDACTED]"),
        ("HF_TOKEN", "<your token here>"),
        ("HF_TOKEN", "${ANOTHER_VARIABLE}"),
        ("MODAL_TASK_SECRET", "dummy"),
        ("PGPASSWORD", "***"),
        ("USE_AUTH", "true"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/alice/.config/gcloud/key.json"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "~/key of mine.json"),
        ("SORT_KEY", "20240101123456"),
        ("--eos-token", "<|endoftext|>"),
        ("--pad_token", "[PADDING_TOKEN]"),
        # URLs without a password.
        ("MASTER", "tcp://10.0.0.1:29500/path@x"),
        ("REPO", "https://git@github.com/a/b"),
        ("PIP_INDEX_URL", "https://alice:****@pypi.example.org/simple"),
        ("URL", "https://alice:${PASSWORD}@example.org"),
    ],
)
def test_what_is_none_is_not(name, value):
    assert not looks_secret(name, value)


@pytest.mark.parametrize(
    "text",
    [
        "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_128x64_sliced1x2_ldg8_relu>",
        "aten::_scaled_dot_product_attention, seq = 12, op_id = 314290",
        "task-0123456789abcdef0123456789abcdef",
        "half_precision_kernel_hf_abc",
        "std::ops::Add",
    ],
)
def test_names_of_kernels_and_ranges_hold_none(text):
    assert not holds_secret(text)


# Where


def an_export(path: Path, schema: str = "3.20.3", **rows) -> Path:
    return export(path, schema, kernels=[kernel(1000, 1010)], **rows)


def found(path: Path) -> list[tuple[str, str]]:
    with ExportFile(path) as file:
        return variables(file)


def messages(path: Path) -> list[str]:
    return [warning.message for warning in read(path).warnings if warning.code == "looks_secret"]


def environment(value: str) -> list[dict[str, object]]:
    row = {"globalVid": VM, "devStateName": "Local (CLI)", "nameEnum": 610}
    return [row | {"name": "DeviceEnvironment", "value": value}]


def test_the_programs_environment_in_the_options_of_the_recording(tmp_path):
    capture = [
        named("PROCESS_0:ENVIRONMENT_VARIABLE", 'A="x"'),
        named("PROCESS_0:ENVIRONMENT_VARIABLE", 'B="1\n2=3"'),
        named("ENVIRONMENT_VARIABLE", "C=y=z"),
        named("PROCESS_0:ENVIRONMENT_VARIABLE", None),
        named("PROCESS_0:USER_NAME", "D=x"),
    ]
    assert found(an_export(tmp_path / "t.sqlite", capture=capture)) == [
        ("A", '"x"'),
        ("B", '"1\n2=3"'),
        ("C", "y=z"),
    ]


def test_the_machines_environment(tmp_path):
    path = an_export(tmp_path / "t.sqlite", environment=environment("A=x;B=y;rest of y;C="))
    assert found(path) == [("A", "x"), ("B", "y"), ("C", "")]
    path = an_export(tmp_path / "2022.sqlite", "3.0.0", environment=environment("A=x;y\0B=z"))
    assert found(path) == [("A", "x;y"), ("B", "z")]


def test_environments_of_other_processes_among_the_strings(tmp_path):
    texts = ["EMPTY\0A=x\0B=y", "LONELY=z", "aten::mm, seq = 12", "lower=no", "Two words=no"]
    threads = [{"nameId": text, "globalTid": global_id(1)} for text in texts]
    path = an_export(tmp_path / "t.sqlite", thread_names=threads)
    assert found(path) == [("A", "x"), ("B", "y"), ("LONELY", "z")]


def test_command_lines(tmp_path):
    capture = [
        named("PROCESS_0:COMMAND", "python"),
        named("PROCESS_0:ARGUMENT_0", "train.py"),
        named("PROCESS_0:ARGUMENT_1", "--token"),
        named("PROCESS_0:ARGUMENT_2", "abc"),
        named("PROCESS_0:ARGUMENT_3", "--key=def"),
        named("PROCESS_0:ARGUMENT_4", "--flag"),
        named("PROCESS_0:ARGUMENT_5", "-v"),
    ]
    processes = [{"pid": 1, "name": "env A=x sh --password p"}, {"pid": 2, "name": "kworker/0:0"}]
    path = an_export(tmp_path / "t.sqlite", capture=capture, processes=processes)
    assert found(path) == [
        ("--key", "def"),
        ("--token", "abc"),
        ("A", "x"),
        ("--password", "p"),
    ]


def test_who_and_where(tmp_path):
    capture = [
        named("PROCESS_0:ENVIRONMENT_VARIABLE", 'USER="alice"'),
        named("PROCESS_0:ENVIRONMENT_VARIABLE", 'HOME="/home/group/bob/"'),
        named("PROCESS_0:ENVIRONMENT_VARIABLE", 'LOGNAME="root"'),
        named("PROCESS_0:USER_NAME", "carol"),
        named("DEVICE_DISPLAY_NAME", "vm"),
    ]
    machine = [
        {"devStateName": "x", "name": "Hostname", "value": "node17"},
        *environment("HOME=/workspace;HOSTNAME=localhost"),
    ]
    with ExportFile(an_export(tmp_path / "t.sqlite", capture=capture, environment=machine)) as file:
        assert identities(file) == {"alice", "bob", "carol", "node17"}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_generation_warns(tmp_path, schema):
    text = "PATH=/bin\0HF_TOKEN=abcdefghij"
    rows = {"thread_names": [{"nameId": text, "globalTid": global_id(1)}]}
    if "environment" in tables(schema):
        rows["environment"] = environment("PATH=/bin;WANDB_API_KEY=abcdefghij")
    if "capture" in tables(schema):
        rows["capture"] = [named("PROCESS_0:ENVIRONMENT_VARIABLE", 'GH_TOKEN="abcdefghij"')]
    (message,) = messages(an_export(tmp_path / "t.sqlite", schema, **rows))
    expected = {"HF_TOKEN"}
    expected |= {"WANDB_API_KEY"} if "environment" in rows else set()
    expected |= {"GH_TOKEN"} if "capture" in rows else set()
    assert f": {', '.join(sorted(expected))}; before" in message


def test_tables_of_other_shapes_are_passed_over(tmp_path):
    path = an_export(tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE PROCESSES (id INTEGER, title TEXT)")
        db.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT)")
        db.execute("INSERT INTO META_DATA_CAPTURE VALUES (X'00ff', X'00ff')")
        db.execute("INSERT INTO StringIds VALUES (99, CAST(X'41ff003dff00' AS TEXT))")
        db.commit()
    assert messages(path) == []


# What is said


def test_the_warning_names_a_few_and_counts_the_rest(tmp_path):
    text = ";".join(f"K{n}_TOKEN=abcdefghij" for n in range(8))
    (message,) = messages(an_export(tmp_path / "t.sqlite", environment=environment(text)))
    assert message == (
        "8 variables that look like secrets in this file, with their values: K0_TOKEN, K1_TOKEN, "
        "K2_TOKEN, K3_TOKEN, K4_TOKEN and 3 more; before you share it, make a copy without: "
        "gaptrace redact TRACE -o COPY"
    )


def test_one_that_is_found_twice_is_one(tmp_path):
    path = an_export(
        tmp_path / "t.sqlite",
        environment=environment("HF_TOKEN=abcdefghij"),
        capture=[named("PROCESS_0:ENVIRONMENT_VARIABLE", 'HF_TOKEN="abcdefghij"')],
    )
    (message,) = messages(path)
    assert message.startswith(
        "1 variable that looks like a secret in this file, with its value: HF"
    )


@given(st.text(st.characters(codec="utf-8", exclude_characters=";\0"), min_size=10))
def test_the_value_is_never_said(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("secret") / "t.sqlite"
    secret = f"q{value}q"
    an_export(path, environment=environment(f"HF_TOKEN={secret};PASSWORD={secret}"))
    (message,) = messages(path)
    assert secret not in message
    assert "PASSWORD" in message


def test_analyze_warns_in_the_report_and_in_the_json(tmp_path, capsys):
    path = str(
        export(
            tmp_path / "t.sqlite",
            kernels=[kernel(1000, 1010), kernel(2000, 2010)],
            nvtx=[push("step", 900, 2100)],
            environment=environment("HF_TOKEN=abcdefghij"),
        )
    )
    assert main(["analyze", path]) == 0
    out, err = capsys.readouterr()
    assert "warning: 1 variable that looks like a secret" in out
    assert "HF_TOKEN" in out
    assert "abcdefghij" not in out
    assert err == ""
    assert main(["analyze", path, "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert "looks_secret" in [warning["code"] for warning in warnings]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_traces_without_secrets_get_no_warning(path):
    with ExportFile(path) as file:
        assert secrets(file) == []


@pytest.mark.nsys
def test_what_a_real_recording_holds_is_found(tmp_path):
    nsys = real_nsys()
    script = tmp_path / "program.py"
    script.write_text("print('some output')\n")
    environment = os.environ | {"HF_TOKEN": "planted-token", "HF_HOME": "/models/cache"}
    record = [nsys.path, "profile", "-t", "nvtx", "--sample=none", "-o", tmp_path / "run"]
    program = [sys.executable, script, "--api-key", "planted-key"]
    export_it = [nsys.path, "export", "--type=sqlite", f"--output={tmp_path / 'run.sqlite'}"]
    for command in ([*record, *program], [*export_it, tmp_path / "run.nsys-rep"]):
        subprocess.run(command, env=environment, check=True, capture_output=True)

    with ExportFile(tmp_path / "run.sqlite") as file:
        secret = {name for name, value in variables(file) if looks_secret(name, value)}
        (warning,) = secrets(file)
    assert {"HF_TOKEN", "--api-key"} <= secret
    assert "HF_HOME" not in secret
    assert "planted" not in warning.message
    with pytest.raises(NotRecordedError):
        read(tmp_path / "run.sqlite")
