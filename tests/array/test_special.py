"""Special functions against mpmath, in both tails and at the ends, without a warning."""

import numpy as np
import pytest
from mpmath import mp

from epslab import _array

# Exponents from the largest doubles to the smallest: what log odds and log norms can be.
WIDE = np.array([0.0, *(s * 10.0**e for s in (1, -1) for e in (-300, -20, -8, -1, 0, 0.5, 1))])
TAILS = np.array([30.0, -30.0, 36.0, 40.0, -500.0, 700.0, -745.0, -1e6, 1e6, np.inf, -np.inf])
PROBABILITIES = np.array([0.0, 5e-324, 1e-300, 1e-17, 1e-8, 0.3, 0.5, 1 - 1e-12, 1 - 2**-53, 1.0])


def exact(function, values):
    with mp.workdps(1400):  # 1 + exp(-745) and the like hold all their digits
        return np.array([float(function(mp.mpf(float(x)))) for x in values])


@pytest.mark.parametrize("values", [WIDE, TAILS], ids=["wide", "tails"])
def test_expit(xp, values):
    """:eq:`tilted-inclusion`: small relative error in both tails, and they sum to one."""

    def logistic(x):
        if mp.isinf(x):
            return mp.mpf(x > 0)
        return 1 / (1 + mp.exp(-x)) if abs(x) < 1e4 else mp.mpf(x > 0)

    got = np.asarray(_array.expit(xp.asarray(values)))
    np.testing.assert_allclose(got, exact(logistic, values), rtol=4e-16, atol=5e-324)
    mirrored = np.asarray(_array.expit(xp.asarray(-values)))
    np.testing.assert_allclose(got + mirrored, np.ones(len(values)), rtol=1e-15)


def test_logs_of_probabilities(xp):
    """:eq:`tilted-norm`: log p and log(1 - p), minus infinity at the ends."""
    p = xp.asarray(PROBABILITIES)
    with np.errstate(all="raise", under="ignore"):
        log_p, log_q = np.asarray(_array.log_of(p)), np.asarray(_array.log1m(p))
    assert log_p[0] == -np.inf
    assert log_q[-1] == -np.inf
    np.testing.assert_allclose(log_p[1:], exact(mp.log, PROBABILITIES[1:]), rtol=4e-16)
    below = PROBABILITIES[:-1]
    np.testing.assert_allclose(log_q[:-1], exact(lambda x: mp.log(1 - x), below), rtol=4e-16)


def test_log_add_exp(xp):
    """:eq:`tilted-norm` at every pair of the tails, where either term may be missing."""
    values = [x for x in (*TAILS, 0.0, 0.5, 1e-9) if x != np.inf]
    a, b = (np.array(x) for x in zip(*((x, y) for x in values for y in values), strict=True))
    with np.errstate(all="raise", under="ignore"):
        got = np.asarray(_array.log_add_exp(xp.asarray(a), xp.asarray(b)))
    both_missing = (a == -np.inf) & (b == -np.inf)
    assert (got[both_missing] == -np.inf).all()
    with mp.workdps(50):
        true = [
            max(x, y)
            if np.isinf([x, y]).any() or abs(x - y) > 1e4
            else float(max(x, y) + mp.log1p(mp.exp(-abs(mp.mpf(x) - mp.mpf(y)))))
            for x, y in zip(a.tolist(), b.tolist(), strict=True)
        ]
    np.testing.assert_allclose(got, np.array(true), rtol=4e-16)
    again = np.asarray(_array.log_add_exp(xp.asarray(b), xp.asarray(a)))
    np.testing.assert_array_equal(got, again)
