"""The energy of EP and the certificate: how far sites and marginals are from a solution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from epslab._array import Array, NotPositiveDefinite, namespace_of, quiet
from epslab._domain import Clipped, Domain, Proper
from epslab._natural import Moments, Natural, Tilted


@runtime_checkable
class Model(Protocol):
    """What energy and certificate need of a problem; arrays cover the features that were kept."""

    @property
    def scale(self) -> Array:
        """Slab variances, the certificate's unit."""

    @property
    def open(self) -> Array:
        """Boolean mask of the features that carry a question."""

    @property
    def cavity_floor(self) -> Array:
        """Cavity precisions have to exceed this."""

    def condition(self, sites: Natural) -> Any:
        """Q given sites: an object with `moments` and `log_norm`."""

    def tilted(self, cavity: Natural) -> Tilted:
        """P given a cavity."""

    def gather(self, natural: Natural, name: str) -> Natural:
        """Keep the features that take part."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far from a solution, and how many features a constraint holds.

    Parameters
    ----------
    residual : float
        Largest difference between the three sets of moments, unit-free, :eq:`residual`.
    n_active : int
        Features at a constraint; with any, the certificate is one of the constrained problem.
    """

    residual: float
    n_active: int


def is_proper(model: Model, marginals: Natural, sites: Natural) -> bool:
    """Whether every marginal and every cavity is a proper one, :eq:`proper`."""
    xp = namespace_of(sites.shift)
    cavity = marginals - sites
    proper = (cavity.precision > model.cavity_floor) & (marginals.precision > 0)
    finite = xp.isfinite(cavity.shift) & xp.isfinite(marginals.shift)
    finite = finite & xp.isfinite(cavity.precision)
    return bool(xp.all((proper & finite) | ~model.open))


def energy_of(gaussian: Any, tilted: Tilted, marginals: Natural) -> float:
    """Energy from its three parts, :eq:`energy`."""
    xp = namespace_of(tilted.log_norm)
    return marginals.log_norm() - float(xp.sum(tilted.log_norm)) - float(gaussian.log_norm)


def certify(
    model: Model,
    gaussian: Any,
    tilted: Moments,
    marginals: Natural,
    clipped: Clipped | None,
) -> Certificate:
    """Compare the moments of Q, of P and of the marginals.

    Implements :eq:`residual` and, where `clipped` is given, :eq:`clipped`. What rounding may have
    left in Q's moments is added: a certificate must not rest on digits that are not there.
    """
    xp = namespace_of(model.scale)
    joint = gaussian.moments
    own = marginals.moments()
    sd = xp.sqrt(model.scale)
    means = xp.maximum(
        xp.maximum(xp.abs(joint.mean - tilted.mean), xp.abs(joint.mean - own.mean)),
        xp.abs(tilted.mean - own.mean),
    )
    q, p, v = (moments.variance / model.scale for moments in (joint, tilted, own))
    lost_mean, lost_variance = 0.0, 0.0
    if gaussian.rounding is not None:
        lost_mean = gaussian.rounding.mean / sd
        lost_variance = gaussian.rounding.variance / model.scale
    variances = _variance_gaps(q, p, v, clipped)
    worst = _largest(model.open, xp.maximum(means / sd + lost_mean, variances + lost_variance))
    if clipped is None:
        return Certificate(worst, 0)
    held = clipped.any() & model.open
    return Certificate(worst, int(xp.sum(xp.astype(held, xp.int64))))


def _variance_gaps(q: Array, p: Array, v: Array, clipped: Clipped | None) -> Array:
    """Largest difference of variances, less what a constraint explains, :eq:`clipped`.

    At a site's bound Q may be below P, at a cavity's bound P below Q; the marginal then has to
    agree with the nearer of the two. At a marginal's own bound it may be below either.
    """
    xp = namespace_of(q)
    if clipped is None:
        return xp.maximum(xp.maximum(xp.abs(q - p), xp.abs(q - v)), xp.abs(p - v))
    from_p = xp.where(clipped.marginal & (v < p), 0.0, xp.abs(v - p))
    from_q = xp.where(clipped.marginal & (v < q), 0.0, xp.abs(v - q))
    explained = (clipped.site & (q < p)) | (clipped.cavity & (p < q))
    counted = xp.maximum(xp.maximum(from_p, from_q), xp.abs(q - p))
    return xp.where(explained, xp.minimum(from_p, from_q), counted)


def _largest(mask: Array, values: Array) -> float:
    """Largest value where `mask` holds, at least 0; infinite where any of them is not a number."""
    xp = namespace_of(values)
    if values.shape[0] == 0:
        return 0.0
    largest = float(xp.max(xp.where(mask, xp.where(xp.isnan(values), xp.inf, values), 0.0)))
    return max(largest, 0.0)


def _require_model(problem: Any) -> None:
    if not isinstance(problem, Model):
        msg = f"problem must be a Problem, got {type(problem).__name__}"
        raise TypeError(msg)


def energy(problem: Model, sites: Natural, marginals: Natural) -> float:
    """EP's energy E(v, t) of :eq:`energy`.

    Parameters
    ----------
    problem : Problem
    sites, marginals : Natural, arrays of shape (n_features,)

    Returns
    -------
    float
        Minus EP's log evidence at a fixed point; infinite, or minus infinite, where a factor has
        no integral.

    Notes
    -----
    Its gradient is a difference of moments, :eq:`stationarity`. Maximised over the sites it is
    bounded below, :eq:`lower-bound`.
    """
    _require_model(problem)
    with quiet():
        t, v = problem.gather(sites, "sites"), problem.gather(marginals, "marginals")
        xp = namespace_of(t.shift)
        if not bool(xp.all(v.precision > 0)):
            return math.inf
        if not bool(xp.all(v.precision - t.precision > problem.cavity_floor)):
            return -math.inf
        try:
            gaussian = problem.condition(t)
        except NotPositiveDefinite:
            return -math.inf
        return energy_of(gaussian, problem.tilted(v - t), v)


def residual(
    problem: Model, sites: Natural, marginals: Natural, domain: Domain | None = None
) -> float:
    """The certificate: distance from a fixed point, :eq:`residual`.

    Parameters
    ----------
    problem : Problem
    sites, marginals : Natural, arrays of shape (n_features,)
    domain : Domain, optional
        `Proper()` by default. Under `Box` the differences that an active constraint explains do
        not count.

    Returns
    -------
    float
        Largest difference between the moments of the marginals, of the tilted distributions at
        the cavity, and of Q, in units of the slab. Infinite where one of them does not exist.
        It knows nothing of step sizes, so that a frozen run cannot look converged.

    Notes
    -----
    It bounds a disagreement in slab units, not the error of a probability: near convergence a
    slow solver may still be several residuals away. Trust it up to signal-to-noise ratios
    (``|x|^2 slab_variance / noise_variance``, ``|y|^2 / noise_variance``) of about 1e13; beyond,
    rounding in the moments themselves can exceed what it reports.
    """
    _require_model(problem)
    if domain is not None and not isinstance(domain, Domain):
        msg = f"domain must be Proper() or Box(eps), got {domain!r}"
        raise TypeError(msg)
    with quiet():
        t, v = problem.gather(sites, "sites"), problem.gather(marginals, "marginals")
        if not is_proper(problem, v, t):
            return math.inf
        try:
            gaussian = problem.condition(t)
        except NotPositiveDefinite:
            return math.inf
        tilted = problem.tilted(v - t)
        clipped = (domain or Proper()).clipped(v, t, problem.scale)
        return certify(problem, gaussian, tilted.moments(), v, clipped).residual
