"""Repetition in a sequence of tokens: what repeats without a break, and where its copies lie.

Pure: nothing here knows what a GPU is. Everything is exact; no hash can collide.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: A unit repeats when this many copies of it follow each other without a break. Two are a
#: coincidence that any two equal calls make; three are also the fewest for which `find_repetition`
#: is exact.
MIN_REPEATS = 3


@dataclass(frozen=True, eq=False)
class Repetition:
    """A stretch of a sequence in which every token equals the one a period later.

    Attributes:
        period: tokens of one copy; the smallest that explains the stretch.
        begin: first token of the stretch.
        end: the token after its last one; the stretch is longer than or equal to `MIN_REPEATS`
            periods, and need not end with a whole copy.
        names: equal numbers for equal windows of `width` tokens, one per window of the sequence.
        width: at most period, and at least half of it, so that two windows cover a copy.
    """

    period: int
    begin: int
    end: int
    names: Ints
    width: int


def find_repetition(tokens: Ints, weights: Ints, least_period: int = 1) -> Repetition | None:
    """Return the repetition of the greatest weight; of equal ones, that of the shortest period.

    All maximal stretches of at least `MIN_REPEATS` copies are compared, wherever they lie, so that
    neither what comes before (a warm-up) nor what comes after can hide one.

    Equal windows of 1, 2, 4, ... tokens get equal names (Karp, Miller and Rosenberg 1972, "Rapid
    identification of repeated patterns"). In a stretch of smallest period p, and for the power of
    two w with w/2 < p <= w, every window of w tokens lies exactly p behind its previous occurrence:
    a nearer one would give the stretch a smaller period (Fine and Wilf 1965). So the stretches of
    these periods are the runs of one distance, read off in one pass. One sort per power of two:
    O(n log n) per pass and O(n log^2 n) in all, in numpy.

    Args:
        tokens: the sequence.
        weights: what each token counts; not negative.
        least_period: shorter periods are left out.

    Returns:
        the repetition, or None where nothing repeats.
    """
    best: Repetition | None = None
    best_weight = -1
    total = np.concatenate([[0], np.cumsum(weights)])
    half, half_width = tokens, 1
    keys, width = tokens, 1
    while MIN_REPEATS * (width // 2 + 1) <= len(tokens):
        if best is not None and _excludes(best, width // 2 + 1, len(tokens)):
            break
        names, back = _name(keys)
        if width == 1:
            half = names
        if not back.any():
            break  # no window of this length occurs twice, hence no longer one either
        turns = np.flatnonzero(np.diff(back)) + 1
        first, last = np.append(0, turns), np.append(turns, len(back))
        period = back[first]
        begin, end = first - period, last - 1 + width
        fits = (period > width // 2) & (period <= width) & (period >= least_period)
        fits &= end - begin >= MIN_REPEATS * period
        weight = np.where(fits, total[np.where(fits, end, 0)] - total[begin], -1)
        # Of equal weights the shorter period: numbers of one level are not in order of period.
        at = np.lexsort((period, -weight))[0]
        if weight[at] > best_weight:
            best_weight = int(weight[at])
            best = Repetition(int(period[at]), int(begin[at]), int(end[at]), half, half_width)
        half, half_width = names, width
        keys = names[:-width] * (names.max() + 1) + names[width:]
        width *= 2
    return best


def _excludes(found: Repetition, period: int, length: int) -> bool:
    """Whether no stretch of at least this period fits beside the one found, of a shorter period.

    By Fine and Wilf the two share less than the sum p + q of their periods. So the other one, 3 q
    long or more, either leaves more than 2 q - p tokens on one side of the stretch found, or holds
    it whole, and then q is at least its length - p.
    """
    room = max(found.begin, length - found.end)
    is_held = MIN_REPEATS * (found.end - found.begin - found.period + 1) <= length
    return not is_held and (MIN_REPEATS - 1) * period - found.period >= room


def _name(keys: Ints) -> tuple[Ints, Ints]:
    """Number equal keys alike; say how far back the previous equal one lies, 0 for none."""
    order = np.argsort(keys, kind="stable")
    is_again = np.diff(keys[order]) == 0
    names, back = np.empty_like(order), np.zeros_like(order)
    names[order] = np.append(0, np.cumsum(~is_again))
    back[order[1:]] = np.where(is_again, np.diff(order), 0)
    return names, back


def copies(repetition: Repetition, at: int) -> Ints:
    """Return where the copies of a unit begin, in the whole sequence.

    Args:
        repetition: what repeats.
        at: where one copy begins: a token of the stretch, with a whole copy behind it.

    Returns:
        the first tokens of all copies that stand in a row of `MIN_REPEATS` or more, in order; they
        do not overlap.
    """
    period, shift = repetition.period, repetition.period - repetition.width
    names = repetition.names
    left, right = names[: len(names) - shift], names[shift:]
    is_copy = (left == names[at]) & (right == names[at + shift])
    reach = (MIN_REPEATS - 1) * period
    in_row = np.zeros_like(is_copy)
    if len(is_copy) > reach:
        opens = np.logical_and.reduce(
            [
                is_copy[number * period : len(is_copy) - reach + number * period]
                for number in range(MIN_REPEATS)
            ]
        )
        for number in range(MIN_REPEATS):
            in_row[number * period : len(is_copy) - reach + number * period] |= opens
    begins = np.flatnonzero(in_row)
    return begins[np.diff(begins, prepend=-period) >= period]


def bounds(begins: Ints, period: int, weights: Ints) -> tuple[Ints, Ints]:
    """Turn exact copies into steps that may differ a little, and say where each one ends.

    Between two copies that do not touch, a rest shorter than half a unit is an addition to the copy
    before it. A rest of half to one and a half units is one step that differs (something left out,
    added or replaced). Neither may weigh more than that share of a typical copy. Any other rest is
    not a step at all.

    Args:
        begins: of `copies`.
        period: tokens of one copy.
        weights: what each token of the sequence counts.

    Returns:
        the first token of each step, and the token after its last one.
    """
    total = np.append(0, np.cumsum(weights))
    weight = np.median(total[begins + period] - total[begins])
    ends, following = begins[:-1] + period, begins[1:]
    rest, extra = following - ends, total[following] - total[ends]
    is_addition = (2 * rest < period) & (2 * extra <= weight)
    differs = (2 * rest >= period) & (2 * rest <= 3 * period) & (2 * extra <= 3 * weight)
    first = np.concatenate([begins, ends[differs]])
    last = np.concatenate(
        [np.where(is_addition, following, ends), begins[-1:] + period, following[differs]]
    )
    order = np.argsort(first)
    return first[order], last[order]
