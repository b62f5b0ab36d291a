"""The double loop: every outer step lowers the energy, every inner problem is solved."""

import dataclasses
import itertools
import math

import numpy as np
import oracles
import pytest
from fits import DOMAINS, Case, assert_same_posterior, naturals, random_case

import epslab as es

SHAPES = [(15, 6), (7, 7), (5, 9), (1, 4)]
TOL = 1e-6
# Energies carry the rounding of log Z: what the energies themselves may be off by.
ROUNDING = 1e-11


def states(case, domain, count):
    """The first outer iterations, each as the result of a fit stopped there."""
    solvers = (es.DoubleLoopEP(tol=TOL, domain=domain, max_iter=k) for k in range(count))
    found = [case.solve(solver) for solver in solvers]
    return [
        result for result, limit in zip(found, range(count), strict=True) if result.n_iter == limit
    ]


def tolerance(energy):
    return ROUNDING * max(1.0, abs(energy))


def floors(case, domain):
    """Lowest site precision, cavity precision and marginal precision that the domain allows."""
    eps = getattr(domain, "eps", None)
    if eps is None:
        return -math.inf, -1 / case.slab_variance, 0.0
    return eps / case.slab_variance, eps / case.slab_variance, 3 * eps / case.slab_variance


def mean_and_variance(natural):
    return natural.shift / natural.precision, 1 / natural.precision


def moments(case, result):
    """Means and variances of Q and of P at a result, by the oracles."""
    t1, t2, v1, v2 = naturals(result)
    q = oracles.condition(case.X, case.y, case.noise_variance, t1, t2, dps=40)
    p = oracles.tilted_many(v1 - t1, v2 - t2, case.inclusion, case.slab_variance, dps=40)
    return (q["mean"], q["variance"]), (p["mean"], p["variance"])


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("noise_sd", [0.5, 0.05, 0.005])
def test_energy_falls_and_stays_above_the_bound(domain, n, d, noise_sd, rng):
    """:eq:`energy-falls` and :eq:`lower-bound`, over whole fits."""
    for _ in range(2):
        case = random_case(rng, n, d, noise_sd)
        result = case.solve(es.DoubleLoopEP(domain=domain))
        assert result.status is not es.Status.BREAKDOWN
        energies = np.array(result.trace.energy)
        rises = np.diff(energies) / np.maximum(1.0, np.abs(energies[:-1]))
        assert rises.max(initial=0.0) <= 1e-9
        bound = oracles.energy_bound(n, d, case.noise_variance)
        assert energies.min() >= bound
        if isinstance(domain, es.Proper):  # the sharper bound of docs/theory.md
            assert energies.min() >= n / 2 * math.log(2 * math.pi * case.noise_variance)


FAR_FROM_THE_PRIOR = [
    ([[0.2, -1.6], [0.1, -0.1], [-0.2, -0.2]], [6.6, 44.3, 43.1], 1e-3, 1e-2),
    ([[12.0, -6.0], [-4.0, 20.0]], [80.3, -8.6], 1e-2, 1e-6),
    ([[0.1, 0.2], [1.8, 1.2], [0.2, -1.3]], [46.9, 124.3, -211.5], 1e-3, 1e-3),
    ([[4.0, -6.0], [-11.0, 11.0]], [65.5, 84.1], 1e-4, 1e-5),
    ([[0.3, -1.5], [0.0, 0.0], [0.7, -0.1]], [92.1, 22.9, 9.8], 1e-4, 1e-6),
    ([[-0.2, 1.7], [0.2, 0.4]], [-632.8, -433.0], 1e-2, 0.3),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("X", "y", "noise_variance", "inclusion"), FAR_FROM_THE_PRIOR)
def test_energy_falls_from_far_away(X, y, noise_variance, inclusion, domain):
    """:eq:`inner-problem`, :eq:`energy-falls`: large y, little noise, and a prior that is sure.

    The inner maximum then lies next to the edge of the domain, far from where Newton starts.
    """
    case = Case(np.array(X), np.array(y), noise_variance, inclusion, 1.0)
    result = case.solve(es.DoubleLoopEP(domain=domain, max_iter=200))
    assert result.status is not es.Status.BREAKDOWN
    energies = np.array(result.trace.energy)
    assert (np.diff(energies) / np.maximum(1.0, np.abs(energies[:-1]))).max(initial=0.0) <= 1e-9


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_outer_step_lowers_the_energy_by_the_divergence(domain, n, d, rng):
    """:eq:`energy-falls`: by at least the sum of KL(N_v+, N_v)."""
    case = random_case(rng, n, d, 0.1)
    found = states(case, domain, 12)
    assert len(found) > 3
    for old, new in itertools.pairwise(found):
        mean, variance = mean_and_variance(old.marginals)
        mean_new, variance_new = mean_and_variance(new.marginals)
        ratio = variance_new / variance
        divergence = (ratio - 1 - np.log(ratio)) / 2 + (mean_new - mean) ** 2 / (2 * variance)
        assert divergence.min() >= -1e-15
        assert old.energy - new.energy >= divergence.sum() - tolerance(old.energy)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("weak", [1.0, 3e-3])
