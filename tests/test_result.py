"""What a fit hands back: status with advice, trace by columns, evidence with its condition."""

import dataclasses
import math
import sys

import numpy as np
import pytest
from fits import DOMAINS, EP_SOLVERS, Case, random_case

import epslab as es

COLUMNS = ("iteration", "energy", "residual", "n_conditionings", "seconds")


@pytest.fixture
def result():
    return random_case(np.random.default_rng(11), 6, 8, 0.1).solve(es.ParallelEP())


@pytest.mark.parametrize("status", es.Status)
def test_status_is_a_sentence_with_advice(status):
    text = str(status)
    assert text[0].isupper()
    assert text.endswith(".")
    assert text.startswith("Converged" if status is es.Status.CONVERGED else "Not converged")
    if status is not es.Status.CONVERGED:
        advice = ("Raise", "Ask", "take", "Pass")
        assert any(word in text for word in advice), "nothing to do about it"
    assert len({str(other) for other in es.Status}) == len(es.Status)


def test_status_members():
    names = ["CONVERGED", "MAX_ITER", "STALLED", "BREAKDOWN", "INTERRUPTED"]
    assert [status.name for status in es.Status] == names


def test_trace_columns_are_the_fields_of_its_records(result):
    trace = result.trace
    assert len(trace) == result.n_iter + 1
    for name in COLUMNS:
        assert getattr(trace, name) == trace.column(name)
        assert trace.column(name) == [getattr(record, name) for record in trace]
    assert trace.iteration == list(range(len(trace)))
    with pytest.raises(ValueError, match=r"name must be one of .*'energy'.*got 'enrgy'"):
        trace.column("enrgy")


def test_trace_as_a_table(result):
    pd = pytest.importorskip("pandas")
    table = result.trace.to_pandas()
    assert isinstance(table, pd.DataFrame)
    assert tuple(table.columns) == COLUMNS
    assert len(table) == len(result.trace)
    for name in COLUMNS:
        assert table[name].tolist() == result.trace.column(name)


def test_table_without_pandas_says_what_to_install(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'epslab\[pandas\]'"):
        result.trace.to_pandas()


def test_repr_is_one_line_with_status_and_certificate(result):
    text = repr(result)
    assert "\n" not in text
    assert text.startswith("FitResult(CONVERGED, residual=")
    for part in (f"energy={result.energy:.6g}", f"n_iter={result.n_iter}"):
        assert part in text
    assert "n_active" not in text


def test_repr_shows_constraints_that_are_active():
    one = Case(np.ones((1, 1)), np.array([0.05]), 1e-4, 0.2, 1.0)
    assert "n_active=1" in repr(one.solve(es.DoubleLoopEP(tol=1e-6, domain=es.Box())))


def test_result_is_frozen(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.energy = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.trace.records[0].energy = 0.0


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_evidence_is_minus_energy_or_nothing(solver, domain, rng):
    """A number only where it has a meaning: :eq:`energy`, :eq:`clipped`."""
    for noise_sd in (0.5, 0.01):
        found = random_case(rng, 5, 6, noise_sd).solve(solver(domain=domain, max_iter=50))
        if found.n_active or not found.converged:
            assert math.isnan(found.log_evidence)
        else:
            assert found.log_evidence == -found.energy
        if isinstance(domain, es.Proper):
            assert found.n_active == 0


def test_shapes_and_settled_features():
    """Arrays cover all features; one that is always out is a point mass: :eq:`settled`."""
    case = random_case(np.random.default_rng(11), 6, 8, 0.1)
    inclusion = case.inclusion.copy()
    inclusion[[2, 7]] = 0.0
    found = case.but(inclusion=inclusion).solve(es.ParallelEP())
    for natural in (found.sites, found.marginals):
        assert natural.shift.shape == natural.precision.shape == (8,)
        np.testing.assert_array_equal(natural.shift[[2, 7]], [0, 0])
        np.testing.assert_array_equal(natural.precision[[2, 7]], [np.inf, np.inf])
        assert np.isfinite(natural.precision[[0, 1, 3, 4, 5, 6]]).all()
    np.testing.assert_array_equal(found.posterior.variance[[2, 7]], [0, 0])


def test_fit_remembers_its_solver(result):
    assert result.solver == es.ParallelEP()
    assert result.solver.tol >= result.residual
    assert result.seconds > 0
