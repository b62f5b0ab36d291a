"""The double loop: EP that is certain to converge.

Each iteration:

1. outer step: new marginals from the moments on which P and Q agree, in closed form
   (:eq:`outer-step`);
2. inner problem: maximise the energy over the sites with the marginals held fixed
   (:eq:`inner-problem`), concave, by Newton's method in coordinates whitened by Q, where its
   Hessian is ``blockdiag(C, C o C / 2) + T`` with C the posterior correlations and T a 2 x 2
   block per feature (:eq:`inner-hessian`, :eq:`whitening`, :eq:`projected-newton`).

The energy never rises (:eq:`energy-falls`). With `Box` this is PC-EP of Hernandez-Lobato and
Hernandez-Lobato; with `Proper`, the default, the same loop without the constraints that the bound
does not need (:eq:`bounded-without-box`).

An iteration costs five to thirty conditionings and as many Newton systems of order 2 d. For
reference, or where regular EP does not converge.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from epslab import _array
from epslab._array import Array, NotPositiveDefinite, namespace_of
from epslab._domain import Domain
from epslab._driver import EPState, repeat
from epslab._energy import is_proper
from epslab._errors import Breakdown, require_count
from epslab._natural import Natural, Tilted
from epslab._problem import Problem
from epslab._result import FitResult
from epslab.likelihoods import Gaussian
from epslab.solvers._base import EPSolver
from epslab.solvers._ep_common import measured, regular_start, start_sites

_INNER_STEPS = 200
_HALVINGS = 40
_SUFFICIENT = 1e-4
# Gains below this share of the energy are rounding: the full Newton step is then taken on trust.
_ROUNDING = 1e-10
# The theorem says that the energy never rises; more than this, relative, is a breakdown.
_RISE = 1e-9
# No decrement can be told from zero below this.
_RESOLVED = 1e-26
# Shares of the way to half the marginals at which an inner problem may start.
_FROM_HERE, _FROM_HALF = (0.0, 1 / 64, 1 / 16, 1 / 4, 1.0), (1.0,)
# Distance to a bound, in units of the marginal precision, at which a precision counts as held.
_NEAR = 1e-2

# A step may widen a marginal of Q, or narrow a cavity's room, by this factor at most.
_TO_EDGE = 2.0


@dataclass(frozen=True, kw_only=True)
class DoubleLoopEP(EPSolver):
    """EP by a double loop whose energy never rises.

    Parameters
    ----------
    tol : float
        Largest residual that counts as converged.
    max_iter : int
        Largest number of outer steps.
    domain : Domain
        `Proper()`, or the paper's `Box(eps)`.
    max_features : int
        Refuse larger problems: the Newton systems are dense, of order 2 d.

    Examples
    --------
    >>> import numpy as np
    >>> import epslab as es
    >>> prior = es.SpikeSlabPrior(inclusion=0.5, slab_variance=1.0)
    >>> problem = es.Problem(np.eye(2), [0.0, 2.0], noise_variance=0.1, prior=prior)
    >>> result = es.solve(problem, es.DoubleLoopEP(tol=1e-9))
    >>> result.converged
    True
    >>> round(result.log_evidence, 4)
    -3.6752
    """

    name: ClassVar[str] = "double-loop-ep"
    max_features: int = 4000

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        EPSolver.__post_init__(self)
        require_count(self.max_features, "max_features")

    def init(self, problem: Problem, start: FitResult | Natural | None) -> EPState:
        """Solve the first inner problem, unless the start already carries its certificate."""
        self._require_size(problem)
        state = regular_start(problem, self.domain, start)
        _, marginals = start_sites(problem, start, self.domain)
        if marginals is not None and is_proper(problem, marginals, state.sites):
            state = measured(
                problem, self.domain, state.sites, marginals, state.gaussian, state.n_conditionings
            )
        if state.residual <= self.tol:
            return state
        try:
            return self._inner(problem, state, state.marginals)
        except (Breakdown, NotPositiveDefinite):
            return state  # a good state; the first step will meet the same difficulty and say so

    def step(self, problem: Problem, state: EPState) -> EPState:
        """Outer step, then the inner problem from the sites at hand."""
        marginals = self.domain.outer_marginals(
            state.tilted.moments(),
            state.gaussian.moments,
            problem.scale,
        ).where(problem.open, state.gaussian.marginals())
        new = self._inner(problem, state, marginals)
        if new.energy - state.energy > _RISE * max(1.0, abs(state.energy)):
            msg = "the energy rose: an inner problem is not solved, or its digits are gone"
            raise Breakdown(msg)
        return new

    def _inner(self, problem: Problem, state: EPState, marginals: Natural) -> EPState:
        """Maximise the energy over the sites at fixed marginals."""
        inner = _InnerProblem(problem, self.domain, marginals)
        # An error delta in whitened moments shows as at most delta in the residual, and as
        # delta^2 / 2 in the energy: far below what either has to resolve.
        enough = max(min((0.01 * self.tol) ** 2, _ROUNDING), _RESOLVED)
        try:
            point = _last(inner, inner.feasible(state, _FROM_HERE), enough)
        except Breakdown:  # stuck next to the edge: half the marginals lie well inside
            point = _last(inner, inner.feasible(state, _FROM_HALF), enough)
        if point.decrement > 1e-6 * max(1.0, abs(point.at.value)):
            msg = "the inner problem is far from solved after its last step"
            raise Breakdown(msg)
        return measured(
            problem,
            self.domain,
            point.at.sites,
            marginals,
            point.at.gaussian,
            point.n_conditionings,
        )

    def _require_size(self, problem: Problem) -> None:
        n_features = problem.kept.shape[0]
        if n_features > self.max_features:
            gigabytes = 4 * (2 * n_features) ** 2 * 8 / 1e9
            msg = (
                f"problem has {n_features} features and DoubleLoopEP takes at most "
                f"{self.max_features}: it solves dense systems of twice that order, "
                f"{gigabytes:.1f} GB; take ParallelEP, or raise max_features"
            )
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Sites that may become the next point of the inner problem.

    `value` is the energy, less the part that only the marginals enter.
    """

    sites: Natural
    cavity: Natural
    gaussian: Gaussian
    tilted: Tilted
    value: float


