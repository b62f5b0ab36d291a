"""The tilted distribution of a spike and a slab against mpmath, over everything that doubles hold.

Exercises :eq:`prior`, :eq:`tilted-slab`, :eq:`tilted-inclusion`, :eq:`tilted-mean`,
:eq:`tilted-variance`, :eq:`tilted-norm`, :eq:`tilted-derivatives`, :eq:`tilted-curvature` and
:eq:`site-target`. Cavities are given in units in which the slab variance is 1 unless said.
"""

import itertools

import numpy as np
import oracles
import pytest
from mpmath import mp

from epslab import Moments, Natural, SpikeSlabPrior
from epslab._array import quiet
from epslab.priors import BoundSpikeSlab

UNIT = np.finfo(float).eps
SHIFTS = (0.0, 1e-300, -1e-5, 0.3, -1.0, 7.0, -30.0, 1e3, 1e20, -1e100, 1e150)
PRECISIONS = (-1 + 1e-12, -1 + 1e-6, -0.5, -1e-10, 0.0, 0.5, 10.0, 1e5, 1e50, 1e150, 1e300)
INCLUSIONS = (1e-12, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-12, 1.0)
QUANTITIES = ("mean", "variance", "inclusion_probability")


def prior_of(inclusion, slab_variance, xp=np):
    arrays = np.broadcast_arrays(np.asarray(inclusion, float), np.asarray(slab_variance, float))
    return BoundSpikeSlab(*(xp.asarray(np.array(a)) for a in arrays))


def tilt(shift, precision, inclusion, slab_variance=1.0, xp=np):
    shift, precision, inclusion, slab_variance = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(a, float)) for a in (shift, precision, inclusion, slab_variance))
    )
    with quiet():
        prior = prior_of(inclusion, slab_variance, xp)
        return prior.tilted(Natural(xp.asarray(np.array(shift)), xp.asarray(np.array(precision))))


def even_odds(rng, count):
    """Cavities at which neither spike nor slab is certain, for precisions up to 1e300."""
    precision = 10 ** rng.uniform(-6, 300, count)
    inclusion = 10 ** rng.uniform(-12, -0.01, count)
    log_prior_odds = np.log(inclusion) - np.log1p(-inclusion)
    k = np.log1p(precision) + 2 * (5 * rng.standard_normal(count) - log_prior_odds)
    k = np.maximum(k, 0.0)
    shift = np.sqrt(k) * np.sqrt(1 + precision) * np.sign(rng.standard_normal(count))
    return shift, precision, inclusion


@pytest.fixture(scope="module")
def wide():
    """The wide grid with its truth; even odds are where both tails of expit meet cancellation."""
    grid = np.array(list(itertools.product(SHIFTS, PRECISIONS, INCLUSIONS))).T
    even = np.array(even_odds(np.random.default_rng(0), 300))
    cavities = np.concatenate([grid, even], axis=1)
    return (*cavities, oracles.tilted_many(*cavities, 1.0))


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_moments_are_accurate_on_the_wide_grid(wide, quantity):
    """Relative accuracy, not absolute: what is 1e-200 is 1e-200."""
    *cavity, truth = wide
    got, true = getattr(tilt(*cavity), quantity), truth[quantity]
    assert np.isfinite(true).all(), "no moment overflows on this grid"
    # Below the smallest normal number a double has fewer digits than the tolerance asks for.
    np.testing.assert_allclose(got, true, rtol=2e-13, atol=1e-306)


def test_log_norm_is_accurate_on_the_wide_grid(wide):
    """Infinite exactly where the truth, about h1^2/(2 g), exceeds the largest double."""
    *cavity, truth = wide
    got, true = tilt(*cavity).log_norm, truth["log_norm"]
    assert 0 < np.isinf(true).sum() < 20
    np.testing.assert_array_equal(np.isinf(got), np.isinf(true))
    shown = np.isfinite(true)
    # Near 0 the log of a sum of two probabilities is good to the rounding of 1, as it enters sums.
    np.testing.assert_allclose(got[shown], true[shown], rtol=2e-13, atol=4e-16)


