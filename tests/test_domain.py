"""The two domains: what each allows, where it sends what it does not, what it calls clipped."""

import numpy as np
import oracles
import pytest

from epslab import Box, Moments, Natural, Proper
from epslab._array import quiet
from epslab.priors import BoundSpikeSlab

EPS = 1e-3


@pytest.fixture
def scale(rng):
    return 10 ** rng.uniform(-2, 2, 12)


def pairs(rng, precision):
    return Natural(rng.standard_normal(len(precision)), precision)


def tilt(cavity, scale, inclusion=0.3):
    prior = BoundSpikeSlab(np.full(len(scale), inclusion), scale)
    with quiet():
        return prior.tilted(cavity)


def test_proper_changes_nothing(rng, scale):
    """:eq:`proper`: no precision is raised, no target bent, no feature at a constraint."""
    domain = Proper()
    sites, cavity = (pairs(rng, rng.standard_normal(12) / scale * 0.9) for _ in range(2))
    marginals = pairs(rng, rng.random(12) / scale)
    tilted = tilt(cavity, scale)
    assert domain.nearest_sites(sites, scale) is sites
    assert domain.regular_cavity(cavity, scale) is cavity
    assert domain.target(tilted, cavity, scale) is tilted.site
    assert domain.clipped(marginals, sites, scale) is None


def test_bounds_of_the_inner_problem_are_those_of_the_domain(rng, scale):
    """:eq:`proper`, :eq:`box`: between them the cavity keeps its integral, or stays in the box."""
    marginals = pairs(rng, 10 ** rng.uniform(-1, 2, 12) / scale)
    lowest, highest = Proper().precision_bounds(marginals, -1 / scale, scale)
    assert (lowest == -np.inf).all()
    np.testing.assert_allclose(marginals.precision - highest, -1 / scale, rtol=1e-12)
    lowest, highest = Box(EPS).precision_bounds(marginals, -1 / scale, scale)
    np.testing.assert_array_equal(lowest, EPS / scale)
    np.testing.assert_allclose(marginals.precision - highest, EPS / scale, rtol=1e-10)
    half = marginals.precision / 2
    assert ((lowest <= half) & (half <= highest)).all(), "v/2 is feasible"


def test_box_raises_precisions_and_keeps_shifts(rng, scale):
    """:eq:`box`, :eq:`box-target`: the nearest point of the box, feature by feature."""
    domain, floor = Box(EPS), EPS / scale
    pair = pairs(rng, rng.standard_normal(12) / scale)
    for raised in (domain.nearest_sites(pair, scale), domain.regular_cavity(pair, scale)):
        np.testing.assert_array_equal(raised.shift, pair.shift)
        np.testing.assert_array_equal(raised.precision, np.maximum(pair.precision, floor))
    inside = pairs(rng, 2 * floor)
    assert domain.regular_cavity(inside, scale) is inside, "no cavity is tilted twice for nothing"


def test_box_target_matches_the_mean_where_it_cannot_match_the_variance(rng, scale):
    """:eq:`box-target`: at t2 = eps site times cavity still has P's mean, and is narrower."""
    domain, floor = Box(EPS), EPS / scale
    precision = 10 ** rng.uniform(0, 5, 12) / scale
    shift = np.sqrt(2 * (1 + np.log1p(scale * precision)) * (precision + 1 / scale))
    shift = shift * rng.uniform(0.3, 1.6, 12)
    cavity = Natural(shift, precision)
    tilted = tilt(cavity, scale)
    target = domain.target(tilted, cavity, scale)
    product = (target + cavity).moments()
    np.testing.assert_allclose(product.mean, tilted.mean, rtol=1e-9)
    assert (target.precision >= floor).all()
    bent = tilted.site.precision < floor
    assert bent.any()
    assert not bent.all()
    np.testing.assert_array_equal(target.precision[bent], floor[bent])
    assert (product.variance[bent] <= tilted.variance[bent] * (1 + 1e-12)).all()
    np.testing.assert_allclose(product.variance[~bent], tilted.variance[~bent], rtol=1e-9)


