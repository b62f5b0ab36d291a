"""The loop over iterations: the only one in the package.

A solver says how to start and how to step; whether it has converged is decided here, by the
certificate alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from epslab._array import NotPositiveDefinite, namespace_of, quiet
from epslab._errors import Breakdown, StopFit
from epslab._natural import Natural, Tilted
from epslab._observers import Observer
from epslab._posterior import GaussianPosterior
from epslab._problem import Problem
from epslab._result import FitResult, Record, Status, Trace
from epslab.likelihoods import Gaussian, SitesAlone

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class EPState:
    """Everything an EP solver knows between two iterations; arrays cover the kept features.

    Parameters
    ----------
    sites, marginals : Natural
    gaussian : Gaussian
        Q at the sites.
    tilted : Tilted
        P at the cavity ``marginals - sites``.
    energy, residual : float
    n_active : int
    n_conditionings : int
        Since the start of the fit.
    """

    sites: Natural
    marginals: Natural
    gaussian: Gaussian
    tilted: Tilted
    energy: float
    residual: float
    n_active: int
    n_conditionings: int

    def is_good(self) -> bool:
        """Whether the state can be shown to anyone: nothing in it is infinite or not a number."""
        xp = namespace_of(self.sites.shift)
        arrays = (
            self.sites.shift,
            self.sites.precision,
            self.tilted.mean,
            self.tilted.variance,
            self.gaussian.moments.mean,
            self.gaussian.moments.variance,
        )
        numbers_are = math.isfinite(self.energy) and math.isfinite(self.residual)
        return numbers_are and all(bool(xp.all(xp.isfinite(array))) for array in arrays)

    def is_same_point(self, other: EPState) -> bool:
        """Whether sites and marginals are equal to the last bit."""
        xp = namespace_of(self.sites.shift)
        return all(
            bool(xp.all(getattr(mine, name) == getattr(theirs, name)))
            for mine, theirs in ((self.sites, other.sites), (self.marginals, other.marginals))
            for name in ("shift", "precision")
        )


class Stepper(Protocol):
    """What the driver needs of an iterative solver."""

    @property
    def tol(self) -> float:
        """Largest residual that counts as converged."""

    @property
    def max_iter(self) -> int:
        """Largest number of iterations."""

    def init(self, problem: Problem, start: FitResult | Natural | None) -> EPState:
        """Return the state before the first iteration."""

    def step(self, problem: Problem, state: EPState) -> EPState:
        """Return the state after one more iteration."""


def repeat(
    step: Callable[[State], State], state: State, done: Callable[[State], bool], max_iter: int
) -> Iterator[State]:
    """Yield `state`, then step until `done`, at most `max_iter` times, and yield every new state.

    The one loop over iterations, under `iterate` and under the inner problem of a double loop.
    """
    yield state
    for _ in range(max_iter):
        if done(state):
            return
        state = step(state)
        yield state


def iterate(
    problem: Problem,
    solver: Stepper,
    start: FitResult | Natural | None,
    observers: Sequence[Observer],
) -> FitResult:
    """Step until the certificate holds, or until something else ends the fit."""
    began = time.perf_counter()
    records: list[Record] = []

    def note(iteration: int, state: EPState) -> None:
        seconds = time.perf_counter() - began
        record = Record(iteration, state.energy, state.residual, state.n_conditionings, seconds)
        records.append(record)
        for observer in observers:
            observer.iterated(record)

    with quiet():
        state = _first_state(problem, solver, start)
        if isinstance(state, Status):
            return prior_result(problem, solver, state, time.perf_counter() - began)
        steps = repeat(
            lambda old: solver.step(problem, old),
            state,
            lambda old: old.residual <= solver.tol,
            solver.max_iter,
        )
        status = Status.MAX_ITER
        try:
            for iteration, new in enumerate(steps):
                if not new.is_good():
                    status = Status.BREAKDOWN
                    break
                stalled = iteration > 0 and new.is_same_point(state)
                state = new
                note(iteration, state)
                if stalled:
                    status = Status.STALLED
                    break
        except (Breakdown, NotPositiveDefinite):
            status = Status.BREAKDOWN
        except (KeyboardInterrupt, StopFit):
            status = Status.INTERRUPTED
        if state.residual <= solver.tol:
            status = Status.CONVERGED
        return _publish(problem, solver, state, status, records, time.perf_counter() - began)


def _first_state(
    problem: Problem, solver: Stepper, start: FitResult | Natural | None
) -> EPState | Status:
    """The state to start from, or how the fit ended before there was one."""
    try:
        state = solver.init(problem, start)
    except (Breakdown, NotPositiveDefinite):
        return Status.BREAKDOWN
    except (KeyboardInterrupt, StopFit):
        return Status.INTERRUPTED
    return state if state.is_good() else Status.BREAKDOWN


def prior_result(problem: Problem, solver: Any, status: Status, seconds: float) -> FitResult:
    """The prior, as the last good state of a fit that ended before it had another.

    No conditioning is in it, so none is counted.
    """
    with quiet():
        sites = problem.default_sites()
        state = EPState(
            sites=sites,
            marginals=sites,
            gaussian=SitesAlone(sites),
            tilted=problem.tilted(sites - sites),
            energy=math.nan,
            residual=math.inf,
            n_active=0,
            n_conditionings=0,
        )
        return _publish(problem, solver, state, status, [], seconds)


def _publish(
    problem: Problem,
    solver: Any,
    state: EPState,
    status: Status,
    records: list[Record],
    seconds: float,
) -> FitResult:
    """The last good state as a result over all features."""
    certified = status is Status.CONVERGED and state.n_active == 0
    return FitResult(
        posterior=GaussianPosterior(problem, state.gaussian, state.tilted),
        status=status,
        residual=state.residual,
        n_active=state.n_active,
        energy=state.energy,
        log_evidence=-state.energy if certified else math.nan,
        sites=problem.scatter_natural(state.sites),
        marginals=problem.scatter_natural(state.marginals),
        trace=Trace(tuple(records)),
        n_iter=max(0, len(records) - 1),
        n_conditionings=state.n_conditionings,
        seconds=seconds,
        solver=solver,
    )
