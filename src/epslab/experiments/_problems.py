"""Simulated problems: data, truth, and the settings they were drawn with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from epslab._problem import Problem
from epslab.priors import SpikeSlabPrior

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Simulated:
    """Training and test data with the coefficients that made them.

    Parameters
    ----------
    X, y : arrays of shape (n, d) and (n,)
    X_test, y_test : arrays of shape (m, d) and (m,)
    coefficients : array of shape (d,)
    noise_variance, inclusion, slab_variance : float
        What the data were drawn with.
    """

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    coefficients: Array
    noise_variance: float
    inclusion: float
    slab_variance: float

    def problem(self) -> Problem:
        """The training data with the settings they were drawn with."""
        prior = SpikeSlabPrior(self.inclusion, self.slab_variance)
        return Problem(self.X, self.y, noise_variance=self.noise_variance, prior=prior)

    def test_error(self, prediction: Array) -> float:
        """Mean squared error on the test rows."""
        return float(np.mean((prediction - self.y_test) ** 2))


def paper_sets(count: int = 100, seed: int = 0) -> Iterator[Simulated]:
    """Draw the setting of Hernandez-Lobato and Hernandez-Lobato's Figure 1, set after set.

    25 features, 10 training and 1000 test rows uniform on the unit sphere, each coefficient
    standard normal with probability .2 and else zero, noise of standard deviation .005. One
    generator draws all sets in order.
    """
    rng = np.random.default_rng(seed)
    d, n, m, inclusion, noise = 25, 10, 1000, 0.2, 0.005
    for _ in range(count):
        included = rng.random(d) < inclusion
        coefficients = np.where(included, rng.standard_normal(d), 0.0)
        X = rng.standard_normal((n, d))
        X_test = rng.standard_normal((m, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        X_test /= np.linalg.norm(X_test, axis=1, keepdims=True)
        y = X @ coefficients + noise * rng.standard_normal(n)
        y_test = X_test @ coefficients + noise * rng.standard_normal(m)
        yield Simulated(X, y, X_test, y_test, coefficients, noise**2, inclusion, 1.0)


def compressive_sensing(seed: int, n: int = 100, d: int = 512, n_spikes: int = 20) -> Simulated:
    """Draw spikes of height one seen through a random matrix with far fewer rows than columns.

    Entries of the matrix are N(0, 1/n), spikes have random signs and places, the noise has
    standard deviation .005, and there are 1000 noisy test rows of the same law.
    """
    rng = np.random.default_rng([2, seed])
    noise, m = 0.005, 1000
    X = rng.standard_normal((n, d)) / np.sqrt(n)
    coefficients = np.zeros(d)
    places = rng.choice(d, n_spikes, replace=False)
    coefficients[places] = rng.choice([-1.0, 1.0], n_spikes)
    y = X @ coefficients + noise * rng.standard_normal(n)
    X_test = rng.standard_normal((m, d)) / np.sqrt(n)
    y_test = X_test @ coefficients + noise * rng.standard_normal(m)
    return Simulated(X, y, X_test, y_test, coefficients, noise**2, n_spikes / d, 1.0)
