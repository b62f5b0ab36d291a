"""How many digits a conditioning has lost, and how to get those of the mean back."""

from __future__ import annotations

from typing import Protocol

from epslab._array import Array, namespace_of
from epslab._natural import Moments, Natural
from epslab.likelihoods._base import Likelihood

# Pivots whose squares span more than this: the mean is refined, since u times the condition times
# the mean in prior standard deviations would show in the certificate.
REFINE_ABOVE = 1e6


class Factored(Protocol):
    """A Gaussian that keeps the triangular factor it was conditioned with."""

    sites: Natural
    factor: Array

    @property
    def likelihood(self) -> Likelihood:
        """What was conditioned."""

    def times_covariance(self, vector: Array) -> Array:
        """The covariance times a vector (d,)."""


def spread(factor: Array) -> float:
    """Ratio of the largest to the smallest squared pivot: a lower bound of the condition."""
    xp = namespace_of(factor)
    if factor.shape[0] == 0:
        return 1.0
    pivots = xp.linalg.diagonal(factor)
    return (float(xp.max(pivots)) / float(xp.min(pivots))) ** 2


def refined(gaussian: Factored, moments: Moments) -> tuple[Moments, Moments]:
    """Moments after a step of iterative refinement of the mean, and what rounding leaves in them.

    Implements :eq:`refinement`. The residual of the normal equations is formed from the data, not
    from a Gram matrix, and so carries the digits that squaring has lost; the size of a second
    correction tells how much the first has left.
    """
    xp = namespace_of(moments.mean)
    mean = moments.mean + _correction(gaussian, moments.mean)
    unit = float(xp.finfo(mean.dtype).eps) * spread(gaussian.factor)
    rounding = Moments(xp.abs(_correction(gaussian, mean)), unit * moments.variance)
    return Moments(mean, moments.variance), rounding


def _correction(gaussian: Factored, mean: Array) -> Array:
    """What the normal equations, with their residual from the data, would add to the mean."""
    likelihood, sites = gaussian.likelihood, gaussian.sites
    error = likelihood.y - likelihood.columns.times(mean)
    unmet = likelihood.columns.transposed_times(error) / likelihood.noise_variance
    return gaussian.times_covariance(unmet + sites.shift - sites.precision * mean)
