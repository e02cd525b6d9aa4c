"""The order of a scheme with exact substeps, from its words alone.

The flow of one operator is the exponential of its Lie derivative, so a word is a product of exponentials of
non-commuting symbols, and a scheme is a weighted sum of such products. It has order p where its series agrees
with ``exp(X_1 + X_2 + ...)`` in every product of at most p symbols. That is a computation in numbers, exact to
round-off: nothing has to be believed.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Series: TypeAlias = Mapping[tuple[int, ...], float]
"""A truncated series in non-commuting symbols: a coefficient for each product of symbols."""

_MAX_DEGREE, _MAX_PRODUCTS = 7, 4000
_TOLERANCE = 1e-10


def algebraic_order(words: Sequence[tuple[float, Sequence[tuple[frozenset[int], float]]]], num_operators: int) -> float:
    """Return the order of a weighted sum of words with exact substeps.

    Args:
        words: pairs of a weight and a word; a word is a sequence of letters, pairs of operators and a fraction.
        num_operators: how many operators the words name.

    Returns:
        The order; infinite where no term differs up to the degree that is looked at (7 for two operators, less
        for many), as for one operator or for a single letter that has them all.

    References:
        Hairer, Lubich and Wanner, "Geometric Numerical Integration" (2006), section III.5.

    Example:
        >>> strang = ((frozenset({0}), 0.5), (frozenset({1}), 1.0), (frozenset({0}), 0.5))
        >>> algebraic_order([(1.0, strang)], 2)
        2.0
    """
    symbols = range(num_operators)
    degree = _MAX_DEGREE
    while degree > 3 and num_operators**degree > _MAX_PRODUCTS:
        degree -= 1
    products = [p for d in range(degree + 1) for p in itertools.product(symbols, repeat=d)]
    parts = [(weight, _expand(word, products)) for weight, word in words]
    for product in products:
        received = math.fsum(weight * series[product] for weight, series in parts)
        if abs(received - 1 / math.factorial(len(product))) > _TOLERANCE:
            return float(len(product) - 1)
    return math.inf


def _expand(word: Sequence[tuple[frozenset[int], float]], products: Sequence[tuple[int, ...]]) -> Series:
    """Return the series of a word: the first letter acts first, so it stands to the left."""
    series = {product: float(not product) for product in products}
    for operators, fraction in word:
        series = {product: _times_exponential(series, product, operators, fraction) for product in products}
    return series


def _times_exponential(series: Series, product: tuple[int, ...], operators: frozenset[int], fraction: float) -> float:
    total, factor = series[product], 1.0
    for length in range(1, len(product) + 1):
        if product[-length] not in operators:
            break
        factor *= fraction / length
        total += series[product[:-length]] * factor
    return total
