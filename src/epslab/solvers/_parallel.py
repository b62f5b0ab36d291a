"""Regular EP, all sites at once.

Each iteration, at the price of one conditioning:

1. cavity: marginals over sites, :eq:`cavity`;
2. tilt: moments of prior times cavity;
3. target: the site that matches them, :eq:`site-target` or, in a box, :eq:`box-target`;
4. move a fraction `step_size` of the way, :eq:`step`, and condition.

Fast when it converges. It often does not: small n, correlated columns and low noise make it
cycle. The certificate says so; DoubleLoopEP is certain to converge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from epslab._driver import EPState
from epslab._problem import Problem
from epslab.solvers._ep_common import RegularEP, moved_state


@dataclass(frozen=True, kw_only=True)
class ParallelEP(RegularEP):
    """Regular EP, all sites at once.

    Parameters
    ----------
    step_size : float
        How far to move towards EP's target, in (0, 1]; 1 is undamped.
    tol : float
        Largest residual that counts as converged.
    max_iter : int
    domain : Domain
        `Proper()`, or the paper's `Box(eps)`.

    Examples
    --------
    >>> import numpy as np
    >>> import epslab as es
    >>> prior = es.SpikeSlabPrior(inclusion=0.5, slab_variance=1.0)
    >>> problem = es.Problem(np.eye(2), [0.0, 2.0], noise_variance=0.1, prior=prior)
    >>> result = es.solve(problem, es.ParallelEP(step_size=1.0, tol=1e-9))
    >>> result.converged
    True
    >>> result.posterior.inclusion_probability.round(4)
    array([0.2317, 1.    ])
    """

    name: ClassVar[str] = "parallel-ep"

    def step(self, problem: Problem, state: EPState) -> EPState:
        """Tilt every cavity and move every site."""
        exact = state.marginals - state.sites
        cavity = self.domain.regular_cavity(exact, problem.scale)
        tilted = state.tilted if cavity is exact else problem.tilted(cavity)
        target = problem.with_settled(self.domain.target(tilted, cavity, problem.scale))
        return moved_state(
            problem, self.domain, state.sites, target, self.step_size, state.n_conditionings
        )
