"""How many digits a conditioning has lost, and how to get those of the mean back."""

from __future__ import annotations

from typing import Protocol

from epslab._array import Array, namespace_of
from epslab._natural import Moments, Natural
from epslab.likelihoods._base import Likelihood

# Where the numbers in the factored matrix span more than this the mean is refined, since rounding
# times the span times the mean in prior standard deviations would show in the certificate.
REFINE_ABOVE = 1e6


class Factored(Protocol):
    """A Gaussian that knows the span of the numbers in the matrix it was conditioned with.

    Dual: the largest diagonal entry of C over the noise variance. Primal: the largest diagonal
    entry of A over its squared pivot. Rounding times the span bounds the variances' relative error.
    """

    sites: Natural
    span: float

    @property
    def likelihood(self) -> Likelihood:
        """What was conditioned."""

    def times_covariance(self, vector: Array) -> Array:
        """The covariance times a vector (d,)."""


def refined(gaussian: Factored, moments: Moments) -> tuple[Moments, Moments]:
    """Moments after a step of iterative refinement of the mean, and what rounding leaves in them.

    Implements :eq:`refinement`. The residual of the normal equations is formed from the data, not
    from a Gram matrix, and so carries the digits that squaring has lost; the size of a second
    correction tells how much the first has left.
    """
    xp = namespace_of(moments.mean)
    mean = moments.mean + _correction(gaussian, moments.mean)
    unit = float(xp.finfo(mean.dtype).eps) * gaussian.span
    rounding = Moments(xp.abs(_correction(gaussian, mean)), unit * moments.variance)
    return Moments(mean, moments.variance), rounding


def _correction(gaussian: Factored, mean: Array) -> Array:
    """What the normal equations, with their residual from the data, would add to the mean."""
    likelihood, sites = gaussian.likelihood, gaussian.sites
    error = likelihood.y - likelihood.columns.times(mean)
    unmet = likelihood.columns.transposed_times(error) / likelihood.noise_variance
    return gaussian.times_covariance(unmet + sites.shift - sites.precision * mean)