@dataclass(frozen=True, slots=True)
class _Point:
    """A point of the inner problem and the step from it.

    Parameters
    ----------
    at : _Trial
    direction : Natural
        Newton's step; along the gradient for precisions that a bound is about to hold.
    free_gain : float
        First-order gain of the full step in the coordinates that no bound holds.
    held_slope : array of shape (d,)
        Derivative of the value in the precisions that a bound is about to hold, else zero.
    decrement : float
        First-order gain of the full step brought back to the bounds; zero at the solution only.
    n_conditionings : int
    """

    at: _Trial
    direction: Natural
    free_gain: float
    held_slope: Array
    decrement: float
    n_conditionings: int


def _last(inner: _InnerProblem, point: _Point, enough: float) -> _Point:
    """The solution of the inner problem, or how far its steps got."""
    steps = repeat(inner.step, point, lambda p: p.decrement <= enough, _INNER_STEPS)
    return deque(steps, maxlen=1).pop()


class _InnerProblem:
    """Maximise the energy over the sites: :eq:`inner-problem`, by projected Newton steps.

    Implements :eq:`inner-gradient`, :eq:`inner-hessian`, :eq:`whitening` and
    :eq:`projected-newton`.
    """

    def __init__(self, problem: Problem, domain: Domain, marginals: Natural) -> None:
        self.problem = problem
        self.marginals = marginals
        self.lowest, self.highest = domain.precision_bounds(
            marginals, problem.cavity_floor, problem.scale
        )

    def feasible(self, state: EPState, shares: tuple[float, ...]) -> _Point:
        """The sites at hand, or the nearest feasible ones towards half the marginals.

        Implements :eq:`segment`.
        """
        n_conditionings = state.n_conditionings
        half = Natural(0.5 * self.marginals.shift, 0.5 * self.marginals.precision)
        half = self.problem.with_settled(half)
        for share in shares:
            sites = state.sites.moved(half, share)
            if not self._within_bounds(sites):
                continue
            n_conditionings += 1
            trial = self._trial(sites)
            if trial is not None:
                return self._point(trial, n_conditionings)
        msg = "half the marginals are not feasible sites"
        raise Breakdown(msg)

    def step(self, point: _Point) -> _Point:
        """Newton's step, brought back to the bounds, halved until it gains enough."""
        xp = namespace_of(point.held_slope)
        n_conditionings = point.n_conditionings
        trusted = point.decrement < _ROUNDING * max(1.0, abs(point.at.value))
        for halving in range(_HALVINGS):
            share = 0.5**halving
            sites = self._moved(point.at, point.direction, share)
            n_conditionings += 1
            trial = self._trial(sites)
            if trial is None or self._nears_the_edge(point.at, trial):
                continue
            held_gain = point.held_slope * (sites.precision - point.at.sites.precision)
            predicted = share * point.free_gain + float(xp.sum(held_gain))
            if trusted or trial.value - point.at.value >= _SUFFICIENT * predicted:
                return self._point(trial, n_conditionings)
        msg = "the inner problem allows no further step"
        raise Breakdown(msg)

    def _within_bounds(self, sites: Natural) -> bool:
        xp = namespace_of(sites.shift)
        inside = (sites.precision >= self.lowest) & (sites.precision <= self.highest)
        return bool(xp.all(inside | ~self.problem.open))

    def _nears_the_edge(self, origin: _Trial, trial: _Trial) -> bool:
        """Whether one step takes most of the way to where Q or a cavity stops being proper.

        From next to the edge, with Q's variance at 1e10 slabs, no step leads back in doubles.
        """
        xp = namespace_of(trial.sites.shift)
        floor = self.problem.cavity_floor
        wider = trial.gaussian.moments.variance > _TO_EDGE * origin.gaussian.moments.variance
        room, before = trial.cavity.precision - floor, origin.cavity.precision - floor
        return bool(xp.any((wider | (_TO_EDGE * room < before)) & self.problem.open))

    def _moved(self, origin: _Trial, direction: Natural, share: float) -> Natural:
        """A share of the step, precisions brought back to the bounds."""
        xp = namespace_of(origin.sites.shift)
        old = origin.sites.precision
        precision = xp.clip(old + share * direction.precision, min=self.lowest, max=self.highest)
        precision = xp.where(self.problem.open, precision, old)
        # In whitened coordinates the shift is measured from the mean, :eq:`whitening`.
        coupling = origin.gaussian.moments.mean * (precision - old)
        return Natural(origin.sites.shift + share * direction.shift + coupling, precision)

    def _trial(self, sites: Natural) -> _Trial | None:
        """Value at `sites`; None where they are not proper."""
        xp = namespace_of(sites.shift)
        cavity = self.marginals - sites
        proper = (cavity.precision > self.problem.cavity_floor) | ~self.problem.open
        if not bool(xp.all(proper)):
            return None
        try:
            gaussian = self.problem.condition(sites)
        except NotPositiveDefinite:
            return None
        if not bool(xp.all(gaussian.moments.variance > 0)):
            return None
        tilted = self.problem.tilted(cavity)
        log_norms = xp.where(self.problem.open, tilted.log_norm, 0.0)
        value = -gaussian.log_norm - float(xp.sum(log_norms))
        return _Trial(sites, cavity, gaussian, tilted, value)

    def _point(self, at: _Trial, n_conditionings: int) -> _Point:
        """Newton's step in coordinates whitened by Q, its gain, and the slope of held precisions.

        The direction's shift leaves out its coupling with the precision, which `_moved` adds.
        """
        xp = namespace_of(at.sites.shift)
        d = at.sites.shift.shape[0]
        mean, variance = at.gaussian.moments.mean, at.gaussian.moments.variance
        sd = xp.sqrt(variance)
        offset = (at.tilted.mean - mean) / sd
        slope = -0.5 * (at.tilted.variance / variance + offset * offset - 1.0)
        is_open = self.problem.open
        gradient = xp.where(xp.concat([is_open, is_open]), xp.concat([offset, slope]), 0.0)
        held = self._held(at.sites, variance, slope) & is_open
        free = xp.concat([is_open, is_open & ~held])
        step = self._solve(at, gradient, free)
        direction = Natural(step[:d] / sd, step[d:] / variance)
        free_gain = float(xp.sum(xp.where(free, gradient * step, 0.0)))
        held_slope = xp.where(held, slope * variance, 0.0)
        moved = self._moved(at, direction, 1.0)
        held_gain = float(xp.sum(held_slope * (moved.precision - at.sites.precision)))
        return _Point(at, direction, free_gain, held_slope, free_gain + held_gain, n_conditionings)

    def _held(self, sites: Natural, variance: Array, slope: Array) -> Array:
        """Precisions next to a closed bound that the gradient pushes against it.

        Next to, not only at: else a precision just off its bound would cut every step short.
        """
        low = (slope < 0) & (variance * (sites.precision - self.lowest) <= _NEAR)
        high = (slope > 0) & (variance * (self.highest - sites.precision) <= _NEAR)
        return low | high

    def _solve(self, at: _Trial, gradient: Array, free: Array) -> Array:
        """Solve the Newton system, coordinates that are not free decoupled from the others."""
        xp = namespace_of(gradient)
        d = at.sites.shift.shape[0]
        sd = xp.sqrt(at.gaussian.moments.variance)
        C = at.gaussian.covariance_rows(xp.arange(d)) / (sd[:, None] * sd)
        T = self.problem.bound_prior.tilted_curvature(at.cavity, at.gaussian.moments)
        diagonal = xp.arange(d)[:, None] == xp.arange(d)
        corner = xp.where(diagonal, T.cross, 0.0)
        H = xp.concat(
            [
                xp.concat([C + xp.where(diagonal, T.linear, 0.0), corner], axis=1),
                xp.concat([corner, 0.5 * C * C + xp.where(diagonal, T.quadratic, 0.0)], axis=1),
            ]
        )
        own = xp.arange(2 * d)[:, None] == xp.arange(2 * d)
        factor = _array.cholesky_of_psd_plus(xp.where((free[:, None] & free) | own, H, 0.0), 0.0)
        return _array.solve_positive(factor, gradient)
