"""Regular EP, all sites at once: every iteration is the textbook's."""

import itertools

import numpy as np
import oracles
import pytest
from fits import DOMAINS, Case, naturals, random_case

import epslab as es

SHAPES = [(9, 4), (5, 5), (4, 7)]


def textbook_target(case, sites, eps=None):
    """Cavity, tilt and target for every site at once, in extended precision.

    :eq:`cavity`, :eq:`site-target` and, with a box, :eq:`box-target`.
    """
    t1, t2 = sites
    q = oracles.condition(case.X, case.y, case.noise_variance, t1, t2)
    h1, h2 = q["mean"] / q["variance"] - t1, 1 / q["variance"] - t2
    floor = -np.inf if eps is None else eps / case.slab_variance
    h2 = np.maximum(h2, floor)
    target = np.array(
        [oracles.target_site(*one) for one in zip(h1, h2, *case.args[3:], strict=True)]
    )
    p = oracles.tilted_many(h1, h2, *case.args[3:])
    low = target[:, 1] < floor
    shift = np.where(low, p["mean"] * (h2 + floor) - h1, target[:, 0])
    return shift, np.where(low, floor, target[:, 1])


def is_proper(case, sites):
    """Q and every cavity, as :eq:`proper` asks, by the oracle."""
    q = oracles.condition(case.X, case.y, case.noise_variance, *sites)
    if not q["positive_definite"]:
        return False
    return bool((1 / q["variance"] - sites[1] > -1 / case.slab_variance).all())


def iterates(case, solver, count):
    """The first states of a fit, each from a fit that stops there."""
    options = {"step_size": solver.step_size, "domain": solver.domain, "tol": 1e-12}
    return [case.solve(type(solver)(max_iter=k, **options)) for k in range(count)]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("step_size", [1.0, 0.3])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_step_is_the_textbook_step(n, d, step_size, domain, rng):
    """:eq:`step` of the way to the target, all sites from one conditioning."""
    case = random_case(rng, n, d)
    found = iterates(case, es.ParallelEP(step_size=step_size, domain=domain), 5)
    start = naturals(found[0])[:2]
    np.testing.assert_array_equal(start[0], np.zeros(d))
    np.testing.assert_allclose(start[1], 1 / (case.inclusion * case.slab_variance))
    for old, new in itertools.pairwise(found):
        before, after = naturals(old)[:2], naturals(new)[:2]
        target = textbook_target(case, before, getattr(domain, "eps", None))
        spent = new.n_conditionings - old.n_conditionings
        share = step_size * 0.5 ** (spent - 1)
        for name, was, goal, now in zip(("shift", "precision"), before, target, after, strict=True):
            expected = was + share * (goal - was)
            np.testing.assert_allclose(now, expected, rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_marginals_are_those_of_q(domain, rng):
    """In regular EP the marginals v are Q's own, of which :eq:`cavity` takes the sites away."""
    case = random_case(rng, 5, 8)
    result = case.solve(es.ParallelEP(max_iter=3, domain=domain))
    t1, t2, v1, v2 = naturals(result)
    q = oracles.condition(case.X, case.y, case.noise_variance, t1, t2)
    np.testing.assert_allclose(v1 / v2, q["mean"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(1 / v2, q["variance"], rtol=1e-9)


def test_step_is_halved_until_it_is_proper():
    """:eq:`largest-step`: the first half, quarter, ... of the step that keeps everything proper."""
    halved = 0
    for X, y, *_ in itertools.islice(oracles.paper_sets(4), 4):
        case = Case(X, y, 0.005**2, np.full(25, 0.2), np.ones(25))
        found = iterates(case, es.ParallelEP(step_size=0.9), 8)
        for old, new in itertools.pairwise(found):
            before, after = naturals(old)[:2], naturals(new)[:2]
            trials = new.n_conditionings - old.n_conditionings
            if not 1 < trials < 6:  # after many halvings the step is lost in rounding
                continue
            target = textbook_target(case, before)
            for trial in range(trials):
                share = 0.9 * 0.5**trial
                sites = [
                    was + share * (goal - was) for was, goal in zip(before, target, strict=True)
                ]
                assert is_proper(case, sites) == (trial == trials - 1)
            for now, expected in zip(after, sites, strict=True):
                np.testing.assert_allclose(now, expected, rtol=1e-6, atol=1e-6)
            halved += 1
    assert halved >= 2


@pytest.mark.parametrize("step_size", [0.2, 1.0])
def test_fixed_point_does_not_depend_on_the_step(step_size):
    """A fixed point of :eq:`step` is one for every step size."""
    case = random_case(np.random.default_rng(8), 12, 6)
    reference = case.solve(es.ParallelEP(step_size=0.5, tol=1e-10))
    result = case.solve(es.ParallelEP(step_size=step_size, tol=1e-10, max_iter=3000))
    assert reference.converged
    assert result.converged
    np.testing.assert_allclose(result.posterior.mean, reference.posterior.mean, atol=1e-8)
    again = case.solve(es.ParallelEP(step_size=step_size, tol=1e-9), start=reference)
    assert again.n_iter == 0


def test_box_keeps_sites_inside_and_says_what_it_holds():
    """:eq:`box`, :eq:`clipped`: on one of the paper's sets a feature sits at the bound."""
    X, y, *_ = list(oracles.paper_sets(6))[5]
    case = Case(X, y, 0.005**2, 0.2, 1.0)
    result = case.solve(es.ParallelEP(domain=es.Box(), tol=1e-6))
    assert result.converged
    assert result.n_active > 0
    assert np.isnan(result.log_evidence)
    assert (result.sites.precision >= 1e-4 * (1 - 1e-12)).all()
    residual, n_active = case.certificate(result)
    assert residual <= 1e-6
    assert n_active == result.n_active
