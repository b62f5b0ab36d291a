"""What a prior has to offer: it tilts, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from epslab._array import Array
from epslab._natural import Moments, Natural, Tilted


@dataclass(frozen=True, slots=True)
class PairCovariance:
    """Covariance of ``(x, -x^2 / 2)`` under a distribution of a scalar `x`, one per feature.

    Parameters
    ----------
    linear, cross, quadratic : arrays of shape (d,)
        ``Var(x)``, ``Cov(x, -x^2/2)`` and ``Var(x^2/2)``.
    """

    linear: Array
    cross: Array
    quadratic: Array


class BoundPrior(ABC):
    """A prior for a given number of features: independent factors, one per feature."""

    @property
    @abstractmethod
    def scale(self) -> Array:
        """The variance that serves as the unit of the certificate, per feature."""

    @property
    @abstractmethod
    def cavity_floor(self) -> Array:
        """Cavity precisions have to stay above this; the tilted norm is infinite at it."""

    @abstractmethod
    def moments(self) -> Moments:
        """Mean and variance of the prior itself."""

    @abstractmethod
    def tilted(self, cavity: Natural) -> Tilted:
        """Moments of prior times cavity."""

    @abstractmethod
    def tilted_curvature(self, cavity: Natural, center: Moments) -> PairCovariance:
        """Curvature of the tilted log norm in coordinates whitened by `center`."""
