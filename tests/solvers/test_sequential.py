"""Regular EP, one site at a time: a sweep is the textbook's, with a fresh inverse at every site."""

import itertools

import numpy as np
import oracles
import pytest
from fits import DOMAINS, Case, naturals, random_case

import epslab as es

SHAPES = [(9, 4), (5, 5), (4, 7), (1, 3)]


def textbook_sweep(case, sites, step_size, eps=None):
    """One sweep of sequential EP that inverts A anew before each site.

    :eq:`q-gaussian`, :eq:`cavity`, :eq:`site-target`, :eq:`box-target` and :eq:`step`, one feature
    after the other. A site whose cavity is improper stays as it is.
    """
    t1, t2 = (np.array(part) for part in sites)
    for j in range(len(t1)):
        q = oracles.condition_dense(case.X, case.y, case.noise_variance, t1, t2)
        p, v = case.inclusion[j], case.slab_variance[j]
        h1, h2 = q["mean"][j] / q["variance"][j] - t1[j], 1 / q["variance"][j] - t2[j]
        floor = -np.inf if eps is None else eps / v
        h2 = max(h2, floor)
        if not h2 > -1 / v:
            continue
        shift, precision = oracles.target_site(h1, h2, p, v)
        if precision < floor:
            mean = oracles.tilted(h1, h2, p, v)["mean"]
            shift, precision = mean * (h2 + floor) - h1, floor
        t1[j] += step_size * (shift - t1[j])
        t2[j] += step_size * (precision - t2[j])
    return t1, t2


def sweeps(case, count, **settings):
    """The first states of a fit, each from a fit that stops there."""
    return [case.solve(es.SequentialEP(max_iter=k, tol=1e-12, **settings)) for k in range(count)]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("step_size", [1.0, 0.4])
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("noise_sd", [0.3, 0.02])
def test_sweep_is_the_textbook_sweep(n, d, step_size, domain, noise_sd, rng):
    """Rank-one updates give what fresh inverses give: :eq:`walk`, :eq:`walk-update`.

    At the lower noise sites become negative on the way, and pass in and out of the explicit ones.
    """
    case = random_case(rng, n, d, noise_sd)
    found = sweeps(case, 5, step_size=step_size, domain=domain)
    for old, new in itertools.pairwise(found):
        if new.n_iter == old.n_iter:
            break
        before, after = naturals(old)[:2], naturals(new)[:2]
        if new.n_conditionings - old.n_conditionings > 1:  # the end of the sweep was improper
            continue
        expected = textbook_sweep(case, before, step_size, getattr(domain, "eps", None))
        size = 1 + np.max(np.abs(expected), axis=1)
        for name, now, then, unit in zip(
            ("shift", "precision"), after, expected, size, strict=True
        ):
            np.testing.assert_allclose(now / unit, then / unit, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("n", [3, 12])
def test_negative_sites_on_the_way(n):
    """The sweep law above covers negative precisions: there are some."""
    case = random_case(np.random.default_rng(4), n, 7, 0.02)
    found = sweeps(case, 12, step_size=1.0)
    assert min(result.sites.precision.min() for result in found) < 0


def test_settled_features_are_not_visited(rng):
    """:eq:`settled`: always-in features keep their site, always-out ones have none."""
    case = random_case(rng, 6, 6).but(inclusion=np.array([1.0, 0.3, 0.0, 0.2, 1.0, 0.4]))
    result = case.solve(es.SequentialEP(max_iter=4))
    settled = np.array([0, 4])
    np.testing.assert_array_equal(result.sites.shift[settled], [0, 0])
    np.testing.assert_array_equal(result.sites.precision[settled], 1 / case.slab_variance[settled])
    assert np.isinf(result.sites.precision[2])
    open_sites = case.inclusion[[1, 3, 5]], case.slab_variance[[1, 3, 5]]
    assert (result.sites.precision[[1, 3, 5]] != 1 / (open_sites[0] * open_sites[1])).all()


def test_order_of_features_matters_on_the_way_but_not_at_the_end():
    """Sequential EP visits features in order: other iterates, the same fixed point."""
    case = random_case(np.random.default_rng(8), 12, 6)
    turned = case.but(
        X=case.X[:, ::-1], inclusion=case.inclusion[::-1], slab_variance=case.slab_variance[::-1]
    )
    one, other = (c.solve(es.SequentialEP(step_size=1.0, max_iter=1)) for c in (case, turned))
    assert np.abs(one.posterior.mean - other.posterior.mean[::-1]).max() > 1e-6
    one, other = (c.solve(es.SequentialEP(step_size=1.0, tol=1e-10)) for c in (case, turned))
    assert one.converged
    assert other.converged
    np.testing.assert_allclose(one.posterior.mean, other.posterior.mean[::-1], atol=1e-8)


def test_one_feature_is_parallel_ep():
    """With one feature there is nothing to be sequential about."""
    case = Case(np.ones((3, 1)), np.array([0.1, 0.4, 0.2]), 0.1, 0.3, 2.0)
    for step_size in (0.3, 1.0):
        settings = {"step_size": step_size, "max_iter": 4}
        one = case.solve(es.SequentialEP(**settings))
        other = case.solve(es.ParallelEP(**settings))
        np.testing.assert_allclose(naturals(one), naturals(other), rtol=1e-9, atol=1e-12)
