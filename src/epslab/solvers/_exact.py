"""The exact posterior by enumeration of all supports: the oracle.

Every subset of the features is a support with a prior probability and a Gaussian evidence
(:eq:`support-evidence`); the posterior is their mixture. The sum runs over a binary tree whose
nodes share work: including one more feature changes a triangular factor by rotations
(:eq:`grow`), and the moments are merged on the way back (:eq:`fold`).

Cost grows as 2^d: seconds at d = 25, refused beyond. To be chosen as a yardstick, for small d.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from epslab._array import Array, Generator, log1m, log_of, namespace_of, quiet
from epslab._driver import prior_result
from epslab._errors import StopFit, require_count
from epslab._natural import Moments, Natural
from epslab._observers import Observer
from epslab._posterior import ExactPosterior
from epslab._problem import Problem
from epslab._result import FitResult, Record, Status, Trace
from epslab.solvers._base import Solver
from epslab.solvers._supports import draw_supports, enumerate_supports, seconds_expected


@dataclass(frozen=True, kw_only=True)
class ExactEnumeration(Solver):
    """Sum over all supports: exact probabilities, moments, evidence and draws.

    Parameters
    ----------
    max_features : int
        Refuse problems with more features in question than this. Features that are always in
        (inclusion 1) or always out (inclusion 0) do not count.

    Notes
    -----
    There is nothing to converge: the residual of a finished result is 0 by definition.

    Examples
    --------
    >>> import numpy as np
    >>> import epslab as es
    >>> prior = es.SpikeSlabPrior(inclusion=0.5, slab_variance=1.0)
    >>> problem = es.Problem(np.eye(2), [0.0, 2.0], noise_variance=0.1, prior=prior)
    >>> result = es.solve(problem, es.ExactEnumeration())
    >>> round(result.log_evidence, 4)
    -3.6752
    """

    name: ClassVar[str] = "exact-enumeration"
    max_features: int = 25

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        require_count(self.max_features, "max_features")

    def run(
        self,
        problem: Problem,
        start: FitResult | Natural | None,
        observers: Sequence[Observer],
    ) -> FitResult:
        """Enumerate. An interruption has nothing to show but the prior, and says so."""
        began = time.perf_counter()
        if start is not None:
            msg = "start has no meaning for ExactEnumeration: it does not iterate"
            raise ValueError(msg)
        prior = problem.bound_prior
        xp = namespace_of(prior.inclusion)
        in_question = int(xp.sum(xp.astype(prior.inclusion < 1, xp.int64)))
        if in_question > self.max_features:
            raise ValueError(self._refusal(in_question))

        def tell(done: int, total: int) -> None:
            for observer in observers:
                observer.advanced(done, total)

        noise_sd = math.sqrt(problem.noise_variance)
        likelihood = problem.likelihood
        try:
            with quiet():
                supports = enumerate_supports(
                    factor=likelihood.columns.take(xp.arange(likelihood.n_features)) / noise_sd,
                    target=likelihood.y / noise_sd,
                    slab_variance=prior.slab_variance,
                    log_in=log_of(prior.inclusion),
                    log_out=log1m(prior.inclusion),
                    on_block=tell,
                )
        except (KeyboardInterrupt, StopFit):
            return prior_result(problem, self, Status.INTERRUPTED, time.perf_counter() - began)
        log_evidence = supports.log_evidence - problem.n_rows * math.log(noise_sd)

        def draw(size: int, rng: Generator) -> Array:
            return draw_supports(supports, size, rng)

        posterior = ExactPosterior(
            problem, supports.inclusion_probability, supports.mean, supports.covariance, draw
        )
        if not math.isfinite(log_evidence):
            return prior_result(problem, self, Status.BREAKDOWN, time.perf_counter() - began)
        with quiet():
            marginals = Moments(supports.mean, xp.linalg.diagonal(supports.covariance)).natural()
        # A coefficient that is zero for certain is a point mass, like those the prior excludes.
        point_mass = Natural(xp.zeros_like(supports.mean), xp.full_like(supports.mean, math.inf))
        marginals = marginals.where(xp.isfinite(marginals.precision), point_mass)
        seconds = time.perf_counter() - began
        return FitResult(
            posterior=posterior,
            status=Status.CONVERGED,
            residual=0.0,
            n_active=0,
            energy=-log_evidence,
            log_evidence=log_evidence,
            sites=None,
            marginals=problem.scatter_natural(marginals),
            trace=Trace((Record(0, -log_evidence, 0.0, 0, seconds),)),
            n_iter=0,
            n_conditionings=0,
            seconds=seconds,
            solver=self,
        )

    def _refusal(self, in_question: int) -> str:
        seconds = seconds_expected(min(in_question, 1000))  # 2^1000 still is a number
        units = ((3.2e7, "years"), (86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
        size, unit = next(((s, u) for s, u in units if seconds >= s), (1.0, "seconds"))
        return (
            f"problem has {in_question} features in question and ExactEnumeration "
            f"takes at most {self.max_features}: 2^{in_question} supports would take about "
            f"{seconds / size:.3g} {unit}; take an EP solver, or raise max_features"
        )
