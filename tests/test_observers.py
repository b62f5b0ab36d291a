"""Observers: who is told what and when, and what a terminal shows."""

import io
import re
import time

import numpy as np
import pytest
from fits import EP_SOLVERS, random_case

import epslab as es


@pytest.fixture
def case():
    return random_case(np.random.default_rng(11), 6, 8, 0.1)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


class Log(es.Observer):
    """Every call, in order."""

    def __init__(self):
        self.calls = []

    def started(self, solver):
        self.calls.append(("started", solver))

    def iterated(self, record):
        self.calls.append(("iterated", record))

    def advanced(self, done, total):
        self.calls.append(("advanced", (done, total)))

    def finished(self, result):
        self.calls.append(("finished", result))


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_calls_of_an_iterative_solver(solver, case):
    """Started, the start, every iteration, finished: what the trace holds."""
    watch, settings = Log(), solver(max_iter=4)
    result = case.solve(settings, observers=watch)
    names = [name for name, _ in watch.calls]
    assert names == ["started", *["iterated"] * 5, "finished"]
    assert watch.calls[0][1] is settings
    assert watch.calls[-1][1] is result
    assert [record for name, record in watch.calls if name == "iterated"] == list(result.trace)


def test_calls_of_enumeration(rng):
    watch = Log()
    result = random_case(rng, 8, 16).solve(es.ExactEnumeration(), observers=[watch])
    names = [name for name, _ in watch.calls]
    assert names == ["started", *["advanced"] * (len(names) - 2), "finished"]
    parts = [part for name, part in watch.calls if name == "advanced"]
    assert parts
    assert parts[-1][0] == parts[-1][1]
    assert watch.calls[-1][1] is result


def test_several_observers_and_none(case):
    first, second = Log(), Log()
    case.solve(es.ParallelEP(max_iter=3), observers=(log for log in (first, second)))
    assert first.calls == second.calls
    assert case.solve(es.ParallelEP(max_iter=3), observers=()).n_iter == 3


def test_an_observer_that_does_nothing(case):
    assert case.solve(es.ParallelEP(max_iter=3), observers=es.Observer()).n_iter == 3


def test_observers_change_nothing(case):
    """To be watched is no reason to compute differently."""
    alone = case.solve(es.ParallelEP())
    watched = case.solve(
        es.ParallelEP(), observers=[es.ProgressBar(Terminal(), every=0.0), es.TimeLimit(1e6)]
    )
    np.testing.assert_array_equal(alone.posterior.mean, watched.posterior.mean)
    assert alone.n_iter == watched.n_iter


# ---- progress bar


def lines_of(stream):
    """What was shown, one update after the other, without the terminal's codes."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", stream.getvalue())
    return [line for line in re.split(r"[\r\n]+", text) if line]


def test_progress_bar_shows_iteration_energy_and_residual(case):
    stream = Terminal()
    result = case.solve(es.ParallelEP(max_iter=5), observers=es.ProgressBar(stream, every=0.0))
    lines = lines_of(stream)
    assert len(lines) == 5 + 2
    for record, line in zip(result.trace, lines, strict=False):
        assert f"iteration {record.iteration}/5" in line
        assert f"energy {record.energy:.6g}" in line
        assert f"residual {record.residual:.1e}" in line
    assert "max_iter" in lines[-1]
    assert "5 iterations" in lines[-1]
    assert stream.getvalue().endswith("\n")
    assert stream.getvalue().count("\n") == 1


def test_progress_bar_shows_the_share_of_an_enumeration(rng):
    stream = Terminal()
    random_case(rng, 8, 16).solve(
        es.ExactEnumeration(), observers=es.ProgressBar(stream, every=0.0)
    )
    shares = [int(found) for found in re.findall(r"(\d+) %", stream.getvalue())]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert stream.getvalue().endswith("\n")


def test_progress_bar_is_silent_where_there_is_no_terminal(case, capsys):
    stream = io.StringIO()
    case.solve(es.ParallelEP(), observers=es.ProgressBar(stream, every=0.0))
    assert stream.getvalue() == ""
    case.solve(es.ParallelEP(), observers=es.ProgressBar())
    assert capsys.readouterr() == ("", "")


def test_progress_bar_updates_seldom_and_may_be_used_again(case):
    stream = Terminal()
    bar = es.ProgressBar(stream, every=1e6)
    for fits in (1, 2):
        case.solve(es.ParallelEP(), observers=bar)
        assert stream.getvalue().count("\n") <= fits
    stream = Terminal()
    bar = es.ProgressBar(stream, every=0.0)
    for fits in (1, 2):
        case.solve(es.ParallelEP(max_iter=3), observers=bar)
        assert stream.getvalue().count("\n") == fits
        assert len(lines_of(stream)) == 5 * fits


def test_library_is_silent_by_itself(case, capsys):
    for solver in (*EP_SOLVERS, es.ExactEnumeration):
        case.solve(solver())
    assert capsys.readouterr() == ("", "")


# ---- time limit


class Slow(es.Observer):
    def iterated(self, record):
        time.sleep(0.01)


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_time_limit_ends_a_fit_with_its_last_state(solver, case):
    result = case.solve(solver(tol=1e-12), observers=[Slow(), es.TimeLimit(0.05)])
    assert result.status is es.Status.INTERRUPTED
    assert 0 <= result.n_iter <= 6
    assert np.isfinite(result.posterior.mean).all()
    residual, _ = case.certificate(result, dps=30)
    assert residual == pytest.approx(result.residual, rel=1e-6)


def test_time_limit_starts_anew_with_every_fit(case):
    limit = es.TimeLimit(0.2)
    for _ in range(3):
        result = case.solve(es.ParallelEP(max_iter=8, tol=1e-12), observers=[Slow(), limit])
        assert result.status is es.Status.MAX_ITER


def test_time_limit_that_is_never_reached(case):
    assert case.solve(es.ParallelEP(), observers=es.TimeLimit(1e6)).converged


@pytest.mark.parametrize("reason", [es.StopFit, KeyboardInterrupt])
def test_interruption_ends_an_enumeration(rng, reason):
    """Half an enumeration has nothing to show but the prior, and says so."""

    class Impatient(es.Observer):
        def advanced(self, done, total):
            raise reason

    found = random_case(rng, 8, 16).solve(es.ExactEnumeration(), observers=Impatient())
    assert found.status is es.Status.INTERRUPTED
    assert found.residual == np.inf
    assert np.isnan(found.log_evidence)
    np.testing.assert_array_equal(found.posterior.mean, np.zeros(16))


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_time_limit_wants_some_time(seconds):
    with pytest.raises(ValueError, match="seconds"):
        es.TimeLimit(seconds)
    with pytest.raises(TypeError, match="seconds"):
        es.TimeLimit(str(seconds))


def test_an_observer_may_stop_a_fit_for_reasons_of_its_own(case):
    """For instance once the energy is low enough."""

    class LowEnough(es.Observer):
        def iterated(self, record):
            if record.energy < full.trace.energy[3]:
                raise es.StopFit

    full = case.solve(es.DoubleLoopEP())
    result = case.solve(es.DoubleLoopEP(), observers=LowEnough())
    assert result.status is es.Status.INTERRUPTED
    assert result.n_iter == 4
