"""Names that are kept may say who, where, or a secret: those are numbered instead."""

import re

from gaptrace.read.secrets import holds_secret, identities, looks_secret, variables
from gaptrace.read.sqlite import ExportFile

#: A path under a folder of the Filesystem Hierarchy Standard 3.0 or one that people's files are in;
#: the path of a file; a path from home; one of Windows; an address of mail or IP, a URL; and
#: variables that hold such. Names of modules, as in /encoder/layer.0/MatMul, are none of these.
_PERSONAL = re.compile(
    r"(?<![\w/.])/(?:beegfs|bin|boot|ceph|cluster|data\d*|dev|disk\d*|efs|etc|fsx|gpfs|home|lib"
    r"|lib64|lustre|media|mnt\d*|nfs\d*|opt|proc|projects|raid\d*|root|run|scratch\d*|srv|ssd\d*"
    r"|storage|sys|tmp|[Uu]sers|usr|var|Volumes|weka|work|workspace)\b"
    r"|(?<![\w/.])/(?:[\w.+@-]+/)*[\w.+-]+\.(?:[A-Za-z]\w{0,4}|checkpoint|engine|nsys-rep|parquet"
    r"|pickle|safetensors|sqlite\d?)(?![\w./])"
    r"|(?<!\w)~\w*/|\b[A-Za-z]:[\\/]|\\\\[\w.-]+\\"
    r"|[\w.+-]+@[\w-]+\.\w|\b\w+://\w"
    r"|(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"
    # IPv6: with :: or at least five groups, and a digit; C++ names have letters beyond f.
    r"|(?<![\w:])(?=[\dA-Fa-f:]*\d)(?=[\dA-Fa-f:]*::|(?:[\dA-Fa-f]{1,4}:){4})"
    r"[\dA-Fa-f]{1,4}:[\dA-Fa-f]{0,4}:[\dA-Fa-f:]+(?![\w:])"
    r"|\b(?:HOME|HOSTNAME|LOGNAME|PATH|PWD|USER)="
)
#: Shorter values of secrets could be part of any word.
_LEAST = 8


class Hider:
    """Numbers the names that are not to be told; the others stay as they are.

    Attributes:
        hidden: each name that was met and is not to be told -> what stands for it.
    """

    def __init__(self, export: ExportFile) -> None:
        self.hidden: dict[str, str] = {}
        self._told: set[str] = set()
        names = "|".join(map(re.escape, sorted(identities(export))))
        self._whole = re.compile(rf"(?<![A-Za-z0-9])(?:{names or '(?!)'})(?![A-Za-z0-9])")
        secret = {
            value.strip("\"'")
            for name, value in variables(export)
            if looks_secret(name, value) and len(value.strip("\"'")) >= _LEAST
        }
        self._part = re.compile("|".join(map(re.escape, sorted(secret))) or "(?!)")

    def __call__(self, raw: bytes | str | None) -> str | None:
        """Return a name, or what stands for it; it comes as the bytes that SQLite holds."""
        if raw is None:
            return None
        name = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
        if name in self._told:
            return name
        if name not in self.hidden:
            if not self._tells(name):
                self._told.add(name)
                return name
            self.hidden[name] = f"hidden {len(self.hidden) + 1}"
        return self.hidden[name]

    def _tells(self, name: str) -> bool:
        return (
            _PERSONAL.search(name) is not None
            or holds_secret(name)
            or self._whole.search(name) is not None
            or self._part.search(name) is not None
        )
