"""Where sites, cavities and marginals may lie: the proper domain, and the paper's box.

A domain is an object with its own feasibility, its own form of EP's target, and its own idea of
which differences in the certificate a constraint explains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from epslab._array import Array, namespace_of
from epslab._errors import require_number
from epslab._natural import Moments, Natural, Tilted


@dataclass(frozen=True, slots=True)
class Clipped:
    """Which features sit at a constraint.

    Parameters
    ----------
    site, cavity, marginal : boolean arrays of shape (d,)
    """

    site: Array
    cavity: Array
    marginal: Array

    def any(self) -> Array:
        """Features at any constraint."""
        return self.site | self.cavity | self.marginal


class Domain(ABC):
    """The set in which a solver looks for a solution."""

    @abstractmethod
    def nearest_sites(self, sites: Natural, scale: Array) -> Natural:
        """Sites of the domain closest to `sites`, as far as it constrains each by itself."""

    @abstractmethod
    def regular_cavity(self, cavity: Natural, scale: Array) -> Natural:
        """What regular EP tilts in place of `cavity`; the same object where nothing changes."""

    @abstractmethod
    def target(self, tilted: Tilted, cavity: Natural, scale: Array) -> Natural:
        """The site that regular EP moves towards."""

    @abstractmethod
    def outer_marginals(self, tilted: Moments, gaussian: Moments, scale: Array) -> Natural:
        """The double loop's new marginals from P's and Q's moments.

        Implements :eq:`outer-step` with the multipliers of :eq:`lagrangian`.
        """

    @abstractmethod
    def precision_bounds(
        self, marginals: Natural, cavity_floor: Array, scale: Array
    ) -> tuple[Array, Array]:
        """Lowest and highest site precision in the double loop's inner problem."""

    @abstractmethod
    def clipped(self, marginals: Natural, sites: Natural, scale: Array) -> Clipped | None:
        """Features at a constraint, None where the domain has no constraint to be at."""


@dataclass(frozen=True, slots=True)
class Proper(Domain):
    """All sites with a proper Q and proper tilted distributions: the default.

    Implements :eq:`proper`. No constraint can be active at a solution, so that every solution is
    a fixed point of EP.
    """

    def nearest_sites(self, sites: Natural, scale: Array) -> Natural:
        """Properness constrains the sites jointly, so each by itself stays as it is."""
        return sites

    def regular_cavity(self, cavity: Natural, scale: Array) -> Natural:
        """The cavity itself."""
        return cavity

    def target(self, tilted: Tilted, cavity: Natural, scale: Array) -> Natural:
        """The site that matches the tilted moments, :eq:`site-target`."""
        return tilted.site

    def outer_marginals(self, tilted: Moments, gaussian: Moments, scale: Array) -> Natural:
        """Natural parameters of the agreed moments, :eq:`outer-step`."""
        return tilted.natural()

    def precision_bounds(
        self, marginals: Natural, cavity_floor: Array, scale: Array
    ) -> tuple[Array, Array]:
        """No lower bound but properness of Q; above, the cavity must stay proper."""
        xp = namespace_of(scale)
        return xp.full_like(scale, -xp.inf), marginals.precision - cavity_floor

    def clipped(self, marginals: Natural, sites: Natural, scale: Array) -> Clipped | None:
        """Nothing: there is no constraint."""
        return None


@dataclass(frozen=True, slots=True)
class Box(Domain):
    """The paper's constraints: every precision above a small positive bound.

    Implements :eq:`box`. Kept to reproduce the paper; its solutions are usually not fixed points
    of EP, because the constraint is active in them.

    Parameters
    ----------
    eps : float
        Lowest site and cavity precision in units of the slab's precision, so that results do not
        depend on the units of the features. Marginal precisions stay above three times that.
    """

    eps: float = 1e-4

    def __post_init__(self) -> None:
        """Refuse a bound that is not a positive number."""
        require_number(self.eps, "eps", above=0.0, up_to=0.5)

    def nearest_sites(self, sites: Natural, scale: Array) -> Natural:
        """Raise site precisions to the bound."""
        xp = namespace_of(scale)
        return Natural(sites.shift, xp.maximum(sites.precision, self.eps / scale))

    def regular_cavity(self, cavity: Natural, scale: Array) -> Natural:
        """The cavity with its precision raised to the bound, :eq:`box-target`."""
        xp = namespace_of(scale)
        floor = self.eps / scale
        if bool(xp.all(cavity.precision >= floor)):
            return cavity
        return Natural(cavity.shift, xp.maximum(cavity.precision, floor))

    def target(self, tilted: Tilted, cavity: Natural, scale: Array) -> Natural:
        """The matching site; at the bound one that still matches the mean, :eq:`box-target`."""
        floor = self.eps / scale
        at_floor = Natural(tilted.mean * (cavity.precision + floor) - cavity.shift, floor)
        return tilted.site.where(tilted.site.precision >= floor, at_floor)

    def outer_marginals(self, tilted: Moments, gaussian: Moments, scale: Array) -> Natural:
        """As :eq:`multipliers` and :eq:`outer-step` say.

        At a site's bound P has the larger variance, at a cavity's bound Q has, elsewhere they
        agree: so the larger is the right one in every case, and none has to be told apart.
        """
        xp = namespace_of(scale)
        precision = 1.0 / xp.maximum(tilted.variance, gaussian.variance)
        precision = xp.maximum(precision, 3.0 * self.eps / scale)
        return Natural(tilted.mean * precision, precision)

    def precision_bounds(
        self, marginals: Natural, cavity_floor: Array, scale: Array
    ) -> tuple[Array, Array]:
        """From the bound to where the cavity reaches it."""
        floor = self.eps / scale
        return floor, marginals.precision - floor

    def clipped(self, marginals: Natural, sites: Natural, scale: Array) -> Clipped | None:
        """Features within one percent of a bound, :eq:`clipped`."""
        floor = self.eps / scale
        cavity = marginals.precision - sites.precision
        return Clipped(
            site=sites.precision <= 1.01 * floor,
            cavity=cavity <= 1.01 * floor,
            marginal=marginals.precision <= 3.03 * floor,
        )