def test_outer_step_takes_the_moments_of_the_inner_maximum(domain, n, d, weak, rng):
    """:eq:`outer-step`, :eq:`multipliers`: the larger of the variances of P and Q, by oracle.

    Where a column says little the cavity's bound is active: Q then has the larger variance.
    """
    case = random_case(rng, n, d, 0.05)
    case = case.but(X=case.X * np.where(np.arange(d) % 2, weak, 1.0))
    found = states(case, domain, 8)
    for old, new in itertools.pairwise(found):
        (q_mean, q_variance), (p_mean, p_variance) = moments(case, old)
        precision = 1 / np.maximum(p_variance, q_variance)
        precision = np.maximum(precision, floors(case, domain)[2])
        np.testing.assert_allclose(new.marginals.precision, precision, rtol=1e-6)
        unit = np.sqrt(case.slab_variance)
        mean = new.marginals.shift / new.marginals.precision
        np.testing.assert_allclose(mean / unit, p_mean / unit, atol=1e-6)
        np.testing.assert_allclose(mean / unit, q_mean / unit, atol=1e-6)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("noise_sd", [0.3, 0.005])
def test_inner_maximum(domain, n, d, noise_sd, rng):
    """Gradient zero, or pushing against a bound: :eq:`inner-problem`, :eq:`inner-gradient`.

    And no feasible sites nearby have a higher energy.
    """
    case = random_case(rng, n, d, noise_sd)
    result = case.solve(es.DoubleLoopEP(tol=TOL, domain=domain, max_iter=4))
    t1, t2, v1, v2 = naturals(result)
    (q_mean, q_variance), (p_mean, p_variance) = moments(case, result)
    lowest, cavity_lowest, _ = floors(case, domain)
    np.testing.assert_allclose((p_mean - q_mean) / np.sqrt(q_variance), 0, atol=1e-6)
    slope = (q_mean**2 + q_variance - p_mean**2 - p_variance) / (2 * q_variance)
    at_lowest = t2 <= lowest * (1 + 1e-9)
    at_highest = (v2 - t2 <= cavity_lowest * (1 + 1e-6)) & np.isfinite(lowest)
    free = ~at_lowest & ~at_highest
    np.testing.assert_allclose(slope[free], 0, atol=1e-6)
    assert (slope[at_lowest] <= 1e-6).all()
    assert (slope[at_highest] >= -1e-6).all()
    assert (t2 >= lowest).all()
    assert (v2 - t2 >= cavity_lowest * (1 - 1e-6)).all()
    for size in (1e-4, 1e-2, 1.0):
        precision = t2 + size * rng.standard_normal(d) / q_variance
        precision = np.clip(precision, lowest, v2 - cavity_lowest)
        shift = t1 + size * rng.standard_normal(d) / np.sqrt(q_variance)
        nearby = oracles.energy(*case.args, shift, precision, v1, v2)
        assert nearby <= result.energy + tolerance(result.energy)


def energy_in_whitened_steps(case, t, v, q, step):
    """Energy after a step in coordinates whitened by Q, mapped back as in :eq:`whitening`."""
    d = len(t[0])
    delta2 = step[d:] / q["variance"]
    delta1 = step[:d] / np.sqrt(q["variance"]) + q["mean"] * delta2
    return oracles.energy(*case.args, t[0] + delta1, t[1] + delta2, *v, dps=40)