def test_site_is_accurate_on_the_wide_grid(wide):
    """:eq:`site-target` up to the rounding of its own terms; infinite only where the truth is."""
    shift, precision, inclusion, truth = wide
    site = tilt(shift, precision, inclusion).site
    true = np.array(
        [oracles.target_site(*cavity, 1.0, dps=200) for cavity in zip(*wide[:3], strict=True)]
    ).T
    assert not np.isnan(site.shift).any()
    assert not np.isnan(site.precision).any()
    np.testing.assert_allclose(site.shift, true[0], rtol=2e-12, atol=1e-300)
    np.testing.assert_array_equal(np.isinf(site.precision), np.isinf(true[1]))
    shown = np.isfinite(true[1]) & (truth["variance"] > 1e-300)
    size = 1 / truth["variance"][shown] + np.abs(precision[shown])
    error = np.abs(site.precision[shown] - true[1][shown])
    assert (error <= 2e-12 * size).all()


def test_site_precision_has_its_digits_at_negative_cavities():
    """For h2 < 0 the site is a sum of positive terms, g - h2 pip (1 + q k): nothing may cancel."""
    shift, precision, inclusion = (
        np.ravel(a)
        for a in np.meshgrid(
            [0.0, 1e-5, 1e-3], -1 + 10.0 ** -np.arange(1, 13), [1e-12, 1e-6, 1e-2, 0.5]
        )
    )
    site = tilt(shift, precision, inclusion).site
    cavities = zip(shift, precision, inclusion, strict=True)
    true = np.array([oracles.target_site(*cavity, 1.0)[1] for cavity in cavities])
    np.testing.assert_allclose(site.precision, true, rtol=1e-12)


@pytest.mark.parametrize("slab_variance", [4.0**-30, 0.25, 4.0**12, 4.0**60])
def test_units_do_not_matter(wide, slab_variance):
    """With v a power of 4 a change of units rounds nothing, so that all bits are the same."""
    shift, precision, inclusion, _ = wide
    root = np.sqrt(slab_variance)
    # away from where doubles end, in which a change of units does round
    inside = (np.abs(precision) < 1e100) & (np.abs(shift) < 1e80) & (np.abs(shift) != 1e-300)
    shift, precision, inclusion = shift[inside], precision[inside], inclusion[inside]
    one = tilt(shift, precision, inclusion)
    other = tilt(shift / root, precision / slab_variance, inclusion, slab_variance)
    np.testing.assert_array_equal(other.mean, one.mean * root)
    np.testing.assert_array_equal(other.variance, one.variance * slab_variance)
    np.testing.assert_array_equal(other.inclusion_probability, one.inclusion_probability)
    np.testing.assert_array_equal(other.log_norm, one.log_norm)
    np.testing.assert_array_equal(other.site.precision, one.site.precision / slab_variance)
    np.testing.assert_array_equal(other.site.shift, one.site.shift / root)


@pytest.mark.parametrize("slab_variance", [3e-7, 0.3, 5.0, 7e9])
def test_any_slab_variance(rng, slab_variance):
    """Where 1/v rounds, so does g = 1/v + h2: errors grow by its condition, and no more."""
    unit_shift = rng.standard_normal(60) * 10 ** rng.uniform(-3, 1.5, 60)
    unit_precision = np.concatenate(
        [10 ** rng.uniform(-8, 8, 30), -1 + 10 ** rng.uniform(-6, 0, 30)]
    )
    inclusion = rng.uniform(0.001, 0.999, 60)
    shift, precision = unit_shift / np.sqrt(slab_variance), unit_precision / slab_variance
    got = tilt(shift, precision, inclusion, slab_variance)
    true = oracles.tilted_many(shift, precision, inclusion, slab_variance)
    g = 1 + slab_variance * precision
    condition = (1 + slab_variance * np.abs(precision)) / g
    k = slab_variance * shift**2 / g
    tolerance = 30 * UNIT * condition * (1 + k)
    for quantity in (*QUANTITIES, "log_norm"):
        error = np.abs(getattr(got, quantity) - true[quantity])
        size = np.abs(true[quantity]) + (quantity == "log_norm")
        assert (error <= tolerance * size).all(), quantity