def test_outer_step_takes_the_wider_of_the_two_moments(rng, scale):
    """:eq:`multipliers`, :eq:`outer-step`: 2 lambda2 is the larger of the second moments.

    At t2 = eps Q is narrower than P, at h2 = eps P is narrower than Q, elsewhere they agree.
    """
    domain = Box(EPS)
    mean = rng.standard_normal(12) * np.sqrt(scale)
    wide = 10 ** rng.uniform(-2, 1, 12) * scale
    narrow = wide * rng.uniform(0.1, 0.9, 12)
    at_cavity = rng.random(12) < 0.5
    tilted = Moments(mean, np.where(at_cavity, narrow, wide))
    gaussian = Moments(mean, np.where(at_cavity, wide, narrow))
    step = domain.outer_marginals(tilted, gaussian, scale)
    moments = step.moments()
    np.testing.assert_allclose(moments.variance, wide, rtol=1e-12)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)
    proper = Proper().outer_marginals(tilted, tilted, scale).moments()
    np.testing.assert_allclose(proper.variance, tilted.variance, rtol=1e-12)
    np.testing.assert_allclose(proper.mean, mean, rtol=1e-12)


def test_outer_step_stays_in_the_box(rng, scale):
    """:eq:`outer-step`: v2 is at least 3 eps, and the mean is kept."""
    wide = Moments(rng.standard_normal(12), scale / EPS)
    step = Box(EPS).outer_marginals(wide, wide, scale)
    np.testing.assert_allclose(step.precision, 3 * EPS / scale, rtol=1e-15)
    np.testing.assert_allclose(step.moments().mean, wide.mean, rtol=1e-12)


@pytest.mark.parametrize(
    ("site", "cavity", "expected"),
    [
        (1.0, 5.0, (True, False, False)),
        (1.0099, 5.0, (True, False, False)),
        (1.0101, 5.0, (False, False, False)),
        (5.0, 1.0, (False, True, False)),
        (5.0, 1.0101, (False, False, False)),
        (1.5, 1.5, (False, False, True)),
        (1.0, 2.0, (True, False, True)),
        (2.0, 1.0, (False, True, True)),
        (1.52, 1.52, (False, False, False)),
        (50.0, 70.0, (False, False, False)),
    ],
)
def test_clipped_is_within_one_percent_of_a_bound(scale, site, cavity, expected):
    """:eq:`clipped`, in units of eps over the slab variance."""
    floor = EPS / scale
    sites = Natural(0 * scale, site * floor)
    marginals = Natural(0 * scale, (site + cavity) * floor)
    clipped = Box(EPS).clipped(marginals, sites, scale)
    got = (clipped.site, clipped.cavity, clipped.marginal)
    for mask, is_clipped in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mask, np.full(12, is_clipped))
    np.testing.assert_array_equal(clipped.any(), np.full(12, any(expected)))


def test_bounds_are_relative_to_the_slab(rng, scale):
    """:eq:`box`: a change of units changes no decision."""
    sites = pairs(rng, EPS * np.linspace(0.98, 1.03, 12) / scale)
    marginals = sites + pairs(rng, 4 * EPS / scale)
    by = 4.0 ** rng.integers(-8, 8, 12)
    one = Box(EPS).clipped(marginals, sites, scale).site
    scaled = [Natural(a.shift, a.precision / by) for a in (marginals, sites)]
    np.testing.assert_array_equal(Box(EPS).clipped(*scaled, scale * by).site, one)
    assert one.any()
    assert not one.all()


def test_half_the_marginals_are_feasible(rng, scale):
    """Both domains contain v/2 for every v of theirs, which is all that the bound needs."""
    floor = EPS / scale
    marginals = pairs(rng, 3 * floor)
    half = Natural(marginals.shift / 2, marginals.precision / 2)
    assert Box(EPS).nearest_sites(half, scale).precision == pytest.approx(half.precision)
    assert not Box(EPS).clipped(marginals, half, scale).site.any()
    p = oracles.tilted_many(half.shift, half.precision, 0.3, scale)
    assert np.isfinite(p["log_norm"]).all()


@pytest.mark.parametrize("domain", [Box(), Box(0.5), Proper()], ids=repr)
def test_domains_are_values(domain):
    assert domain == type(domain)(**({"eps": domain.eps} if isinstance(domain, Box) else {}))
    assert hash(domain) == hash(type(domain)(*([domain.eps] if isinstance(domain, Box) else [])))
    assert Box(0.1) != Box(0.2)
    assert Box() != Proper()
