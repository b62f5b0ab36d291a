"""The loop over iterations: when it ends, how it says so, and what it hands back."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import oracles
import pytest
from fits import DOMAINS, EP_SOLVERS, Case, assert_good, naturals, random_case

import epslab as es
from epslab._array import NotPositiveDefinite
from epslab._driver import iterate
from epslab._errors import Breakdown

TOL = 1e-6


@pytest.fixture
def case():
    """A problem that every solver needs several iterations for."""
    return random_case(np.random.default_rng(11), 6, 8, 0.1)


def paper_case(index):
    X, y, *_ = next(itertools.islice(oracles.paper_sets(index + 1), index, None))
    return Case(X, y, 0.005**2, 0.2, 1.0)


class Recorder(es.Observer):
    """Remembers the calls, and raises an error at one of them."""

    def __init__(self, at=None, error=None):
        self.calls = []
        self.at, self.error = at, error

    def started(self, solver):
        self.calls.append(("started", solver))

    def iterated(self, record):
        self.calls.append(("iterated", record))
        if record.iteration == self.at:
            raise self.error

    def finished(self, result):
        self.calls.append(("finished", result))


# ---- each status


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_converged(solver, domain, case):
    """:eq:`residual` within tol ends a fit, and nothing else makes it converged."""
    result = case.solve(solver(tol=TOL, domain=domain, max_iter=3000))
    assert result.status is es.Status.CONVERGED
    assert_good(case, result, dps=30)
    assert all(residual > TOL for residual in result.trace.residual[:-1])


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_max_iter(solver, domain, limit, case):
    result = case.solve(solver(tol=TOL, domain=domain, max_iter=limit))
    assert result.status is es.Status.MAX_ITER
    assert result.n_iter == limit
    assert_good(case, result, dps=30)


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_converged_at_the_last_iteration_allowed(solver, case):
    """Converged is converged, whichever limit was reached with it."""
    needed = case.solve(solver(tol=TOL)).n_iter
    result = case.solve(solver(tol=TOL, max_iter=needed))
    assert result.status is es.Status.CONVERGED
    assert case.solve(solver(tol=TOL, max_iter=needed - 1)).status is es.Status.MAX_ITER


@pytest.mark.parametrize("solver", [es.ParallelEP, es.SequentialEP])
def test_stalled_by_steps_that_change_nothing(solver, case):
    """:eq:`residual` does not know the step size: a frozen run cannot look converged."""
    start = es.Natural(np.full(8, 0.5), np.full(8, 2.0))
    result = case.solve(solver(step_size=1e-300, tol=TOL), start=start)
    assert result.status is es.Status.STALLED
    assert result.n_iter == 1
    assert result.residual > 1e-3
    assert_good(case, result, dps=30)


def test_stalled_at_the_last_digit():
    """A tolerance below rounding is not met: iterations end where they repeat themselves."""
    seen = set()
    for y in np.linspace(0.1, 2.0, 12):
        one = Case(np.eye(1), np.array([y]), 0.25, 0.5, 1.0)
        result = one.solve(es.ParallelEP(step_size=1.0, tol=1e-300, max_iter=100))
        assert result.residual < 1e-14
        assert result.converged == (result.residual == 0.0)
        seen.add(result.status)
    assert es.Status.STALLED in seen


@pytest.mark.parametrize("index", [0, 6])
def test_breakdown_keeps_the_last_good_state(index):
    """Regular EP on the paper's sets runs to the edge of :eq:`proper`, and says so."""
    case = paper_case(index)
    result = case.solve(es.ParallelEP(step_size=0.9))
    assert result.status is es.Status.BREAKDOWN
    assert 0 < result.n_iter < 100
    assert_good(case, result, dps=50)
    shorter = case.solve(es.ParallelEP(step_size=0.9, max_iter=result.n_iter))
    np.testing.assert_array_equal(naturals(result), naturals(shorter))


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize("error", [NotPositiveDefinite, Breakdown])
def test_first_conditioning_fails(solver, error, case, monkeypatch):
    """Nothing was learned: the prior is what is left to show."""

    def fail(self, sites):
        raise error("no")

    problem = case.problem()
    monkeypatch.setattr(type(problem), "condition", fail)
    watch = Recorder()
    result = es.solve(problem, solver(), observers=watch)
    assert result.status is es.Status.BREAKDOWN
    assert not result.converged
    assert result.residual == math.inf
    assert result.n_iter == 0
    assert len(result.trace) == 0
    np.testing.assert_allclose(result.posterior.inclusion_probability, case.inclusion)
    np.testing.assert_array_equal(result.posterior.mean, np.zeros(8))
    prior_variance = case.inclusion * case.slab_variance
    np.testing.assert_allclose(result.posterior.variance, prior_variance)
    np.testing.assert_allclose(result.posterior.covariance(range(8)), np.diag(prior_variance))
    rows = np.ones((2, 8))
    variance = prior_variance.sum() + case.noise_variance
    np.testing.assert_allclose(result.posterior.predict(rows).variance, [variance, variance])
    assert result.posterior.sample(3, 0).shape == (3, 8)
    assert [name for name, _ in watch.calls] == ["started", "finished"]


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize("error", [NotPositiveDefinite, Breakdown])
def test_a_step_breaks_down(solver, error, case, monkeypatch):
    """The state before the step is what comes back."""
    good = case.solve(solver(tol=TOL, max_iter=2))
    step = solver.step

    def fail_at_third(self, problem, state):
        if state.n_conditionings >= good.n_conditionings:
            raise error("no")
        return step(self, problem, state)

    monkeypatch.setattr(solver, "step", fail_at_third)
    result = case.solve(solver(tol=TOL))
    assert result.status is es.Status.BREAKDOWN
    assert_good(case, result, dps=30)
    np.testing.assert_array_equal(naturals(result), naturals(good))


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_returns_numbers_that_are_none(solver, bad, case, monkeypatch):
    """A state that is not finite is not shown to anyone."""
    good = case.solve(solver(tol=TOL, max_iter=2))
    step = solver.step

    def spoil_third(self, problem, state):
        new = step(self, problem, state)
        if state.n_conditionings >= good.n_conditionings:
            new = replace(new, sites=es.Natural(bad * new.sites.shift, new.sites.precision))
        return new

    monkeypatch.setattr(solver, "step", spoil_third)
    watch = Recorder()
    result = case.solve(solver(tol=TOL), observers=watch)
    assert result.status is es.Status.BREAKDOWN
    assert_good(case, result, dps=30)
    assert len(watch.calls) == 2 + 3


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize("residual", [0.0, math.nan])
def test_the_first_state_is_not_finite(solver, residual, case, monkeypatch):
    """Nothing in it is shown, whatever it says of its residual; the prior is what is left."""
    init = solver.init

    def spoil(self, problem, start):
        state = init(self, problem, start)
        tilted = replace(state.tilted, mean=math.nan * state.tilted.mean)
        return replace(state, tilted=tilted, energy=math.nan, residual=residual)

    monkeypatch.setattr(solver, "init", spoil)
    result = case.solve(solver())
    assert result.status is es.Status.BREAKDOWN
    assert result.residual == math.inf
    np.testing.assert_allclose(result.posterior.inclusion_probability, case.inclusion)
    np.testing.assert_array_equal(result.posterior.mean, np.zeros(8))