@pytest.mark.parametrize(
    "cavity",
    [(0.0, 0.0, 0.3, 1.0), (2.0, 0.5, 0.2, 1.0), (-6.0, -0.9, 0.01, 1.0), (40.0, 100.0, 0.5, 3.0),
     (1e-3, 1e6, 0.9, 0.1), (300.0, 1e4, 1e-6, 2.0), (0.5, -0.3, 1.0, 2.0)],
)  # fmt: skip
def test_moments_are_the_integrals(cavity):
    """By quadrature of prior times cavity: no formula of the page enters."""
    true = oracles.tilted_by_quadrature(*cavity)
    got = tilt(*cavity)
    for quantity in (*QUANTITIES, "log_norm"):
        value = float(getattr(got, quantity)[0])
        assert value == pytest.approx(true[quantity], rel=1e-12, abs=1e-14), quantity


def moderate(rng, count=40):
    return (
        3 * rng.standard_normal(count),
        np.concatenate([rng.uniform(-0.8, 0, count // 2), 10 ** rng.uniform(-2, 2, count // 2)]),
        rng.uniform(0.01, 0.99, count),
    )


def test_derivatives_of_log_norm_are_moments(rng):
    """:eq:`tilted-derivatives` by central differences: mean, then minus half the second moment."""
    shift, precision, inclusion = moderate(rng)
    got = tilt(shift, precision, inclusion)
    second = got.variance + got.mean**2
    e = 1e-5
    by_shift = tilt(shift + e, precision, inclusion).log_norm
    by_shift = (by_shift - tilt(shift - e, precision, inclusion).log_norm) / (2 * e)
    by_precision = tilt(shift, precision + e, inclusion).log_norm
    by_precision = (by_precision - tilt(shift, precision - e, inclusion).log_norm) / (2 * e)
    np.testing.assert_allclose(by_shift, got.mean, rtol=0, atol=1e-8 * (1 + second).max())
    np.testing.assert_allclose(by_precision, -second / 2, rtol=0, atol=1e-7 * (1 + second**3).max())


def test_curvature_is_the_second_derivative(rng):
    """:eq:`tilted-derivatives`, :eq:`tilted-curvature`: the Hessian of log_norm, center (0, 1)."""
    shift, precision, inclusion = moderate(rng)
    ones = np.ones(len(shift))
    cavity = Natural(shift, precision)
    curvature = prior_of(inclusion, ones).tilted_curvature(cavity, Moments(0 * ones, ones))

    def gradient(shift, precision):
        got = tilt(shift, precision, inclusion)
        return got.mean, -(got.variance + got.mean**2) / 2

    e = 1e-5
    up, down = gradient(shift + e, precision), gradient(shift - e, precision)
    linear, cross = ((a - b) / (2 * e) for a, b in zip(up, down, strict=True))
    up, down = gradient(shift, precision + e), gradient(shift, precision - e)
    other_cross, quadratic = ((a - b) / (2 * e) for a, b in zip(up, down, strict=True))
    scale = 1 + curvature.quadratic
    for got, differences in (
        (curvature.linear, linear),
        (curvature.cross, cross),
        (curvature.cross, other_cross),
        (curvature.quadratic, quadratic),
    ):
        assert (np.abs(got - differences) <= 1e-7 * scale**1.5).all()


def exact_curvature(shift, precision, inclusion, center, scale):
    """Covariance of (x, -x^2/2), x = (w - center)/sqrt(scale), by raw moments in mpmath."""
    with mp.workdps(400):
        h1, h2, p, c, z = (mp.mpf(float(a)) for a in (shift, precision, inclusion, center, scale))
        g = 1 + h2
        slab = p * mp.exp(h1 * h1 / (2 * g)) / mp.sqrt(g)
        pip = slab / (slab + 1 - p)
        m, o, s = (h1 / g - c) / mp.sqrt(z), 1 / (g * z), -c / mp.sqrt(z)
        slab_raw = (m, m**2 + o, m**3 + 3 * m * o, m**4 + 6 * m**2 * o + 3 * o**2)
        raw = [pip * a + (1 - pip) * s ** (i + 1) for i, a in enumerate(slab_raw)]
        linear, cross = raw[1] - raw[0] ** 2, -(raw[2] - raw[0] * raw[1]) / 2
        return float(linear), float(cross), float((raw[3] - raw[1] ** 2) / 4)


@pytest.mark.parametrize("kind", ["own moments", "any center"])
def test_curvature_in_whitened_coordinates(rng, kind):
    """:eq:`tilted-curvature`: small relative error from the spike to the slab."""
    shift, precision, inclusion = even_odds(rng, 150)
    usable = precision < 1e40
    shift, precision, inclusion = shift[usable], precision[usable], inclusion[usable]
    got = tilt(shift, precision, inclusion)
    if kind == "own moments":
        center = Moments(got.mean, got.variance)
    else:
        sd = 1 / np.sqrt(1 + precision)
        center = Moments(
            sd * rng.standard_normal(len(sd)), sd**2 * 10 ** rng.uniform(-2, 2, len(sd))
        )
    with quiet():
        prior = prior_of(inclusion, np.ones(len(shift)))
        curvature = prior.tilted_curvature(Natural(shift, precision), center)
    cases = zip(shift, precision, inclusion, center.mean, center.variance, strict=True)
    linear, cross, quadratic = np.array([exact_curvature(*case) for case in cases]).T
    np.testing.assert_allclose(curvature.linear, linear, rtol=1e-11)
    # 4 mean^2 V + 4 mean k3 + k4 is a variance: the terms with the mean may cancel against it.
    mean = (got.mean - center.mean) / np.sqrt(center.variance)
    size = quadratic + mean**2 * linear
    np.testing.assert_allclose(curvature.quadratic, quadratic, rtol=1e-11, atol=1e-11 * size.max())
    assert (np.abs(curvature.quadratic - quadratic) <= 1e-11 * size).all()
    assert (np.abs(curvature.cross - cross) <= 1e-11 * np.sqrt(linear * size)).all()
    assert (linear * quadratic >= cross**2).all()


def test_site_times_cavity_has_the_tilted_moments(rng):
    """:eq:`site-target` by its definition, where the sums lose no digits."""
    shift, precision, inclusion = moderate(rng)
    got = tilt(shift, precision, inclusion)
    product = (got.site + Natural(shift, precision)).moments()
    np.testing.assert_allclose(product.mean, got.mean, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(product.variance, got.variance, rtol=1e-11)


def test_site_precision_is_negative_where_the_tilted_is_wider_than_the_cavity(rng):
    """:eq:`site-target`: no positive site can widen a cavity, and nothing is clipped."""
    shift, precision, inclusion = even_odds(rng, 200)
    got = tilt(shift, precision, inclusion)
    wider = got.variance > 1 / precision * (1 + 1e-9)
    narrower = got.variance < 1 / precision * (1 - 1e-9)
    assert wider.sum() > 20
    assert narrower.sum() > 20
    assert (got.site.precision[wider] < 0).all()
    assert (got.site.precision[narrower] > 0).all()


@pytest.mark.parametrize("inclusion", [1e-6, 1e-9, 1e-12])
def test_limit_of_no_inclusion(rng, inclusion):
    """As p -> 0 every moment is p times the slab's integral, to the order of p."""
    shift, precision, _ = moderate(rng)
    got = tilt(shift, precision, inclusion)
    g = 1 + precision
    weight = inclusion * np.exp(shift**2 / (2 * g)) / np.sqrt(g)
    for value, leading in (
        (got.inclusion_probability, weight),
        (got.mean, weight * shift / g),
        (got.variance, weight * (shift**2 / g**2 + 1 / g)),
        (got.log_norm, weight - inclusion),
    ):
        bound = 10 * weight.max() * np.abs(leading) + 10 * weight**2 + 1e-15
        assert (np.abs(value - leading) <= bound).all()


def test_always_out_is_a_point_at_zero(rng):
    """:eq:`prior` at p = 0: no cavity moves it."""
    shift, precision, _ = moderate(rng)
    got = tilt(shift, precision, 0.0)
    for value in (got.mean, got.variance, got.inclusion_probability, got.log_norm):
        np.testing.assert_array_equal(value, np.zeros(len(shift)))


def test_always_in_is_gaussian(rng):
    """:eq:`prior` at p = 1: the slab alone, and the site is the slab, whatever the cavity."""
    shift, precision, _ = moderate(rng)
    slab_variance = 10 ** rng.uniform(-1, 1, len(shift))
    precision = precision / slab_variance
    prior = prior_of(1.0, slab_variance)
    with quiet():
        got = prior.tilted(Natural(shift, precision))
    g = 1 / slab_variance + precision
    np.testing.assert_array_equal(got.inclusion_probability, np.ones(len(shift)))
    np.testing.assert_allclose(got.mean, shift / g, rtol=1e-15)
    np.testing.assert_allclose(got.variance, 1 / g, rtol=1e-15)
    norm = (shift**2 / g - np.log(slab_variance * g)) / 2
    np.testing.assert_allclose(got.log_norm, norm, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(got.site.shift, np.zeros(len(shift)))
    np.testing.assert_allclose(got.site.precision, 1 / slab_variance, rtol=1e-14)


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_inclusion_is_continuous_at_its_ends(rng, end):
    shift, precision, _ = moderate(rng)
    shift = shift / 10  # so that the slab is not e^30 times as likely as the spike
    at = tilt(shift, precision, end)
    near = tilt(shift, precision, abs(end - 1e-13))
    for quantity in (*QUANTITIES, "log_norm"):
        a, b = getattr(at, quantity), getattr(near, quantity)
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-8)


def test_improper_cavities_do_not_pass_for_proper(rng):
    """At h2 <= -1/v the slab has no integral: no finite norm may hide that."""
    floor = prior_of(0.3, 2.0).cavity_floor
    assert floor == -0.5
    got = tilt(rng.standard_normal(2), [-0.5, -0.6], 0.3, 2.0)
    assert not np.isfinite(got.log_norm).any()


def test_libraries_agree(wide, xp):
    *cavity, _ = wide
    ours, theirs = tilt(*cavity), tilt(*cavity, xp=xp)
    for quantity in (*QUANTITIES, "log_norm"):
        np.testing.assert_allclose(
            np.asarray(getattr(theirs, quantity)), getattr(ours, quantity), rtol=1e-15
        )
    for part in ("shift", "precision"):
        np.testing.assert_allclose(
            np.asarray(getattr(theirs.site, part)), getattr(ours.site, part), rtol=1e-15
        )
    shift, precision, inclusion = (a[:200] for a in cavity)
    center = Moments(shift * 0.0 + 0.1, shift * 0.0 + 2.0)
    with quiet():
        one = prior_of(inclusion, 1.0 + 0 * shift).tilted_curvature(
            Natural(shift, precision), center
        )
        other = prior_of(inclusion, 1.0 + 0 * shift, xp).tilted_curvature(
            Natural(xp.asarray(shift), xp.asarray(precision)),
            Moments(xp.asarray(center.mean), xp.asarray(center.variance)),
        )
    for part in ("linear", "cross", "quadratic"):
        np.testing.assert_allclose(np.asarray(getattr(other, part)), getattr(one, part), rtol=1e-15)


def test_moments_of_the_prior_are_tilted_moments_without_a_cavity(xp):
    """:eq:`prior`: mean 0, variance p v; :eq:`settled` takes its sites from them."""
    inclusion, slab_variance = np.array([0.0, 0.2, 1.0]), np.array([3.0, 0.5, 2.0])
    prior = prior_of(inclusion, slab_variance, xp)
    moments = prior.moments()
    np.testing.assert_array_equal(np.asarray(moments.mean), np.zeros(3))
    np.testing.assert_allclose(np.asarray(moments.variance), inclusion * slab_variance)
    tilted = tilt(np.zeros(3), np.zeros(3), inclusion, slab_variance, xp)
    np.testing.assert_allclose(np.asarray(tilted.variance), np.asarray(moments.variance))
    np.testing.assert_array_equal(np.asarray(prior.scale), slab_variance)


def test_bound_spreads_numbers_and_keeps_arrays(xp):
    prior = SpikeSlabPrior(inclusion=0.25, slab_variance=[1.0, 2.0, 3.0])
    bound = prior.bound(3, like=xp.zeros(1))
    np.testing.assert_array_equal(np.asarray(bound.inclusion), [0.25, 0.25, 0.25])
    np.testing.assert_array_equal(np.asarray(bound.slab_variance), [1.0, 2.0, 3.0])
    taken = bound.take(xp.asarray([2, 0]))
    np.testing.assert_array_equal(np.asarray(taken.slab_variance), [3.0, 1.0])


def test_bound_keeps_its_own_numbers(read_only):
    """What a caller does to an array afterwards does not reach a prior that was checked."""
    inclusion = read_only(np.array([0.1, 0.2]))
    bound = SpikeSlabPrior(inclusion, 1.0).bound(2, like=np.zeros(1))
    assert not np.shares_memory(bound.inclusion, inclusion)
    np.testing.assert_array_equal(bound.inclusion, inclusion)
