"""Warm starts: from a result, from a neighbour's, from sites that are not proper."""

import numpy as np
import pytest
from fits import DOMAINS, EP_SOLVERS, assert_good, moments_of, naturals, random_case

import epslab as es

TOL = 1e-6


@pytest.fixture
def case():
    """A problem that every solver needs several iterations for."""
    return random_case(np.random.default_rng(11), 6, 8, 0.1)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
@pytest.mark.parametrize(("n", "d"), [(10, 5), (5, 9)])
def test_own_result_stops_at_once(solver, domain, n, d, rng):
    """Warm start from a converged result: no iteration, the same posterior."""
    case = random_case(rng, n, d, 0.2)
    settings = solver(tol=TOL, domain=domain, max_iter=3000)
    first = case.solve(settings)
    if not first.converged:  # regular EP need not
        pytest.skip(f"{first.status.name}: nothing converged to start from")
    second = case.solve(settings, start=first)
    assert second.n_iter == 0
    assert second.converged
    np.testing.assert_array_equal(naturals(second)[:2], naturals(first)[:2])
    for name, values in moments_of(second).items():
        np.testing.assert_allclose(values, moments_of(first)[name], rtol=1e-12, atol=1e-14)
    assert second.energy == pytest.approx(first.energy, rel=1e-12)


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_regular_ep_takes_up_the_double_loop_and_the_other_way_round(solver):
    """A fixed point is one for all: sites and marginals are taken over from any solver."""
    case = random_case(np.random.default_rng(8), 12, 6)
    for other in EP_SOLVERS:
        first = case.solve(other(tol=1e-9))
        assert first.converged
        assert case.solve(solver(tol=1e-6), start=first).n_iter == 0


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_neighbouring_problems_start_from_each_other(solver, domain):
    """Other y, other noise, other prior: a warm start is legal and ends at a certificate."""
    case = random_case(np.random.default_rng(8), 12, 6)
    settings = solver(tol=TOL, domain=domain, max_iter=3000)
    first = case.solve(settings)
    for neighbour in (
        case.but(y=1.1 * case.y + 0.01),
        case.but(noise_variance=0.5 * case.noise_variance),
        case.but(noise_variance=3.0 * case.noise_variance),
        case.but(inclusion=0.7 * case.inclusion),
        case.but(slab_variance=2.0 * case.slab_variance),
        case.but(X=0.9 * case.X),
    ):
        result = neighbour.solve(settings, start=first)
        assert result.converged
        assert_good(neighbour, result, dps=30)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_improper_sites_are_brought_back(solver, domain, case, rng):
    """:eq:`segment`: from the default sites towards those given, as far as is proper."""
    for precision in (-1e3, -1.0, 0.0, 1e6):
        start = es.Natural(rng.standard_normal(8), np.full(8, precision))
        result = case.solve(solver(tol=TOL, domain=domain, max_iter=2), start=start)
        assert result.status is es.Status.MAX_ITER
        assert_good(case, result, dps=40)


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_settled_sites_of_a_start_are_put_right(solver):
    """:eq:`settled`: what a start says of a settled feature does not count."""
    case = random_case(np.random.default_rng(8), 12, 6)
    case = case.but(inclusion=np.array([1.0, 0.3, 0.0, 0.2, 0.4, 1.0]))
    first = case.solve(solver(tol=TOL))
    t1, t2 = (part.copy() for part in naturals(first)[:2])
    t1[[0, 2, 5]], t2[[0, 2, 5]] = 7.0, 3.0
    again = case.solve(solver(tol=1e-4), start=es.Natural(t1, t2))
    np.testing.assert_allclose(again.posterior.mean, first.posterior.mean, atol=1e-3)
    np.testing.assert_array_equal(again.sites.shift[[0, 5]], [0.0, 0.0])


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_starts_that_do_not_fit(solver, case):
    with pytest.raises(ValueError, match=r"start.*\(3,\)"):
        case.solve(solver(), start=es.Natural(np.zeros(3), np.ones(3)))
    with pytest.raises(ValueError, match="precision"):
        case.solve(solver(), start=es.Natural(np.zeros(8), np.ones(3)))
    with pytest.raises(ValueError, match="start"):
        case.solve(solver(), start=es.Natural(np.full(8, np.nan), np.ones(8)))
    with pytest.raises(ValueError, match=r"start.*exact posterior"):
        case.solve(solver(), start=case.solve(es.ExactEnumeration()))


@pytest.mark.parametrize("solver", EP_SOLVERS)
def test_a_start_at_the_edge_of_numbers_shows_no_nonsense(solver, case):
    """However large the sites given, what comes back is finite."""
    for size in (1e20, 1e100, 1e160, 1e300):
        start = es.Natural(np.full(8, size), np.ones(8))
        result = case.solve(solver(tol=TOL, max_iter=3), start=start)
        for values in moments_of(result).values():
            assert np.isfinite(values).all()
        assert result.converged == (result.residual <= TOL)
