"""What the caller passes: never modified, in any precision and from any array library."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from fits import DOMAINS, EP_SOLVERS, moments_of, naturals, random_case

import epslab as es

SHAPES = [(9, 5), (4, 8), (6, 6)]


def every_solver(test):
    domains = [(solver, domain) for solver in EP_SOLVERS for domain in DOMAINS]
    made = [solver(max_iter=4, domain=domain) for solver, domain in domains]
    ids = [f"{solver.name}-{type(domain).__name__}" for solver, domain in domains]
    return pytest.mark.parametrize(
        "solver", [*made, es.ExactEnumeration()], ids=[*ids, "exact-enumeration"]
    )(test)


def mixed_case(rng, n, d):
    """A case with features always in, always out and open."""
    case = random_case(rng, n, d, 0.1)
    inclusion = case.inclusion.copy()
    inclusion[1], inclusion[3] = 1.0, 0.0
    return case.but(inclusion=inclusion)


def assert_close(one, other, atol=1e-9):
    """The same fit: same course, same numbers up to the order of summation."""
    assert other.n_iter == one.n_iter
    assert other.status is one.status
    assert other.energy == pytest.approx(one.energy, abs=atol, rel=atol)
    for name, values in moments_of(one).items():
        np.testing.assert_allclose(moments_of(other)[name], values, atol=atol, err_msg=name)


@every_solver
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_arguments_stay_as_they_are(solver, n, d, rng, read_only):
    """Arrays that refuse to be written to are as good as any, and stay the same."""
    case = mixed_case(rng, n, d)
    fields = ("X", "y", "inclusion", "slab_variance")
    before = {name: getattr(case, name).copy() for name in fields}
    case = case.but(**{name: read_only(getattr(case, name)) for name in fields})
    result = case.solve(solver)
    if result.sites is not None:
        kept = naturals(result)
        copies = [part.copy() for part in kept]
        start = es.Natural(read_only(kept[0]), read_only(kept[1]))
        case.solve(solver, start=start)
        case.solve(solver, start=result)
        for part, copy in zip(naturals(result), copies, strict=True):
            np.testing.assert_array_equal(part, copy)
    for name in fields:
        np.testing.assert_array_equal(getattr(case, name), before[name])


@every_solver
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_same_call_same_bits(solver, n, d, rng):
    case = mixed_case(rng, n, d)
    problem = case.problem()
    results = [es.solve(problem, solver), es.solve(problem, solver), case.solve(solver)]
    for other in results[1:]:
        assert other.energy == results[0].energy
        assert other.trace.residual == results[0].trace.residual
        for name, values in moments_of(results[0]).items():
            np.testing.assert_array_equal(moments_of(other)[name], values)
        draws = [result.posterior.sample(4, 1) for result in (results[0], other)]
        np.testing.assert_array_equal(*draws)


@every_solver
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order(solver, n, d, order, rng):
    case = mixed_case(rng, n, d)
    other = case.but(X=np.array(case.X, order=order))
    assert_close(case.solve(solver), other.solve(solver))
    wide = np.zeros((2 * n, 2 * d))
    wide[::2, ::2] = case.X
    assert_close(case.solve(solver), case.but(X=wide[::2, ::2]).solve(solver))


@every_solver
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_float32(solver, n, d, rng):
    """A float32 X is read as what it is: every operation on it is in float64."""
    case = mixed_case(rng, n, d)
    X = case.X.astype(np.float32)
    one, other = case.but(X=X.astype(float)).solve(solver), case.but(X=X).solve(solver)
    assert_close(one, other, atol=1e-10)
    for values in moments_of(other).values():
        assert values.dtype == np.float64


@every_solver
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_matrix, sp.coo_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse(solver, n, d, container, dtype, rng):
    case = mixed_case(rng, n, d)
    X = np.where(rng.random((n, d)) < 0.6, case.X, 0.0).astype(dtype)
    one, other = case.but(X=X.astype(float)), case.but(X=container(X))
    assert_close(one.solve(solver), other.solve(solver))
    np.testing.assert_array_equal(other.X.toarray(), X)


@every_solver
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_array_api_strict(solver, n, d, rng):
    """Arrays of another library go in and come out."""
    case = mixed_case(rng, n, d)
    fields = ("X", "y", "inclusion", "slab_variance")
    strict = case.but(**{name: array_api_strict.asarray(getattr(case, name)) for name in fields})
    one, other = case.solve(solver), strict.solve(solver)
    assert_close(one, other)
    posterior = other.posterior
    arrays = [posterior.mean, posterior.variance, posterior.inclusion_probability]
    arrays += [posterior.covariance([0, 1, 3]), posterior.sample(3, 0)]
    arrays += [posterior.predict(strict.X).mean, posterior.predict(strict.X).variance]
    arrays += [other.marginals.shift, other.marginals.precision]
    if other.sites is not None:
        arrays += [other.sites.shift, other.sites.precision]
    for array in arrays:
        assert array.__array_namespace__() is array_api_strict
    for row in ((0, 1, 3), range(d)):
        np.testing.assert_allclose(
            np.asarray(posterior.covariance(row)), one.posterior.covariance(row), atol=1e-9
        )
    assert isinstance(other.energy, float)
    assert isinstance(other.residual, float)


@every_solver
def test_lists_and_integers(solver):
    """Plain Python data mean what they say."""
    X, y = [[1, 0, 2], [0, 3, 1]], [1, 2]
    prior = es.SpikeSlabPrior(inclusion=[0.5, 1, 0.25], slab_variance=2)
    one = es.solve(es.Problem(X, y, noise_variance=1, prior=prior), solver)
    prior = es.SpikeSlabPrior(inclusion=np.array([0.5, 1.0, 0.25]), slab_variance=2.0)
    problem = es.Problem(np.array(X, float), np.array(y, float), noise_variance=1.0, prior=prior)
    other = es.solve(problem, solver)
    for name, values in moments_of(one).items():
        np.testing.assert_array_equal(values, moments_of(other)[name])