@pytest.mark.parametrize(("n", "d"), [(6, 3), (2, 4)])
def test_newton_system_is_the_second_derivative(n, d, rng):
    """:eq:`inner-hessian`, :eq:`whitening`: gradient and Hessian equal differences of E.

    The library's pieces, posterior correlations and the prior's curvature, against the oracle's
    energy in mpmath.
    """
    case = random_case(rng, n, d)
    problem = case.problem()
    t = (0.3 * rng.standard_normal(d), rng.uniform(0.5, 3, d) / case.slab_variance)
    q = oracles.condition(case.X, case.y, case.noise_variance, *t)
    v = (t[0] + rng.standard_normal(d), t[1] + rng.uniform(0.1, 5, d))
    gaussian = problem.condition(es.Natural(*t))
    cavity = es.Natural(v[0] - t[0], v[1] - t[1])
    sd = np.sqrt(gaussian.moments.variance)
    R = gaussian.covariance_rows(np.arange(d)) / np.outer(sd, sd)
    T = problem.bound_prior.tilted_curvature(cavity, gaussian.moments)
    hessian = np.block(
        [
            [R + np.diag(T.linear), np.diag(T.cross)],
            [np.diag(T.cross), R * R / 2 + np.diag(T.quadratic)],
        ]
    )
    tilted = problem.tilted(cavity)
    offset = (tilted.mean - gaussian.moments.mean) / sd
    slope = -(tilted.variance / gaussian.moments.variance + offset**2 - 1) / 2

    def energy(*steps):
        step = np.zeros(2 * d)
        for axis, length in steps:
            step[axis] += length
        return energy_in_whitened_steps(case, t, v, q, step)

    h = 1e-4
    gradient = [(energy((a, h)) - energy((a, -h))) / (2 * h) for a in range(2 * d)]
    np.testing.assert_allclose(np.concatenate([offset, slope]), gradient, rtol=1e-4, atol=1e-4)
    for a in range(2 * d):
        for b in range(a + 1):
            corners = energy((a, h), (b, h)) - energy((a, h), (b, -h))
            corners += energy((a, -h), (b, -h)) - energy((a, -h), (b, h))
            assert -corners / (4 * h * h) == pytest.approx(hessian[a, b], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize(("noise_sd", "most"), [(0.3, 10), (0.05, 25)])
def test_newton_is_quick_near_the_solution(domain, noise_sd, most, rng):
    """:eq:`projected-newton`: few conditionings per outer step once steps are small."""
    for n, d in SHAPES:
        result = random_case(rng, n, d, noise_sd).solve(es.DoubleLoopEP(tol=TOL, domain=domain))
        spent = np.diff(result.trace.n_conditionings)
        assert np.median(spent[-20:]) <= most


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_inner_maximum_is_that_of_the_lagrangian(domain, rng):
    """:eq:`lagrangian`: with the multipliers of :eq:`multipliers`, h and t untied.

    At the inner maximum the Lagrangian equals the energy, and no other h and t, feasible or not,
    have a larger one: there is no duality gap.
    """
    case = random_case(rng, 5, 7, 0.05)
    result = case.solve(es.DoubleLoopEP(tol=1e-8, domain=domain, max_iter=6))
    t1, t2, v1, v2 = naturals(result)
    (q_mean, q_variance), (_, p_variance) = moments(case, result)
    eps = getattr(domain, "eps", 0.0) / case.slab_variance
    lambda1 = -q_mean
    lambda2 = (q_mean**2 + np.maximum(q_variance, p_variance)) / 2
    mu1 = np.where(p_variance < q_variance, p_variance - q_variance, 0.0) / 2
    mu2 = np.where(q_variance < p_variance, q_variance - p_variance, 0.0) / 2

    def lagrangian(h1, h2, a1, a2):
        log_z = oracles.condition_dense(case.X, case.y, case.noise_variance, a1, a2)["log_norm"]
        log_hat = oracles.tilted_many(h1, h2, case.inclusion, case.slab_variance)["log_norm"]
        log_tilde = es.Natural(v1, v2).log_norm()
        tied = lambda1 @ (v1 - h1 - a1) + lambda2 @ (v2 - h2 - a2)
        return -log_z - log_hat.sum() + log_tilde + tied + mu1 @ (eps - h2) + mu2 @ (eps - a2)

    h1, h2 = v1 - t1, v2 - t2
    at_maximum = lagrangian(h1, h2, t1, t2)
    assert at_maximum == pytest.approx(result.energy, rel=1e-8)
    for size in (1e-3, 0.1, 0.5):
        for _ in range(5):
            z1, z2, z3, z4 = size * rng.standard_normal((4, len(t1)))
            spread = np.sqrt(q_variance)
            other = lagrangian(
                h1 + z1 / spread, h2 * np.exp(z2), t1 + z3 / spread, t2 + z4 / q_variance
            )
            assert not other > at_maximum + 1e-7


@pytest.mark.parametrize("n", [3, 8])
def test_energy_falls_to_minus_infinity_at_the_edge(n, rng):
    """:eq:`bounded-without-box`: where Q or a cavity turns improper, E has no bound below.

    So the maximum over the sites stays away from the edge, with no box to keep it.
    """
    d = 5
    case = random_case(rng, n, d)
    problem = case.problem()
    result = es.solve(problem, es.DoubleLoopEP(max_iter=2))
    t1, t2, _, v2 = naturals(result)
    covariance = oracles.condition(case.X, case.y, case.noise_variance, t1, t2)["covariance"]
    for j in range(d):
        # At -1/S_jj the rank-one change of A makes it singular; at v2 + 1/v the cavity ends.
        for edge in (t2[j] - 1 / covariance[j, j], v2[j] + 1 / case.slab_variance[j]):
            energies = []
            for share in (0.9, 0.99, 0.9999, 1 - 1e-6, 1 - 1e-8, 1.0 + 1e-9, 2.0):
                moved = t2.copy()
                moved[j] += share * (edge - t2[j])
                sites = es.Natural(t1, moved)
                energies.append(es.energy(problem, sites, result.marginals))
            assert energies[-2:] == [-math.inf, -math.inf]
            assert (np.diff(energies[:-2]) < -0.5).all()


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_segment_leads_back_into_the_domain(domain, rng):
    """:eq:`segment`: beyond its share of the way to half the marginals, sites are feasible.

    And a fit from sites that its marginals do not allow goes on to the end.
    """
    case = random_case(rng, 5, 7)
    full = case.solve(es.DoubleLoopEP(tol=TOL, domain=domain))
    t1, t2, _, v2 = naturals(full)
    lowest, cavity_lowest, _ = floors(case, domain)
    highest = v2 - cavity_lowest
    outside = t2.copy()
    outside[[1, 4]] = highest[[1, 4]] + np.array([0.5, 50.0]) * v2[[1, 4]]
    violates = outside > highest
    share = np.max(((outside - highest) / (outside - v2 / 2))[violates])
    assert 0 < share < 1
    assert (outside + 0.99 * share * (v2 / 2 - outside) > highest).any()
    for theta in (share + 1e-9, (1 + share) / 2, 1.0):
        inside = outside + theta * (v2 / 2 - outside)
        assert (inside <= highest).all()
        assert (inside >= np.minimum(lowest, t2)).all()
        assert np.linalg.eigvalsh(case.X.T @ case.X / case.noise_variance + np.diag(inside))[0] > 0
    start = dataclasses.replace(full, sites=es.Natural(t1, outside))
    again = case.solve(es.DoubleLoopEP(tol=TOL, domain=domain), start=start)
    assert again.converged
    assert case.certificate(again, dps=30)[0] <= TOL + 1e-10


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_interrupted_fit_goes_on_where_it_stopped(domain, rng):
    """A result as start= takes up its marginals: the energy goes on falling from there."""
    case = random_case(rng, 6, 9, 0.05)
    short, long = (es.DoubleLoopEP(tol=1e-8, domain=domain, max_iter=k) for k in (5, 12))
    first = case.solve(short)
    second = case.solve(es.DoubleLoopEP(tol=1e-8, domain=domain, max_iter=7), start=first)
    whole = case.solve(long)
    assert first.status is es.Status.MAX_ITER
    np.testing.assert_allclose(second.trace.energy, whole.trace.energy[5:], rtol=1e-9)
    np.testing.assert_allclose(second.posterior.mean, whole.posterior.mean, atol=1e-7)


def test_refusal_names_the_size_and_the_way_out():
    case = Case(np.ones((2, 12)), np.ones(2), 1.0, 0.5, 1.0)
    with pytest.raises(ValueError, match=r"12 features.*at most 10.*ParallelEP.*max_features"):
        case.solve(es.DoubleLoopEP(max_features=10))
    out = case.but(inclusion=np.array([0.5] * 10 + [0.0] * 2))  # those always out do not count
    assert out.solve(es.DoubleLoopEP(max_features=10)).converged


def test_box_and_proper_agree_where_no_constraint_is_active(rng):
    """:eq:`box` lies within :eq:`proper`, and an interior solution is one of both."""
    found = 0
    for _ in range(20):
        case = random_case(rng, 12, 4, 1.0)
        boxed = case.solve(es.DoubleLoopEP(tol=1e-8, domain=es.Box()))
        if boxed.converged and not boxed.n_active:
            found += 1
            proper = case.solve(es.DoubleLoopEP(tol=1e-8), start=boxed)
            assert proper.n_iter == 0
            assert_same_posterior(boxed, proper, atol=1e-12)
    assert found
