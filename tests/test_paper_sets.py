"""The paper's synthetic sets: 10 rows, 25 features, next to no noise, and correlated columns."""

import functools
import math

import numpy as np
import oracles
import pytest
from fits import DOMAINS, Case

import epslab as es

TOL = 1e-3
NOISE = 0.005**2
FEW = 12


@functools.cache
def sets():
    return list(oracles.paper_sets(100))


def case_of(index):
    X, y, *_ = sets()[index]
    return Case(X, y, NOISE, 0.2, 1.0)


def test_error(index, result):
    """Mean squared error of the posterior mean of y on the test rows."""
    _, _, X, y, _ = sets()[index]
    return np.mean((y - result.posterior.predict(X).mean) ** 2)


test_error.__test__ = False


def assert_is_what_it_says(case, result):
    """The certificate by the oracle, and the course of the energy."""
    assert result.converged, f"{result!r}: {result.status}"
    residual, n_active = case.certificate(result)
    assert residual <= TOL
    assert n_active == result.n_active
    energies = np.array(result.trace.energy)
    rises = np.diff(energies) / np.maximum(1.0, np.abs(energies[:-1]))
    assert rises.max(initial=0.0) <= 1e-9
    assert energies.min() >= oracles.energy_bound(10, 25, NOISE)
    if isinstance(result.solver.domain, es.Proper):
        assert energies.min() >= 5 * math.log(2 * math.pi * NOISE)


def test_sets_are_those_of_the_paper():
    """The draws are fixed to the last digit, so that figures can be compared."""
    assert sets()[0][1][0] == 0.26295692738126697
    assert sets()[99][1][0] == 0.24249084392904943


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("index", range(FEW))
def test_double_loop(index, domain):
    """:eq:`energy-falls`, :eq:`lower-bound`, :eq:`residual` on the first sets."""
    case = case_of(index)
    assert_is_what_it_says(case, case.solve(es.DoubleLoopEP(tol=TOL, domain=domain)))


@pytest.mark.parametrize("index", range(FEW))
def test_regular_ep_in_the_box(index):
    """Often no certificate, never a false one; sites stay in the box, :eq:`box-target`."""
    case = case_of(index)
    result = case.solve(es.ParallelEP(tol=TOL, domain=es.Box(), step_size=0.5, max_iter=400))
    assert result.status in (es.Status.CONVERGED, es.Status.MAX_ITER)
    assert (result.sites.precision >= 1e-4 * (1 - 1e-9)).all()
    residual, n_active = case.certificate(result)
    assert residual == pytest.approx(result.residual, rel=1e-4)
    assert n_active == result.n_active
    assert result.converged == (residual <= TOL)


@pytest.mark.parametrize("index", range(0, FEW, 3))
def test_certified_on_both_sides_of_the_box(index):
    """Where the box holds nothing its solution is one of the proper domain too."""
    case = case_of(index)
    boxed = case.solve(es.DoubleLoopEP(tol=1e-5, domain=es.Box()))
    assert boxed.converged
    proper = es.residual(case.problem(), boxed.sites, boxed.marginals)
    assert (proper <= 1e-5) or boxed.n_active > 0


# ---- all of them


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "error", "margin"),
    [(es.Proper(), 0.0461, 0.0005), (es.Box(), 0.0545, 0.001)],
    ids=["proper", "box"],
)
def test_double_loop_on_all_sets(domain, error, margin):
    """100 certificates of 100, energies that never rise, and the mean test error."""
    errors = []
    for index in range(100):
        result = case_of(index).solve(es.DoubleLoopEP(tol=TOL, domain=domain))
        assert_is_what_it_says(case_of(index), result)
        errors.append(test_error(index, result))
    assert np.mean(errors) == pytest.approx(error, abs=margin)


@pytest.mark.slow
def test_exact_posterior_is_best_on_average():
    """Enumeration at d = 25 on the first ten sets, against both double loops."""
    errors = {"exact": [], "proper": [], "box": []}
    for index in range(10):
        case = case_of(index)
        exact = case.solve(es.ExactEnumeration())
        assert exact.seconds < 60
        results = [exact, *(case.solve(es.DoubleLoopEP(tol=TOL, domain=d)) for d in DOMAINS)]
        for name, result in zip(errors, results, strict=True):
            errors[name].append(test_error(index, result))
        evidence = np.array([result.log_evidence for result in results])
        assert np.isfinite(evidence[:2]).all()
    means = {name: np.mean(values) for name, values in errors.items()}
    assert means["exact"] < means["proper"]
    assert means["exact"] < means["box"]
