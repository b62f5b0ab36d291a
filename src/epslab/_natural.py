"""The vocabulary of expectation propagation: Gaussians by natural parameters and by moments.

Sites, cavities and marginals are all one type, `Natural`; the role is in the variable's name and
the algebra of EP is literally ``cavity = marginals - sites``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from epslab._array import Array, namespace_of


@dataclass(frozen=True, slots=True, eq=False)
class Natural:
    """Independent Gaussian factors ``exp(shift w - precision w^2 / 2)``, one per feature.

    Implements :eq:`natural`. A precision may be zero or negative: a factor need not be a
    distribution, only the products that EP forms from it.

    Parameters
    ----------
    shift, precision : arrays of shape (d,)
    """

    shift: Array
    precision: Array

    def __add__(self, other: Natural) -> Natural:
        """Product of the factors."""
        return Natural(self.shift + other.shift, self.precision + other.precision)

    def __sub__(self, other: Natural) -> Natural:
        """Quotient of the factors."""
        return Natural(self.shift - other.shift, self.precision - other.precision)

    def moved(self, target: Natural, step: float | Array) -> Natural:
        """Go the fraction `step` of the way to `target`: :eq:`step`, 1 arrives exactly."""
        return Natural(
            (1.0 - step) * self.shift + step * target.shift,
            (1.0 - step) * self.precision + step * target.precision,
        )

    def where(self, mask: Array, other: Natural) -> Natural:
        """Keep these factors where `mask` holds and take `other`'s elsewhere."""
        xp = namespace_of(self.shift)
        return Natural(
            xp.where(mask, self.shift, other.shift),
            xp.where(mask, self.precision, other.precision),
        )

    def moments(self) -> Moments:
        """Mean and variance of the normalised factors (positive precision assumed)."""
        return Moments(self.shift / self.precision, 1.0 / self.precision)

    def log_norm(self) -> float:
        """Sum of the log integrals of the factors, :eq:`gaussian-norm`."""
        xp = namespace_of(self.shift)
        terms = self.shift * (self.shift / self.precision) - xp.log(self.precision)
        constant = int(self.shift.shape[0]) * math.log(2 * math.pi)
        return 0.5 * (float(xp.sum(terms)) + constant)


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Means and variances.

    Parameters
    ----------
    mean, variance : arrays of shape (d,)
    """

    mean: Array
    variance: Array

    def natural(self) -> Natural:
        """Natural parameters of the Gaussians with these moments."""
        return Natural(self.mean / self.variance, 1.0 / self.variance)


@dataclass(frozen=True, slots=True, eq=False)
class Tilted:
    """The prior's factors times Gaussian cavities, one per feature, normalised.

    Parameters
    ----------
    log_norm : array of shape (d,)
        Log of the integral of prior times cavity.
    mean, variance : arrays of shape (d,)
    inclusion_probability : array of shape (d,)
        Probability that the coefficient is not zero.
    site : Natural
        EP's target: the factor that, times the cavity, has this mean and variance.
    """

    log_norm: Array
    mean: Array
    variance: Array
    inclusion_probability: Array
    site: Natural

    def moments(self) -> Moments:
        """Means and variances."""
        return Moments(self.mean, self.variance)
