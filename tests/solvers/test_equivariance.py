"""Results follow the data: order, signs and units of the columns, the unit of y."""

import math

import numpy as np
import pytest
from fits import DOMAINS, EP_SOLVERS, moments_of, random_case

import epslab as es

ATOL = 1e-6


@pytest.fixture
def case():
    """A problem on which all solvers converge, and to one fixed point."""
    return random_case(np.random.default_rng(8), 12, 6)


def every_solver(test):
    domains = [(solver, domain) for solver in EP_SOLVERS for domain in DOMAINS]
    made = [solver(tol=1e-9, max_iter=5000, domain=domain) for solver, domain in domains]
    ids = [f"{solver.name}-{type(domain).__name__}" for solver, domain in domains]
    return pytest.mark.parametrize(
        "solver", [*made, es.ExactEnumeration()], ids=[*ids, "exact-enumeration"]
    )(test)


def assert_mapped(one, other, mean=1.0, order=None, log_evidence=0.0):
    """The second result is the first one, its means multiplied and its features reordered."""
    order = slice(None) if order is None else order
    expected = {name: values[order] for name, values in moments_of(one).items()}
    found = moments_of(other)
    factor = np.broadcast_to(mean, found["mean"].shape)
    for name, unit in (("inclusion_probability", 1.0), ("mean", factor), ("variance", factor**2)):
        np.testing.assert_allclose(found[name] / unit, expected[name], atol=ATOL, err_msg=name)
    assert one.converged
    assert other.converged
    assert other.n_active == one.n_active
    assert -other.energy == pytest.approx(-one.energy + log_evidence, abs=ATOL)
    covariance = one.posterior.covariance(np.arange(len(factor))[order])
    np.testing.assert_allclose(
        other.posterior.covariance(range(len(factor))) / np.outer(factor, factor),
        covariance,
        atol=ATOL,
    )


@every_solver
def test_order_of_the_columns(solver, case):
    order = np.array([4, 2, 0, 5, 1, 3])
    turned = case.but(
        X=case.X[:, order],
        inclusion=case.inclusion[order],
        slab_variance=case.slab_variance[order],
    )
    one, other = case.solve(solver), turned.solve(solver)
    assert_mapped(one, other, order=order)
    if solver.name != "sequential-ep":  # its order of visits is part of the algorithm
        assert other.n_iter == one.n_iter


@every_solver
def test_order_of_the_rows(solver, case):
    one, other = case.solve(solver), case.but(X=case.X[::-1], y=case.y[::-1]).solve(solver)
    assert_mapped(one, other)
    assert other.n_iter == one.n_iter


@every_solver
def test_signs_of_the_columns(solver, case):
    signs = np.array([1, -1, -1, 1, -1, 1])
    one, other = case.solve(solver), case.but(X=case.X * signs).solve(solver)
    assert_mapped(one, other, mean=signs)
    assert other.n_iter == one.n_iter


@every_solver
def test_sign_of_y(solver, case):
    one, other = case.solve(solver), case.but(y=-case.y).solve(solver)
    assert_mapped(one, other, mean=-1.0)
    assert other.n_iter == one.n_iter


@every_solver
@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_units_of_the_columns(solver, spread, case):
    """:eq:`residual`, :eq:`box`: column times a, slab variance by a^2, nothing else changes."""
    unit = np.exp(spread * np.array([1.0, -0.7, 0.2, 0.0, -1.0, 0.5]))
    scaled = case.but(X=case.X * unit, slab_variance=case.slab_variance / unit**2)
    one, other = case.solve(solver), scaled.solve(solver)
    assert_mapped(one, other, mean=1 / unit)
    assert other.n_iter == one.n_iter


@every_solver
@pytest.mark.parametrize("unit", [1e-4, 3.0, 1e7])
def test_unit_of_y(solver, unit, case):
    """y, the noise and the weights in other units: the evidence is a density of y."""
    scaled = case.but(
        y=unit * case.y,
        noise_variance=unit**2 * case.noise_variance,
        slab_variance=unit**2 * case.slab_variance,
    )
    one, other = case.solve(solver), scaled.solve(solver)
    assert_mapped(one, other, mean=unit, log_evidence=-12 * math.log(unit))
    assert other.n_iter == one.n_iter


@every_solver
def test_rotated_rows(solver, case):
    """White noise has no preferred direction: X and y may be rotated together."""
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 12)))[0]
    rotated = case.but(X=rotation @ case.X, y=rotation @ case.y)
    one, other = case.solve(solver), rotated.solve(solver)
    assert_mapped(one, other)
    assert other.n_iter == one.n_iter


@every_solver
def test_rows_of_zeros_are_rows_of_noise(solver, case):
    """A row of zeros tells of the noise alone: the evidence changes, the posterior does not.

    It takes the problem from one form of conditioning to the other.
    """
    flat = case.but(X=case.X[:5], y=case.y[:5])
    more = flat.but(X=np.vstack([flat.X, np.zeros((4, 6))]), y=np.append(flat.y, [0.1, 0, 0.2, 0]))
    one, other = flat.solve(solver), more.solve(solver)
    noise = -2 * math.log(2 * math.pi * case.noise_variance) - 0.05 / (2 * case.noise_variance)
    assert_mapped(one, other, log_evidence=noise)
    assert other.n_iter == one.n_iter


@every_solver
def test_scalars_are_vectors(solver, case):
    """One number for all features, or the same number per feature."""
    scalar = case.but(inclusion=0.3, slab_variance=1.5)
    vector = case.but(inclusion=np.full(6, 0.3), slab_variance=np.full(6, 1.5))
    one, other = scalar.solve(solver), vector.solve(solver)
    for name, values in moments_of(one).items():
        np.testing.assert_array_equal(values, moments_of(other)[name])
