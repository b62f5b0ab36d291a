"""Regular EP, one site at a time.

Each iteration is a sweep over the features in order. At every feature the cavity, the tilted
moments and the target are those of ParallelEP, but the change of the site takes effect at once,
by a rank-one update of Q (:eq:`walk`, :eq:`walk-update`). Q is factored afresh after every sweep,
so that rounding does not pile up. A sweep costs two to three conditionings in flops, and a
Python loop over the features in time.

Converges a little more often than ParallelEP for the same step size; no more certain to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from epslab._array import namespace_of
from epslab._domain import Domain
from epslab._driver import EPState
from epslab._natural import Natural
from epslab._problem import Problem
from epslab.solvers._ep_common import RegularEP, moved_state


@dataclass(frozen=True, kw_only=True)
class SequentialEP(RegularEP):
    """Regular EP, one site at a time, with rank-one updates.

    Parameters
    ----------
    step_size : float
        How far to move towards EP's target, in (0, 1]; 1 is undamped.
    tol : float
        Largest residual that counts as converged.
    max_iter : int
        Largest number of sweeps.
    domain : Domain
        `Proper()`, or the paper's `Box(eps)`.

    Examples
    --------
    >>> import numpy as np
    >>> import epslab as es
    >>> prior = es.SpikeSlabPrior(inclusion=0.5, slab_variance=1.0)
    >>> problem = es.Problem(np.eye(2), [0.0, 2.0], noise_variance=0.1, prior=prior)
    >>> es.solve(problem, es.SequentialEP(step_size=1.0, tol=1e-9)).converged
    True
    """

    name: ClassVar[str] = "sequential-ep"

    def step(self, problem: Problem, state: EPState) -> EPState:
        """Visit every open feature once, then factor afresh.

        The sweep's end is approached as :eq:`largest-step` says if one of its cavities, changed
        by later visits, is improper.
        """
        walk = problem.likelihood.walk(state.sites)
        sweep = _Sweep(problem, self.domain, self.step_size, state.sites)
        for j in range(state.sites.shift.shape[0]):
            if bool(problem.open[j]):
                walk.visit(j, sweep.propose)
        return moved_state(
            problem, self.domain, state.sites, sweep.sites(), 1.0, state.n_conditionings
        )


class _Sweep:
    """Sites on their way through one sweep."""

    def __init__(self, problem: Problem, domain: Domain, step_size: float, sites: Natural) -> None:
        self.problem = problem
        self.domain = domain
        self.step_size = step_size
        self.shift = [float(value) for value in sites.shift]
        self.precision = [float(value) for value in sites.precision]

    def propose(self, j: int, mean: float, variance: float) -> tuple[float, float]:
        """Move site `j` towards EP's target at this marginal; stay where the cavity is improper."""
        scale = self.problem.scale
        xp = namespace_of(scale)
        at = xp.asarray([j])
        if not variance > 0:
            return 0.0, 0.0
        site = Natural(xp.asarray([self.shift[j]]), xp.asarray([self.precision[j]]))
        marginal = Natural(xp.asarray([mean / variance]), xp.asarray([1.0 / variance]))
        cavity = self.domain.regular_cavity(marginal - site, xp.take(scale, at))
        if not bool(xp.all(cavity.precision > xp.take(self.problem.cavity_floor, at))):
            return 0.0, 0.0
        tilted = self.problem.bound_prior.take(at).tilted(cavity)
        target = self.domain.target(tilted, cavity, xp.take(scale, at))
        moved = site.moved(target, self.step_size)
        shift, precision = float(moved.shift[0]), float(moved.precision[0])
        if not (math.isfinite(shift) and math.isfinite(precision)):
            return 0.0, 0.0
        change = shift - self.shift[j], precision - self.precision[j]
        self.shift[j], self.precision[j] = shift, precision
        return change

    def sites(self) -> Natural:
        """The sites at the end of the sweep."""
        xp = namespace_of(self.problem.scale)
        return Natural(xp.asarray(self.shift), xp.asarray(self.precision))
