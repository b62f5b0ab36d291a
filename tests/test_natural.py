"""The algebra of Gaussian factors: products are sums; moments and norms are those of calculus."""

import math

import numpy as np
import pytest
from mpmath import mp

from epslab import Moments, Natural
from epslab._natural import Tilted


def factors(rng, xp, d=6, positive=False):
    precision = rng.uniform(0.1, 3.0, d) if positive else rng.standard_normal(d)
    return Natural(xp.asarray(rng.standard_normal(d)), xp.asarray(precision))


def both(natural):
    return np.asarray(natural.shift), np.asarray(natural.precision)


def log_factor(natural, w):
    """``shift w - precision w^2 / 2``, the log of what a pair stands for."""
    shift, precision = both(natural)
    return shift * w - precision * w * w / 2


def test_products_and_quotients_are_sums_and_differences(rng, xp):
    """:eq:`natural`: marginals = sites times cavity, whatever the signs of the precisions."""
    sites, cavity = factors(rng, xp), factors(rng, xp)
    w = rng.standard_normal(6)
    marginals = sites + cavity
    np.testing.assert_allclose(
        log_factor(marginals, w), log_factor(sites, w) + log_factor(cavity, w), rtol=1e-13
    )
    for ours, theirs in zip(both(marginals - sites), both(cavity), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-15)


def test_moments_are_those_of_the_normalised_factor(rng, xp):
    """:eq:`natural`: the factor has its only maximum at the mean, and falls by 1/2 in one sd."""
    natural = factors(rng, xp, positive=True)
    moments = natural.moments()
    mean, sd = np.asarray(moments.mean), np.sqrt(np.asarray(moments.variance))
    top = log_factor(natural, mean)
    for side in (-1.0, 1.0):
        np.testing.assert_allclose(top - log_factor(natural, mean + side * sd), 0.5, rtol=1e-12)


def test_moments_and_back(rng, xp):
    natural = factors(rng, xp, positive=True)
    for ours, theirs in zip(both(natural.moments().natural()), both(natural), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.7, 1.0])
def test_moved_is_a_point_of_the_segment(rng, xp, share):
    """:eq:`step`: the log-convex combination, exact at both ends."""
    old, target = factors(rng, xp), factors(rng, xp)
    w = rng.standard_normal(6)
    moved = old.moved(target, share)
    mixed = (1 - share) * log_factor(old, w) + share * log_factor(target, w)
    np.testing.assert_allclose(log_factor(moved, w), mixed, rtol=1e-12, atol=1e-14)
    if share in (0.0, 1.0):
        end = target if share else old
        for ours, theirs in zip(both(moved), both(end), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_where_keeps_and_takes(rng, xp):
    kept, taken = factors(rng, xp), factors(rng, xp)
    mask = np.array([True, False, True, True, False, False])
    chosen = kept.where(xp.asarray(mask), taken)
    for ours, a, b in zip(both(chosen), both(kept), both(taken), strict=True):
        np.testing.assert_array_equal(ours, np.where(mask, a, b))


@pytest.mark.parametrize("shift", [0.0, 0.3, -7.0, 1e3])
@pytest.mark.parametrize("precision", [1e-3, 1.0, 40.0])
def test_log_norm_is_the_integral(xp, shift, precision):
    """:eq:`gaussian-norm` by quadrature, 40 widths around the mode."""
    natural = Natural(xp.asarray([shift]), xp.asarray([precision]))
    with mp.workdps(30):
        a, b = mp.mpf(shift), mp.mpf(precision)
        peak, width = a / b, 1 / mp.sqrt(b)
        top = a * peak - b * peak**2 / 2
        inner = mp.quad(
            lambda u: mp.exp(a * (peak + u * width) - b * (peak + u * width) ** 2 / 2 - top),
            mp.linspace(-20, 20, 9),
        )
        true = float(mp.log(inner * width) + top)
    assert natural.log_norm() == pytest.approx(true, rel=1e-13, abs=1e-14)


def test_log_norm_is_a_sum_over_features(rng, xp):
    """:eq:`gaussian-norm`: factors are independent; of none the norm is 1."""
    natural = factors(rng, xp, positive=True)
    shift, precision = both(natural)
    parts = [
        Natural(xp.asarray([a]), xp.asarray([b])).log_norm()
        for a, b in zip(shift.tolist(), precision.tolist(), strict=True)
    ]
    assert natural.log_norm() == pytest.approx(math.fsum(parts), rel=1e-13)
    assert Natural(xp.zeros(0), xp.zeros(0)).log_norm() == 0.0


def test_tilted_moments_are_its_mean_and_variance(rng):
    parts = [rng.random(3) for _ in range(4)]
    tilted = Tilted(*parts, Natural(parts[0], parts[1]))
    moments = tilted.moments()
    assert isinstance(moments, Moments)
    assert moments.mean is tilted.mean
    assert moments.variance is tilted.variance


@pytest.mark.parametrize("kind", [Natural, Moments])
def test_values_are_frozen(kind):
    value = kind(np.ones(1), np.ones(1))
    with pytest.raises(AttributeError):
        setattr(value, "shift" if kind is Natural else "mean", np.zeros(1))
