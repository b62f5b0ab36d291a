"""The spike-and-slab prior and its tilted moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epslab._array import Array, as_real_array, expit, log1m, log_add_exp, log_of, namespace_of
from epslab._natural import Moments, Natural, Tilted
from epslab.priors._base import BoundPrior, PairCovariance


@dataclass(frozen=True, eq=False)
class SpikeSlabPrior:
    """Each coefficient is zero, or Gaussian around zero with the slab's variance.

    Implements :eq:`prior`.

    Parameters
    ----------
    inclusion : float or array of shape (d,)
        Prior probability that the coefficient is not zero, from 0 (always out) to 1 (always in,
        a plain Gaussian prior).
    slab_variance : float or array of shape (d,)
        Variance of the coefficient if it is not zero.

    Examples
    --------
    >>> import epslab as es
    >>> es.SpikeSlabPrior(inclusion=0.2, slab_variance=1.0)
    SpikeSlabPrior(inclusion=0.2, slab_variance=1.0)
    """

    inclusion: Any
    slab_variance: Any

    def __post_init__(self) -> None:
        """Refuse what is not a probability or not a positive variance."""
        inclusion = _checked(self.inclusion, "inclusion")
        xp = namespace_of(inclusion)
        if not bool(xp.all((inclusion >= 0) & (inclusion <= 1))):
            msg = f"inclusion must lie between 0 and 1, got {_span(inclusion)}"
            raise ValueError(msg)
        slab_variance = _checked(self.slab_variance, "slab_variance")
        if not bool(namespace_of(slab_variance).all(slab_variance > 0)):
            msg = f"slab_variance must be positive, got {_span(slab_variance)}"
            raise ValueError(msg)

    def bound(self, n_features: int, like: Array) -> BoundSpikeSlab:
        """Spread the settings over `n_features` features, in the library of `like`."""
        xp = namespace_of(like)
        spread = []
        for name in ("inclusion", "slab_variance"):
            values = as_real_array(getattr(self, name), name, like=like)
            if values.ndim == 1 and values.shape[0] != n_features:
                msg = (
                    f"{name} must be one number or one per feature: "
                    f"got {values.shape[0]} numbers for {n_features} features"
                )
                raise ValueError(msg)
            spread.append(xp.asarray(xp.broadcast_to(values, (n_features,)), copy=True))
        return BoundSpikeSlab(*spread)


@dataclass(frozen=True, eq=False)
class BoundSpikeSlab(BoundPrior):
    """A spike-and-slab prior with one inclusion and one slab variance per feature.

    Parameters
    ----------
    inclusion, slab_variance : arrays of shape (d,)
    """

    inclusion: Array
    slab_variance: Array

    @property
    def scale(self) -> Array:
        """The slab variance."""
        return self.slab_variance

    @property
    def cavity_floor(self) -> Array:
        """Minus the slab's precision: below it the slab times the cavity has no integral."""
        return -1.0 / self.slab_variance

    def take(self, indices: Array) -> BoundSpikeSlab:
        """The prior of the chosen features."""
        xp = namespace_of(self.inclusion)
        return BoundSpikeSlab(
            xp.take(self.inclusion, indices), xp.take(self.slab_variance, indices)
        )

    def moments(self) -> Moments:
        """Mean 0 and variance inclusion times slab variance."""
        variance = self.inclusion * self.slab_variance
        return Moments(0.0 * variance, variance)

    def tilted(self, cavity: Natural) -> Tilted:
        """Moments of the prior times Gaussian cavities.

        Implements :eq:`tilted-slab`, :eq:`tilted-inclusion`, :eq:`tilted-mean`,
        :eq:`tilted-variance`, :eq:`tilted-norm` and :eq:`site-target`.

        Symbols: h1, h2 = cavity.shift, cavity.precision; g = slab precision + h2; k = h1^2/g.

        Parameters
        ----------
        cavity : Natural, arrays of shape (d,)
            Precisions may be negative as long as they exceed `cavity_floor`.

        Notes
        -----
        The moments are the derivatives of the log norm, :eq:`tilted-derivatives`. Odds are formed
        in log space; finite for |shift| up to 1e150 (slab variance 1). No term
        is a difference of large numbers: variance and site are sums of positive parts.
        """
        xp = namespace_of(cavity.shift)
        log_in = log_of(self.inclusion)
        log_out = log1m(self.inclusion)
        g, slab_mean, k, log_slab = self._slab(cavity)
        log_odds = log_in - log_out + log_slab
        pip, spike = expit(log_odds), expit(-log_odds)
        # Where k overflows the spike has long underflowed, and their product is 0 in truth.
        qk = spike * xp.where(spike > 0, k, 0.0)
        # Two forms of one numerator, so that either sign of the cavity leaves a sum of like signs
        # wherever the true value is one.
        numerator = xp.where(
            cavity.precision < 0,
            g - cavity.precision * pip * (1.0 + qk),
            1.0 / self.slab_variance + cavity.precision * (spike - pip * qk),
        )
        return Tilted(
            log_norm=log_add_exp(log_out, log_in + log_slab),
            mean=pip * slab_mean,
            variance=(pip / g) * (1.0 + qk),
            inclusion_probability=pip,
            site=Natural(-cavity.shift * (qk / (1.0 + qk)), numerator / (pip * (1.0 + qk))),
        )

    def tilted_curvature(self, cavity: Natural, center: Moments) -> PairCovariance:
        """Covariance of ``(x, -x^2/2)``, ``x = (w - center.mean) / sd``, under the tilted factors.

        Implements :eq:`tilted-curvature`.

        Symbols: omega, a = whitened slab variance and distance of slab and spike;
        third, fourth = the excess moments of the mixture about its mean.
        """
        xp = namespace_of(cavity.shift)
        log_odds = log_of(self.inclusion) - log1m(self.inclusion)
        g, slab_mean, _, log_slab = self._slab(cavity)
        pip, spike = expit(log_odds + log_slab), expit(-(log_odds + log_slab))
        sd = xp.sqrt(center.variance)
        a = slab_mean / sd
        omega = 1.0 / (g * center.variance)
        mean = (pip * slab_mean - center.mean) / sd
        spread = pip * spike * a * a
        variance = pip * omega + spread
        third = spread * a * (spike - pip) + 3.0 * pip * spike * a * omega
        fourth = (
            spread * a * a * (pip - spike) ** 2
            + 2.0 * spread * omega * (3.0 * spike - pip)
            + pip * omega * omega * (2.0 + spike)
        )
        cross = 2.0 * mean * variance + third
        quadratic = 4.0 * mean * mean * variance + 4.0 * mean * third + fourth
        return PairCovariance(variance, -0.5 * cross, 0.25 * quadratic)

    def _slab(self, cavity: Natural) -> tuple[Array, Array, Array, Array]:
        """Precision, mean, k and log norm of the slab times the cavity, :eq:`tilted-slab`."""
        xp = namespace_of(cavity.shift)
        g = 1.0 / self.slab_variance + cavity.precision
        slab_mean = cavity.shift / g
        k = cavity.shift * slab_mean
        log_slab = 0.5 * k - 0.5 * xp.log1p(self.slab_variance * cavity.precision)
        return g, slab_mean, k, log_slab


def _checked(value: Any, name: str) -> Array:
    """A finite number or 1-d array of them, in its own library."""
    array = as_real_array(value, name)
    xp = namespace_of(array)
    if array.ndim > 1:
        msg = f"{name} must be one number or a 1-d array, got an array of shape {array.shape}"
        raise ValueError(msg)
    if not bool(xp.all(xp.isfinite(array))):
        msg = f"{name} must be finite, got {_span(array)}"
        raise ValueError(msg)
    return array


def _span(array: Array) -> str:
    """The value, or the range of values, for an error message."""
    if array.ndim == 0:
        return f"{float(array):g}"
    xp = namespace_of(array)
    if array.shape[0] == 0:
        return "no numbers"
    return f"values from {float(xp.min(array)):g} to {float(xp.max(array)):g}"
