"""The sum over supports by itself: what it takes, what it returns, how it reports progress."""

import itertools
import math

import numpy as np
import pytest
from fits import random_case

import epslab as es
from epslab.solvers._supports import draw_supports, enumerate_supports, seconds_expected


def enumerated(case, rotation=None, **changes):
    """The sum for a case, its rows rotated where asked."""
    s = math.sqrt(case.noise_variance)
    rotation = np.eye(len(case.y)) if rotation is None else rotation
    with np.errstate(divide="ignore"):
        settings = {
            "factor": rotation @ case.X / s,
            "target": rotation @ case.y / s,
            "slab_variance": np.array(case.slab_variance),
            "log_in": np.log(case.inclusion),
            "log_out": np.log1p(-case.inclusion),
        }
    return enumerate_supports(**{**settings, **changes})


def test_arguments_are_keywords(rng):
    case = random_case(rng, 4, 3)
    with pytest.raises(TypeError):
        enumerate_supports(case.X, case.y, case.slab_variance, case.inclusion, case.inclusion)


@pytest.mark.parametrize(("n", "d"), [(8, 5), (5, 5), (3, 6)])
def test_mass_is_evidence_over_that_of_the_empty_support(n, d, rng):
    """:eq:`support-evidence`: the sum of prior times evidence, over that of no feature at all."""
    case = random_case(rng, n, d)
    found = enumerated(case)
    empty = case.but(inclusion=0.0).solve(es.ExactEnumeration())
    whole = case.solve(es.ExactEnumeration())
    assert found.log_mass == pytest.approx(whole.log_evidence - empty.log_evidence, abs=1e-9)
    np.testing.assert_allclose(found.mean, whole.posterior.mean, atol=1e-14)


@pytest.mark.parametrize(("n", "d"), [(8, 5), (4, 6)])
def test_only_the_gram_matrix_matters(n, d, rng):
    """Any factor and target with the same products give the same sum, down to d rows."""
    case = random_case(rng, n, d)
    found = enumerated(case)
    rotation = np.linalg.qr(rng.standard_normal((n, n)))[0]
    other = enumerated(case, rotation)
    for name in ("inclusion_probability", "mean", "covariance"):
        np.testing.assert_allclose(getattr(found, name), getattr(other, name), atol=1e-11)
    assert found.log_mass == pytest.approx(other.log_mass, abs=1e-10)


def test_order_of_features_does_not_matter(rng):
    """:eq:`fold` decides features in one order; the sum knows of none."""
    case = random_case(rng, 4, 6).but(inclusion=np.array([0.2, 1.0, 0.4, 0.9, 1.0, 0.1]))
    found = enumerated(case)
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 101):
        order = np.array(order)
        turned = enumerated(
            case.but(
                X=case.X[:, order],
                inclusion=case.inclusion[order],
                slab_variance=case.slab_variance[order],
            )
        )
        assert turned.log_mass == pytest.approx(found.log_mass, abs=1e-11)
        np.testing.assert_allclose(turned.mean, found.mean[order], atol=1e-12)
        np.testing.assert_allclose(
            turned.covariance, found.covariance[np.ix_(order, order)], atol=1e-12
        )


def test_covariance_is_symmetric_and_positive(rng):
    for noise_sd in (0.3, 1e-4):
        found = enumerated(random_case(rng, 5, 9, noise_sd))
        np.testing.assert_allclose(found.covariance, found.covariance.T, rtol=1e-14)
        assert np.linalg.eigvalsh(found.covariance)[0] > -1e-12


def test_inputs_stay_as_they_are(rng, read_only):
    case = random_case(rng, 4, 5)
    locked = {
        "factor": read_only(case.X),
        "target": read_only(case.y),
        "slab_variance": read_only(case.slab_variance),
        "log_in": read_only(np.log(case.inclusion)),
        "log_out": read_only(np.log1p(-case.inclusion)),
    }
    assert math.isfinite(enumerate_supports(**locked).log_mass)


def test_progress_is_told_in_even_parts(rng):
    """`on_block` counts up to a total, which observers see as `advanced`."""
    told = []
    case = random_case(rng, 6, 16)
    enumerated(case, on_block=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert {total for _, total in told} == {len(told)}


def test_draws_of_a_sum(rng):
    case = random_case(rng, 4, 15).but(inclusion=np.full(15, 0.2))
    found = enumerated(case)
    draws = draw_supports(found, 3000, np.random.default_rng(0))
    assert draws.shape == (3000, 15)
    error = np.sqrt(found.inclusion_probability / 3000) + 1e-3
    assert (np.abs((draws != 0).mean(axis=0) - found.inclusion_probability) <= 5 * error).all()
    assert draw_supports(found, 0, np.random.default_rng(0)).shape == (0, 15)


def test_expected_cost_doubles_with_every_feature():
    costs = [seconds_expected(d) for d in range(25, 31)]
    for one, next_one in itertools.pairwise(costs):
        assert next_one == pytest.approx(2 * one, rel=1e-2)
    assert 0.1 < seconds_expected(25) < 60