@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize("error", [es.StopFit(), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("at", [0, 2])
def test_interrupted_by_an_observer(solver, error, at, case):
    result = case.solve(solver(tol=TOL), observers=Recorder(at, error))
    assert result.status is es.Status.INTERRUPTED
    assert result.n_iter == at
    assert_good(case, result, dps=30)
    np.testing.assert_array_equal(
        naturals(result), naturals(case.solve(solver(tol=TOL, max_iter=at)))
    )
    resumed = case.solve(solver(tol=TOL, max_iter=3000), start=result)
    assert resumed.converged


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_interrupted_within_a_step(solver, case, monkeypatch):
    """Ctrl-C wherever it falls: the state before the step comes back."""
    good = case.solve(solver(tol=TOL, max_iter=2))
    problem = case.problem()
    condition = problem.condition

    def interrupted(sites):
        if calls[0] == good.n_conditionings:
            raise KeyboardInterrupt
        calls[0] += 1
        return condition(sites)

    calls = [0]
    monkeypatch.setattr(problem, "condition", interrupted)
    result = es.solve(problem, solver(tol=TOL))
    assert result.status is es.Status.INTERRUPTED
    assert result.n_iter == 2
    assert_good(case, result, dps=30)
    np.testing.assert_array_equal(naturals(result), naturals(good))


def test_converged_although_interrupted(case):
    """The certificate alone decides, also at the moment of an interruption."""
    needed = case.solve(es.ParallelEP(tol=TOL)).n_iter
    result = case.solve(es.ParallelEP(tol=TOL), observers=Recorder(needed, KeyboardInterrupt()))
    assert result.status is es.Status.CONVERGED
    assert_good(case, result)


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_other_errors_are_not_hidden(solver, case):
    """An observer's own mistake is no breakdown of numbers."""
    with pytest.raises(ZeroDivisionError):
        case.solve(solver(), observers=Recorder(1, ZeroDivisionError()))


# ---- the contract between driver and solver


@dataclass(frozen=True)
class Halving:
    """The least that the driver drives: a solver that moves half of the way to a good answer."""

    tol: float = 1e-3
    max_iter: int = 50

    def init(self, problem, start):
        return es.ParallelEP().init(problem, start)

    def step(self, problem, state):
        return es.ParallelEP(step_size=0.5).step(problem, state)


def test_driver_needs_no_more_than_two_methods_and_two_limits():
    case = random_case(np.random.default_rng(8), 12, 6)
    result = iterate(case.problem(), Halving(), None, [])
    assert result.converged
    assert result.solver == Halving()
    assert case.certificate(case.solve(es.ParallelEP(tol=1e-3)))[0] <= 1e-3
    np.testing.assert_allclose(
        result.posterior.mean, case.solve(es.ParallelEP(tol=1e-3)).posterior.mean
    )
