"""solve(): names, objects and what it refuses."""

import numpy as np
import pytest
from fits import moments_of, random_case

import epslab as es

NAMES = {
    "double-loop-ep": es.DoubleLoopEP,
    "exact-enumeration": es.ExactEnumeration,
    "parallel-ep": es.ParallelEP,
    "sequential-ep": es.SequentialEP,
}


@pytest.fixture
def problem():
    return random_case(np.random.default_rng(8), 12, 6).problem()


@pytest.mark.parametrize(("name", "solver"), NAMES.items())
def test_a_name_is_a_solver_with_its_defaults(name, solver, problem):
    by_name, by_object = es.solve(problem, name), es.solve(problem, solver())
    assert by_name.solver == solver()
    assert solver.name == name
    for key, values in moments_of(by_name).items():
        np.testing.assert_array_equal(values, moments_of(by_object)[key])


def test_default_is_certain_to_converge(problem):
    result = es.solve(problem)
    assert result.solver == es.DoubleLoopEP()
    assert result.converged


@pytest.mark.parametrize("solver", [es.ParallelEP, es.SequentialEP, es.DoubleLoopEP])
def test_defaults(solver):
    """Proper domain, certificate to 1e-4: :eq:`proper`, :eq:`residual`."""
    assert solver().domain == es.Proper()
    assert solver().tol == 1e-4
    assert solver(domain=es.Box()).domain == es.Box(eps=1e-4)


@pytest.mark.parametrize("solver", NAMES.values())
def test_settings_are_frozen_and_comparable(solver):
    assert solver() == solver()
    assert hash(solver()) == hash(solver())
    with pytest.raises(AttributeError):
        solver().max_iter = 3
    with pytest.raises(TypeError):
        solver(3)  # settings have names


def test_unknown_names_are_answered_with_the_known(problem):
    with pytest.raises(ValueError, match=r"solver must be one of .*'paralel-ep'") as caught:
        es.solve(problem, "paralel-ep")
    for name in NAMES:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"solver": es.ParallelEP}, "solver"),
        ({"solver": 3}, "solver"),
        ({"start": 3}, "start"),
        ({"start": (np.zeros(6), np.ones(6))}, "start"),
        ({"observers": 3}, "observers"),
        ({"observers": [3]}, "observers"),
        ({"observers": es.ProgressBar}, "observers"),
        ({"observers": [es.ProgressBar]}, "observers"),
    ],
    ids=repr,
)
def test_wrong_kinds_are_named(arguments, named, problem):
    with pytest.raises(TypeError, match=named):
        es.solve(problem, **arguments)


def test_problem_comes_first():
    with pytest.raises(TypeError, match="problem"):
        es.solve(np.eye(3))


@pytest.mark.parametrize("solver", [es.ParallelEP, es.SequentialEP, es.DoubleLoopEP])
@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"tol": 0.0}, ValueError),
        ({"tol": -1e-3}, ValueError),
        ({"tol": float("nan")}, ValueError),
        ({"tol": float("inf")}, ValueError),
        ({"tol": "1e-3"}, TypeError),
        ({"tol": True}, TypeError),
        ({"max_iter": -1}, ValueError),
        ({"max_iter": 2.0}, TypeError),
        ({"max_iter": True}, TypeError),
        ({"domain": "box"}, TypeError),
        ({"domain": es.Box}, TypeError),
    ],
    ids=repr,
)
def test_settings_out_of_range_are_named(solver, settings, error):
    with pytest.raises(error, match=next(iter(settings))):
        solver(**settings)


@pytest.mark.parametrize("solver", [es.ParallelEP, es.SequentialEP])
@pytest.mark.parametrize("step_size", [0.0, -0.5, 1.5, float("nan"), "1", None])
def test_step_sizes_out_of_range_are_named(solver, step_size):
    with pytest.raises((ValueError, TypeError), match="step_size"):
        solver(step_size=step_size)


@pytest.mark.parametrize("solver", [es.DoubleLoopEP, es.ExactEnumeration])
@pytest.mark.parametrize("limit", [-1, 2.5, "many", True])
def test_limits_out_of_range_are_named(solver, limit):
    with pytest.raises((ValueError, TypeError), match="max_features"):
        solver(max_features=limit)


def test_numpy_numbers_are_numbers(problem):
    settings = {"tol": np.float64(1e-3), "max_iter": np.int64(50)}
    assert es.solve(problem, es.ParallelEP(step_size=np.float32(0.5), **settings)).converged


def test_interruption_before_the_first_state():
    """Ctrl-C while the first state is being made: the prior, and a status that says so."""

    class Interrupted(es.Problem):
        def condition(self, sites):
            raise KeyboardInterrupt

    prior = es.SpikeSlabPrior(0.3, 2.0)
    problem = Interrupted(np.eye(3), np.ones(3), noise_variance=0.1, prior=prior)
    for solver in (es.ParallelEP(), es.SequentialEP(), es.DoubleLoopEP()):
        found = es.solve(problem, solver)
        assert found.status is es.Status.INTERRUPTED
        assert found.residual == np.inf
        np.testing.assert_allclose(found.posterior.variance, 0.6)
