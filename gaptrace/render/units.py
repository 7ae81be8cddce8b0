"""Numbers for people: units chosen by size, never more digits than carry meaning."""

_SCALES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


def duration(ns: float | None) -> str:
    """Return a duration with three significant digits and its unit; a dash when there is none."""
    if ns is None:
        return "-"
    for scale, unit in _SCALES:
        # 999.6 us would round to "1000 us": it belongs to the next unit.
        if abs(ns) >= 0.9995 * scale:
            return f"{_three_digits(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def change(ns: int) -> str:
    """Return a difference of durations with its sign."""
    return f"{'+' if ns > 0 else ''}{duration(ns)}"


def instant(ns: int) -> str:
    """Return a time since the session began, fine enough to find it again with --from and --to."""
    return f"{ns / 1_000_000:.3f} ms"


def share(part: float, whole: float) -> str:
    """Return a part as percent of the whole; a dash when there is no whole."""
    if whole <= 0:
        return "-"
    percent = 100 * part / whole
    return "<0.1%" if 0 < percent < 0.1 else f"{percent:.1f}%"


def count(number: int | None) -> str:
    """Return a whole number with thin groups of thousands; a dash when unknown."""
    return "-" if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return how many there are of something, as `1 gap` or `2,000 gaps`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def file_size(number: int) -> str:
    """Return a number of bytes as kB or MB (1,000 and 1,000,000 bytes)."""
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.0f} kB"


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def times(factor: float) -> str:
    """Return a factor, `1.04 x`; above 2 with a digit less."""
    return f"{factor:.3g} x" if factor < 2 else f"{factor:.2g} x"
