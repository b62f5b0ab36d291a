"""Random designs, noise and sites of every sign that tests of several files draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def regression(
    rng: np.random.Generator, n: int, d: int, noise_share: float = 0.1
) -> tuple[Array, Array, float, Array]:
    """X, y, noise variance and slab variances; the noise in units of the signal's variance."""
    X = rng.standard_normal((n, d))
    slab = 10 ** rng.uniform(-1, 1, d)
    return (X, *target(rng, X, slab, noise_share), slab)


def target(
    rng: np.random.Generator, X: Array, slab: Array, noise_share: float
) -> tuple[Array, float]:
    """y and the noise variance for coefficients drawn from the slab."""
    noise = noise_share * float((X**2 @ slab).mean())
    w = np.sqrt(slab) * rng.standard_normal(X.shape[1])
    return X @ w + np.sqrt(noise) * rng.standard_normal(X.shape[0]), noise


def precisions(rng: np.random.Generator, slab: Array, lowest: float = -1.0) -> Array:
    """Positive site precisions from ``10^lowest`` to 1000 times the slab's."""
    return np.asarray(10 ** rng.uniform(lowest, 3, len(slab)) / slab)


def lowered(X: Array, noise: float, precision: Array, features: Array, share: float) -> Array:
    """Site precisions with those of `features` lowered, one after the other.

    Each goes `share` of the way to where Q has no integral any more, which makes its marginal
    variance ``1 / (1 - share)`` times as large.
    """
    precision = precision.copy()
    for j in features:
        A = X.T @ X / noise + np.diag(precision)
        precision[j] -= share / np.linalg.inv(A)[j, j]
    return precision


def negated(X: Array, noise: float, precision: Array, features: Array) -> Array:
    """Site precisions with those of `features` at minus half of what the data give each.

    A feature to which the others, once negative, leave nothing of the data keeps its own.
    """
    precision = precision.copy()
    for j in features:
        A = X.T @ X / noise + np.diag(precision)
        whole = 1 / np.linalg.inv(A)[j, j]
        from_data = whole - precision[j]
        if from_data > 1e-4 * whole:
            precision[j] = -0.5 * from_data
    return precision


def shifts(rng: np.random.Generator, precision: Array) -> Array:
    """Site shifts of the size that goes with the precisions."""
    return np.asarray(rng.standard_normal(len(precision)) * np.sqrt(np.abs(precision) + 1.0))


# Designs in which columns carry nearly the same direction, by what makes them so.
ILL_CONDITIONED = ("duplicates", "constant", "nearly collinear", "graded")


def ill_conditioned(
    rng: np.random.Generator, kind: str, n: int, d: int, gap: float | None = None
) -> Array:
    """A design of the kind that loses digits; `gap` is how much of a column is its own."""
    gap = 10 ** rng.uniform(-8, -1) if gap is None else gap
    X = rng.standard_normal((n, d))
    if kind == "duplicates":
        X[:, 1:] = X[:, :1]
    elif kind == "constant":
        X = 1.0 + gap * X
        X[:, 0] = 1.0
    elif kind == "nearly collinear":
        X = rng.standard_normal((n, 1)) + gap * X
    else:
        rows = np.linalg.qr(rng.standard_normal((n, n))).Q
        X = rows @ (10.0 ** -np.arange(n)[:, None] * X)
    return X
