"""solve(): the one entry to all solvers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from epslab._natural import Natural
from epslab._observers import Observer
from epslab._problem import Problem
from epslab._result import FitResult
from epslab.solvers import SOLVERS, DoubleLoopEP, Solver


def solve(
    problem: Problem,
    solver: Solver | str | None = None,
    *,
    start: FitResult | Natural | None = None,
    observers: Observer | Iterable[Observer] = (),
) -> FitResult:
    """Find the posterior of a problem.

    Parameters
    ----------
    problem : Problem
    solver : Solver or str, optional
        A solver with its settings, or the name of one with its default settings:
        "parallel-ep", "sequential-ep", "double-loop-ep" (the default: it is certain to converge),
        "exact-enumeration".
    start : FitResult or Natural, optional
        An earlier result, of this problem or a neighbouring one, or its sites.
    observers : Observer or iterable of them, optional
        For instance ``ProgressBar()`` or ``TimeLimit(60)``.

    Returns
    -------
    FitResult
        Look at its `status`: an answer that has not converged says so.

    Examples
    --------
    >>> import numpy as np
    >>> import epslab as es
    >>> prior = es.SpikeSlabPrior(inclusion=0.5, slab_variance=1.0)
    >>> problem = es.Problem(np.eye(2), [0.0, 2.0], noise_variance=0.1, prior=prior)
    >>> es.solve(problem, "exact-enumeration").posterior.inclusion_probability.round(4)
    array([0.2317, 1.    ])
    """
    if not isinstance(problem, Problem):
        msg = f"problem must be a Problem, got {type(problem).__name__}"
        raise TypeError(msg)
    chosen = _resolved(solver)
    watching = _listed(observers)
    if start is not None and not isinstance(start, (FitResult, Natural)):
        msg = f"start must be a FitResult or Natural sites, got {type(start).__name__}"
        raise TypeError(msg)
    for observer in watching:
        observer.started(chosen)
    result = chosen.run(problem, start, watching)
    for observer in watching:
        observer.finished(result)
    return result


def _listed(observers: Any) -> tuple[Observer, ...]:
    """One observer, or several, as a tuple."""
    if isinstance(observers, Observer):
        return (observers,)
    watching = tuple(observers) if isinstance(observers, Iterable) else (observers,)
    for observer in watching:
        if not isinstance(observer, Observer):
            msg = f"observers must be Observer objects, got {observer!r}"
            raise TypeError(msg)
    return watching


def _resolved(solver: Any) -> Solver:
    """A solver object from an object, a name or nothing."""
    if solver is None:
        return DoubleLoopEP()
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str):
        if solver in SOLVERS:
            return SOLVERS[solver]()
        msg = f"solver must be one of {', '.join(sorted(SOLVERS))}, got {solver!r}"
        raise ValueError(msg)
    hint = ": call it, as in ParallelEP()" if isinstance(solver, type) else ""
    msg = f"solver must be a solver object or the name of one, got {solver!r}{hint}"
    raise TypeError(msg)
