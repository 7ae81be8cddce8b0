"""How far a median of few values can be trusted."""

import math
import statistics
from collections.abc import Sequence

#: Standard deviations per median absolute deviation, and standard error of a median in those per
#: root of the number of values; both for normally distributed values (the second as their number
#: grows). 1.96 standard errors to either side hold 95 %.
_SIGMA_PER_MAD = 1.4826
_ERROR_OF_MEDIAN = 1.2533
_Z = 1.96
#: Fewer values than this have no spread to speak of. Own choice.
LEAST_VALUES = 3


def median_error(values: Sequence[float]) -> float | None:
    """Return by how much the median of such values may be off by chance, with 95 % confidence.

    From the median absolute deviation, so that a few far values do not widen it. None for fewer
    than `LEAST_VALUES` values.
    """
    if len(values) < LEAST_VALUES:
        return None
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    return _Z * _ERROR_OF_MEDIAN * _SIGMA_PER_MAD * deviation / math.sqrt(len(values))


def difference_error(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return by how much the medians of two samples may differ by chance, with 95 % confidence."""
    errors = median_error(one), median_error(other)
    if errors[0] is None or errors[1] is None:
        return None
    return math.hypot(errors[0], errors[1])
