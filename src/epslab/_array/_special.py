"""Special functions that the array API standard lacks, free of overflow."""

from __future__ import annotations

from epslab._array._namespace import Array, namespace_of


def expit(x: Array) -> Array:
    """Logistic function, accurate in both tails (never ``1 - expit``)."""
    xp = namespace_of(x)
    small = xp.exp(-xp.abs(x))  # in (0, 1]: no overflow on either side
    return xp.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def log_of(x: Array) -> Array:
    """Natural logarithm with ``log(0) = -inf`` and no warning."""
    xp = namespace_of(x)
    positive = x > 0
    return xp.where(positive, xp.log(xp.where(positive, x, xp.ones_like(x))), -xp.inf)


def log_add_exp(a: Array, b: Array) -> Array:
    """``log(exp(a) + exp(b))`` where either may be ``-inf``."""
    xp = namespace_of(a)
    high = xp.maximum(a, b)
    low = xp.minimum(a, b)
    gap = xp.where(low == -xp.inf, -xp.inf, low - xp.where(high == -xp.inf, 0.0, high))
    return high + xp.log1p(xp.exp(gap))


def log1m(p: Array) -> Array:
    """``log(1 - p)`` for probabilities, with ``-inf`` at 1 and no warning; exact for tiny `p`."""
    xp = namespace_of(p)
    below = p < 1
    return xp.where(below, xp.log1p(-xp.where(below, p, xp.zeros_like(p))), -xp.inf)
