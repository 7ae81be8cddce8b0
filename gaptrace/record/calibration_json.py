"""A calibration as one JSON object, and back: schema gaptrace.calibration/1."""

import math
from dataclasses import asdict, fields
from typing import Any

from gaptrace.calibration import Calibration, Figure, Machine
from gaptrace.errors import CalibrationError

SCHEMA = "gaptrace.calibration/1"

#: More nodes than any graph can have.
_MOST_NODES = 2**31
_MACHINE = tuple(field.name for field in fields(Machine))


def to_object(calibration: Calibration) -> dict[str, Any]:
    """Return the calibration as one JSON object of schema `SCHEMA`."""
    return {
        "schema": SCHEMA,
        "machine": asdict(calibration.machine),
        "date": calibration.date,
        "gaptrace": calibration.gaptrace,
        "recorders": dict(calibration.recorders),
        "figures": [asdict(figure) for figure in calibration.figures],
    }


def from_object(content: Any, *, name: str) -> Calibration:
    """Return the calibration that a JSON object holds.

    Args:
        content: what was read.
        name: where from, for the error.

    Raises:
        CalibrationError: it is none.
    """
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise CalibrationError(
            f"{name} is not a calibration of schema {SCHEMA}; make one with gaptrace calibrate"
        )
    try:
        return Calibration(
            machine=Machine(**{each: _text_or_none(content["machine"][each]) for each in _MACHINE}),
            date=_text(content["date"]),
            gaptrace=_text(content["gaptrace"]),
            recorders={each: _text(text) for each, text in dict(content["recorders"]).items()},
            figures=tuple(_figure(each) for each in content["figures"]),
        )
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CalibrationError(
            f"{name} is damaged ({type(error).__name__}: {error}); make a new one with gaptrace "
            "calibrate"
        ) from error


def _figure(content: Any) -> Figure:
    value, low, high = (float(content[each]) for each in ("value", "low", "high"))
    if not (low <= value <= high and all(map(math.isfinite, (low, high)))):
        raise ValueError(f"{content['name']} lies in no interval")
    nodes = content["nodes"]
    if nodes is not None and not 1 <= nodes <= _MOST_NODES:
        raise ValueError(f"{content['name']} is of {nodes} nodes")
    return Figure(
        _text(content["name"]),
        None if nodes is None else int(nodes),
        int(content["branches"]),
        _text_or_none(content["recorder"]),
        value,
        low,
        high,
        int(content["runs"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)
