"""Variables in an Nsight export that look like secrets: who gets the file can read them.

An export holds the whole environment of the program, and that of other processes of the user. Seen
in exports of 2022.4 to 2026.2: the row DeviceEnvironment of TARGET_INFO_SYSTEM_ENV (joined by `;`,
in 2022.4 by NUL), StringIds (joined by NUL), and from 2023.4 on one META_DATA_CAPTURE row per
variable (`NAME="value"`). Command lines are in META_DATA_CAPTURE, one row per argument.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from gaptrace.read.sqlite import ExportFile
from gaptrace.trace import TraceWarning

#: Last words of names of secrets: those of Django 5.2 (`SafeExceptionReporterFilter`: API, AUTH,
#: TOKEN, KEY, SECRET, PASS, SIGNATURE, HTTP_COOKIE) and sentry-sdk 2.75 (`DEFAULT_DENYLIST`), as
#: whole words. Both look for them anywhere in a name, which finds TOKENIZERS_PARALLELISM,
#: SSH_AUTH_SOCK and KEYTIMEOUT too.
_WORDS = {"TOKEN", "SECRET", "KEY", "APIKEY", "PRIVATEKEY", "PASS", "AUTH", "AUTHORIZATION"} | {
    "CREDENTIAL",
    "CREDENTIALS",
    "SIGNATURE",
    "COOKIE",
}
#: Ends of last words: PGPASSWORD, accessToken. A password may be short; the rest is long.
_PASSWORD_ENDS = ("PASSWORD", "PASSWD", "PASSPHRASE", "MYSQL_PWD", "SSHPASS")
_OTHER_ENDS = ("TOKEN", "SECRET", "APIKEY")
#: What may follow the telling word, as in SECRET_KEY_BASE, AZURE_CREDENTIALS_JSON, HF_TOKEN_2.
_TAIL = {"BASE", "BASE64", "B64", "CONFIG", "JSON", "VALUE"}
#: Known, and public: Docker's python images set the fingerprint of the key that signed Python.
_PUBLIC = {"GPG_KEY"}
#: gitleaks' generic-api-key rule asks for 10 characters; a letter keeps numbers and dates out.
_LONG = re.compile(r"(?=.*[A-Za-z]).{10,}", re.DOTALL)
#: No secrets: after gitleaks' global allowlist (words for nothing, one character repeated,
#: references to other variables, paths), with the marks that people put in a secret's place.
_NO_SECRET = re.compile(
    r"(?i:true|false|null|none|.*redacted.*|x{3,}.*|\*+.*|.*\*+)|(.)\1*|<.*>|\[.*\]|\$\{?\w+\}?"
    r"|(?:[A-Za-z]:|[~.])?(?:[/\\][\w.+@-]+){2,}[/\\]?|~[/\\].*",
    re.DOTALL,
)
#: Values that are secrets whatever their name. Prefixes and lengths: gitleaks' rules github-pat,
#: github-oauth, github-app-token, github-refresh-token, github-fine-grained-pat, gitlab-pat,
#: huggingface-access-token, openai-api-key, anthropic-api-key, slack-bot-token, slack-user-token,
#: aws-access-token, gcp-api-key, npm-access-token, private-key. Last, the password of a URL
#: (RFC 3986, 3.2.1), of which three characters may hide it.
_SECRET = re.compile(
    r"\b(?:gh[pousr]_[0-9A-Za-z]{36}|github_pat_\w{82}|glpat-[\w-]{20}|hf_[A-Za-z]{34}"
    r"|sk-(?:ant|proj|svcacct|admin)-[\w-]{20}|sk-[A-Za-z0-9]{20}T3BlbkFJ|xox[bpe]-[0-9]{10}"
    r"|(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}|AIza[\w-]{35}|npm_[A-Za-z0-9]{36})"
    r"|-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY"
    r"|\w://[^/\s:@]*:(?!\*+@|x+@|<|\$)[^/\s@]+@"
)
_VARIABLE = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_HOME = re.compile(r"/(?:home|[Uu]sers)/(?:.*/)?([^/]+)/?")
#: Names of people and machines that say nothing of either.
_ANYBODY = {"root", "localhost"}
_MOST_NAMES = 5


def secrets(export: ExportFile) -> list[TraceWarning]:
    """Return a warning with the names, never the values, of variables that look like secrets."""
    names = sorted({name for name, value in variables(export) if looks_secret(name, value)})
    if not names:
        return []
    shown = ", ".join(names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    one = len(names) == 1
    what = "variable that looks like a secret" if one else "variables that look like secrets"
    return [
        TraceWarning(
            "looks_secret",
            f"{len(names)} {what} in this file, with {'its value' if one else 'their values'}: "
            f"{shown}{more}; before you share it, make a copy without: "
            "gaptrace redact TRACE -o COPY",
        )
    ]


def looks_secret(name: str, value: str) -> bool:
    """Say whether a variable or option looks as if its value were a secret."""
    value = value.strip().strip("\"'")
    if holds_secret(value):
        return True
    if not value or name in _PUBLIC or _NO_SECRET.fullmatch(value):
        return False
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word]
    while words and (words[-1].isdigit() or words[-1] in _TAIL):
        words.pop()
    if not words or "PUBLIC" in words:
        return False
    if "_".join(words).endswith(_PASSWORD_ENDS):
        return True
    telling = words[-1] in _WORDS or words[-1].endswith(_OTHER_ENDS)
    return telling and _LONG.fullmatch(value) is not None


def holds_secret(text: str) -> bool:
    """Say whether a text holds a token of a known form, a private key or a URL with a password."""
    return _SECRET.search(text) is not None


def variables(export: ExportFile) -> list[tuple[str, str]]:
    """Return name and value of all environment variables and options in the export, repeated."""
    arguments = []
    found = []
    for name, value in _pairs(export, "META_DATA_CAPTURE"):
        if name.endswith("ENVIRONMENT_VARIABLE"):
            found += _variables([value])
        elif re.search(r"(?:COMMAND|ARGUMENT_\d+)$", name):
            arguments.append(value)
    found += _options(arguments)
    for name, value in _pairs(export, "TARGET_INFO_SYSTEM_ENV"):
        if name == "DeviceEnvironment":
            found += _variables(value.split("\0" if "\0" in value else ";"))
    if "name" in export.tables.get("PROCESSES", ()):
        for (process,) in export.rows("SELECT name FROM PROCESSES WHERE instr(name, ' ')"):
            found += _options(str(process).split())
    for text in _environments(export):
        found += _variables(text.split("\0"))
    return found


def identities(export: ExportFile) -> set[str]:
    """Return the names of the user and of the machine, as far as the export says them."""
    names = set()
    for name, value in variables(export):
        if name in ("HOSTNAME", "LOGNAME", "USER", "USERNAME"):
            names |= _with_first_label(value.strip("\"'"))
        elif name == "HOME" and (home := _HOME.fullmatch(value.strip("\"'"))):
            names.add(home[1])
    for table in ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"):
        for name, value in _pairs(export, table):
            if name.endswith((":USER_NAME", "DEVICE_DISPLAY_NAME")) or name == "Hostname":
                names |= _with_first_label(value)
    return {name for name in names if len(name) > 2} - _ANYBODY


def _with_first_label(name: str) -> set[str]:
    """A name, and of a machine with its domain the machine alone."""
    return {name, name.split(".")[0]}


def _pairs(export: ExportFile, table: str) -> Iterator[tuple[str, str]]:
    if {"name", "value"} <= export.tables.get(table, set()):
        for name, value in export.rows(f"SELECT name, value FROM {table}"):
            yield str(name), str(value)


def _environments(export: ExportFile) -> Iterator[str]:
    """Texts of StringIds that are environments; one of a single variable holds no NUL."""
    if not {"id", "value"} <= export.tables.get("StringIds", set()):
        return
    rows = export.rows(
        "SELECT value FROM StringIds WHERE instr(CAST(value AS BLOB), X'00')"
        " OR value GLOB '[A-Z_]*=*'"
    )
    for (text,) in rows:
        yield str(text)


def _variables(texts: list[str]) -> list[tuple[str, str]]:
    matches = (_VARIABLE.fullmatch(text) for text in texts)
    return [(match[1], match[2]) for match in matches if match]


def _options(arguments: list[str]) -> list[tuple[str, str]]:
    """`--token=value`, `--token value` and `TOKEN=value` of a command line."""
    apart = [
        (option, value)
        for option, value in pairwise(arguments)
        if _OPTION.fullmatch(option) and not value.startswith("-")
    ]
    return _variables(arguments) + apart
