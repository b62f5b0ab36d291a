"""Regression problems with their settings, as the oracles take them and as the library does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import oracles
import pytest

import epslab as es

EP_SOLVERS = (es.ParallelEP, es.SequentialEP, es.DoubleLoopEP)
DOMAINS = (es.Proper(), es.Box())
MOMENTS = ("inclusion_probability", "mean", "variance")


@dataclass(frozen=True)
class Case:
    """A regression problem in plain numbers; `inclusion` and `slab_variance` as in a prior."""

    X: Any
    y: Any
    noise_variance: float
    inclusion: Any
    slab_variance: Any

    @property
    def args(self) -> tuple[Any, ...]:
        """What every oracle takes first."""
        return self.X, self.y, self.noise_variance, self.inclusion, self.slab_variance

    def but(self, **changes: Any) -> Case:
        """The same with some fields changed."""
        return replace(self, **changes)

    def problem(self) -> es.Problem:
        """The library's problem."""
        prior = es.SpikeSlabPrior(inclusion=self.inclusion, slab_variance=self.slab_variance)
        return es.Problem(self.X, self.y, noise_variance=self.noise_variance, prior=prior)

    def solve(self, solver: Any, **options: Any) -> es.FitResult:
        """The library's answer."""
        return es.solve(self.problem(), solver, **options)

    def certificate(self, result: es.FitResult, dps: int | None = None) -> tuple[float, int]:
        """Residual and number of clipped features of a result, by the oracle."""
        eps = getattr(result.solver.domain, "eps", None)
        return oracles.residual(*self.args, *naturals(result), box_eps=eps, dps=dps)

    def energy(self, result: es.FitResult, dps: int | None = None) -> float:
        """Energy at a result's sites and marginals, by the oracle."""
        return oracles.energy(*self.args, *naturals(result), dps=dps)


def naturals(result: es.FitResult) -> tuple[Any, ...]:
    """Sites and marginals of a result, in the order the oracles take them."""
    sites, marginals = result.sites, result.marginals
    parts = (sites.shift, sites.precision, marginals.shift, marginals.precision)
    return tuple(np.asarray(part) for part in parts)


def random_case(rng: np.random.Generator, n: int, d: int, noise_sd: float = 0.3) -> Case:
    """Correlated columns, sparse weights, settings of the prior that differ between features."""
    X = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    X *= np.exp(0.5 * rng.standard_normal(d)) / np.sqrt(n)
    inclusion, slab_variance = rng.uniform(0.05, 0.6, d), np.exp(rng.uniform(-1, 1, d))
    w = np.where(rng.random(d) < inclusion, np.sqrt(slab_variance) * rng.standard_normal(d), 0)
    y = X @ w + noise_sd * rng.standard_normal(n)
    return Case(X, y, noise_sd**2, inclusion, slab_variance)


def orthogonal_case(rng: np.random.Generator, n: int, d: int) -> Case:
    """Columns orthogonal to each other, of different lengths; those beyond n are zero."""
    case = random_case(rng, n, d)
    X = np.zeros((n, d))
    k = min(n, d)
    X[:, :k] = np.linalg.qr(case.X[:, :k])[0] * np.linalg.norm(case.X[:, :k], axis=0)
    return case.but(X=X)


def moments_of(result: es.FitResult) -> dict[str, Any]:
    """Inclusion probabilities, means and variances as NumPy arrays."""
    return {name: np.asarray(getattr(result.posterior, name)) for name in MOMENTS}


def assert_same_posterior(a: es.FitResult, b: es.FitResult, atol: float) -> None:
    """Same inclusion probabilities, means, variances and evidence."""
    theirs = moments_of(b)
    for name, values in moments_of(a).items():
        np.testing.assert_allclose(values, theirs[name], rtol=0, atol=atol, err_msg=name)
    np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=0, atol=atol)


def assert_good(case: Case, result: es.FitResult, dps: int | None = None) -> None:
    """What a result shows is a state: finite, certified by the oracle, its status in line."""
    for name, values in moments_of(result).items():
        assert np.isfinite(values).all(), name
    for part in naturals(result):
        assert np.isfinite(part).all()
    assert result.converged == (result.residual <= result.solver.tol)
    assert result.converged == (result.status is es.Status.CONVERGED)
    residual, n_active = case.certificate(result, dps=dps)
    assert residual == pytest.approx(result.residual, rel=1e-5, abs=1e-11)
    assert n_active == result.n_active
    records = list(result.trace)
    assert [record.iteration for record in records] == list(range(len(records)))
    assert result.n_iter == len(records) - 1
    last = records[-1]
    assert (last.energy, last.residual) == (result.energy, result.residual)
    assert last.n_conditionings == result.n_conditionings
    assert result.seconds >= last.seconds >= 0.0
    assert (np.diff(result.trace.n_conditionings) >= 1).all()
    assert (np.diff(result.trace.seconds) >= 0).all()
