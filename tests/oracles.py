"""Slow, textbook formulas that the library's fast code is tested against.

Nothing here shares code with the library. Every formula is the direct one: dense inverses, explicit
mixtures, explicit sums over supports. Functions that take `dps` work in mpmath with that many
digits (where dps=None is allowed, in float64 linear algebra) and return float64.

Symbols, one entry per feature: sites (t1, t2), cavity (h1, h2) and marginals (v1, v2) are natural
parameters (shift, precision), and v = t + h. P is the tilted distribution (prior factor times
cavity) and Q the joint Gaussian (likelihood times sites), of precision A = X'X/s2 + diag(t2).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpmath import mp
from numpy.typing import ArrayLike as Like
from numpy.typing import NDArray

Array = NDArray[Any]

# ---- helpers: arrays of float64 or of mpf, by one set of formulas


def _mp(values: Like) -> Array:
    """Array of mpf at the working precision (float64 and mpf inputs are taken exactly)."""
    values = np.asarray(values)
    if values.dtype != object:
        values = values.astype(float)
    numbers = [mp.mpf(x) for x in values.ravel().tolist()]
    return np.array(numbers, dtype=object).reshape(values.shape)


def _per_feature(values: Like, d: int) -> Array:
    """Scalar or vector to a float64 vector with one entry per feature."""
    return np.broadcast_to(np.asarray(values, dtype=float), (d,))


def _inverse(a: Array) -> tuple[Array, Any] | None:
    """Inverse and log determinant of a symmetric matrix; None if it is not positive definite."""
    if a.dtype != object:
        try:
            diagonal = np.diag(np.linalg.cholesky(a))
            inverse = np.linalg.inv(a)
        except np.linalg.LinAlgError:
            return None
        ok = np.isfinite(diagonal).all() and np.isfinite(inverse).all()
        return (inverse, 2 * np.log(diagonal).sum()) if ok else None
    d = len(a)
    low, inv = _mp(np.zeros((d, d))), _mp(np.eye(d))
    for j in range(d):  # Cholesky-Banachiewicz: a = low low'; forward substitution: inv = low^-1
        for k in range(j):
            low[j, k] = (a[j, k] - np.dot(low[j, :k], low[k, :k])) / low[k, k]
        pivot = a[j, j] - np.dot(low[j, :j], low[j, :j])
        if not (pivot > 0 and mp.isfinite(pivot)):
            return None
        low[j, j] = mp.sqrt(pivot)
        inv[j] = (inv[j] - np.dot(low[j, :j], inv[:j])) / low[j, j]
    return np.dot(inv.T, inv), 2 * mp.fsum(mp.log(x) for x in np.diag(low))


def _dot(a: Array, b: Array) -> Any:
    """Inner product (0 for empty vectors)."""
    return sum((a * b).tolist())


# ---- the prior: moments of one feature under P


def _digits(shift: Any, precision: Any, inclusion: Any, slab_variance: Any, dps: int) -> int:
    """Digits that leave `dps` after the worst cancellation of the direct formulas below."""

    def size(x: Any) -> int:
        return max(0, int(mp.log10(abs(x))) + 1) if x else 0

    with mp.workdps(dps + 60):
        h1, h2, p, v = (mp.mpf(x) for x in (shift, precision, inclusion, slab_variance))
        g = 1 / v + h2
        lost = size(h1 * h1 / g) + size(h1 * h1 * v) + size(v * h2) + size(1 / (v * g))
        return dps + 40 + lost + (size(1 / p) if p else 0) + (3 * size(1 / h1) if h1 else 0)


_MOMENTS = ("inclusion_probability", "mean", "variance", "second", "third", "fourth")


def _tilt(shift: Any, precision: Any, inclusion: Any, slab_variance: Any, dps: int) -> Any:
    """P's log_norm and moments as mpf, by the explicit mixture; nan where improper."""
    args = (shift, precision, inclusion, slab_variance)
    finite = all(mp.isfinite(x) for x in args)
    with mp.workdps(dps + 60):
        if not finite or not 1 / mp.mpf(slab_variance) + mp.mpf(precision) > 0:
            return {"log_norm": mp.inf if finite else mp.nan, **dict.fromkeys(_MOMENTS, mp.nan)}
    with mp.workdps(_digits(*args, dps)):
        h1, h2, p, v = (mp.mpf(x) for x in args)
        g = 1 / v + h2
        m, s = h1 / g, 1 / g
        # p (2 pi v)^-1/2 times the integral of exp(h1 w - g w^2 / 2)
        slab = p / mp.sqrt(2 * mp.pi * v) * mp.sqrt(2 * mp.pi / g) * mp.exp(h1 * h1 / (2 * g))
        norm = slab + (1 - p)
        pip = slab / norm
        mean, second = pip * m, pip * (m**2 + s)
        third, fourth = pip * (m**3 + 3 * m * s), pip * (m**4 + 6 * m**2 * s + 3 * s**2)
        moments = (mp.log(norm), pip, mean, second - mean**2, second, third, fourth)
        return dict(zip(("log_norm", *_MOMENTS), moments, strict=True))


def tilted(
    shift: Any, precision: Any, inclusion: Any, slab_variance: Any, dps: int = 60
) -> dict[str, float]:
    """Normaliser and moments of one tilted distribution P (scalars), in mpmath.

    P(w) is [p N(w | 0, v) + (1 - p) delta(w)] exp(h1 w - h2 w^2 / 2) / Zhat. Its slab part is a
    Gaussian of precision 1/v + h2 and shift h1, its weights are the two integrals, and its
    variance is E[w^2] - E[w]^2; the working precision covers the cancellation. `second`, `third`
    and `fourth` are raw moments. An improper cavity (1/v + h2 <= 0) has log_norm inf, moments nan.
    """
    moments = _tilt(shift, precision, inclusion, slab_variance, dps)
    return {name: float(value) for name, value in moments.items()}


def tilted_many(
    shift: Like, precision: Like, inclusion: Like, slab_variance: Like, dps: int = 60
) -> dict[str, Array]:
    """`tilted`, feature by feature, for arrays that broadcast against each other."""
    arrays = [np.asarray(a) for a in (shift, precision, inclusion, slab_variance)]
    cases = np.broadcast(*arrays)
    rows = [tilted(h1, h2, p, v, dps) for h1, h2, p, v in cases]
    names = ("log_norm", *_MOMENTS)
    return {key: np.array([row[key] for row in rows]).reshape(cases.shape) for key in names}


def tilted_by_quadrature(
    shift: float, precision: float, inclusion: float, slab_variance: float, dps: int = 30
) -> dict[str, float]:
    """Normaliser and moments of P by Gauss-Legendre quadrature of the slab part in mpmath.

    Integrates p N(w | 0, v) exp(h1 w - h2 w^2 / 2) w^k over 15 widths either side of the mode, and
    the centred square for the variance, to which the spike adds its mass times mean^2. The nodes
    have `dps` digits: good for modes up to 10^(dps / 2) widths from 0.
    """
    digits = _digits(shift, precision, inclusion, slab_variance, dps)
    with mp.workdps(digits):
        h1, h2, p, v = (mp.mpf(x) for x in (shift, precision, inclusion, slab_variance))
        mode, width = h1 / (1 / v + h2), 1 / mp.sqrt(1 / v + h2)
        peak = h1 * mode - h2 * mode**2 / 2 - mode**2 / (2 * v)
        scale = width * p / mp.sqrt(2 * mp.pi * v) * mp.exp(peak)

    def integral(power: int, centre: Any = 0) -> Any:
        def integrand(u: Any) -> Any:
            with mp.workdps(digits):
                w = mode + u * width
                exponent = h1 * w - h2 * w * w / 2 - w * w / (2 * v) - peak
                factor = ((w - centre) / width) ** power
            return factor * mp.exp(exponent)

        quadrature = mp.quad(integrand, range(-15, 16, 3), method="gauss-legendre")
        return scale * width**power * quadrature

    with mp.workdps(dps):
        slab = integral(0)
        norm = slab + (1 - p)
        mean = integral(1) / norm
        variance = (integral(2, mean) + (1 - p) * mean**2) / norm
        moments = (mp.log(norm), slab / norm, mean, variance, integral(2) / norm)
        return dict(zip(("log_norm", *_MOMENTS), map(float, moments), strict=False))


def target_site(
    shift: float, precision: float, inclusion: float, slab_variance: float, dps: int = 60
) -> tuple[float, float]:
    """Undamped regular EP's new site for a given cavity, in mpmath.

    Natural parameters of the Gaussian with P's mean and variance, minus the cavity's:
    t1 = mean / variance - h1, t2 = 1 / variance - h2.
    """
    with mp.workdps(_digits(shift, precision, inclusion, slab_variance, 2 * dps)):
        moments = _tilt(shift, precision, inclusion, slab_variance, 2 * dps)
        t1 = moments["mean"] / moments["variance"] - mp.mpf(shift)
        t2 = 1 / moments["variance"] - mp.mpf(precision)
        return float(t1), float(t2)


# ---- the likelihood: moments of Q


def _condition(X: Array, y: Array, s2: Any, shift: Array, precision: Array) -> dict[str, Any]:
    """Q's moments and log Z by the dense inverse of A (all arrays float64, or all of mpf).

    Z = (2 pi s2)^(-n/2) exp(-y'y / (2 s2)) (2 pi)^(d/2) |A|^(-1/2) exp(b' A^-1 b / 2), where
    b = t1 + X'y/s2.
    """
    n, d = X.shape
    a = np.dot(X.T, X) / s2 + np.diag(precision)
    b = shift + np.dot(X.T, y) / s2
    solved = _inverse(a)
    if solved is None:
        mean, covariance, log_norm = np.full(d, math.nan), np.full((d, d), math.nan), mp.inf
    else:
        covariance, log_det = solved
        mean = np.dot(covariance, b) if a.dtype == object else np.linalg.solve(a, b)
        log_norm = -n * mp.log(2 * mp.pi * s2) / 2 - _dot(y, y) / (2 * s2)
        log_norm += d * mp.log(2 * mp.pi) / 2 - log_det / 2 + _dot(b, mean) / 2
    return {
        "mean": mean,
        "variance": np.diag(covariance).copy(),
        "covariance": covariance,
        "log_norm": log_norm,
        "positive_definite": solved is not None,
    }


def _q(X: Any, y: Any, s2: float, shift: Any, precision: Any, dps: int | None) -> dict[str, Any]:
    """`_condition` in float64 (dps=None), or in mpf at the working precision."""
    X = np.asarray(X)
    t1, t2 = (np.broadcast_to(np.asarray(a), X.shape[1]) for a in (shift, precision))
    if dps is None:
        X, y, t1, t2 = (np.asarray(a, dtype=float) for a in (X, y, t1, t2))
        return _condition(X, y, float(s2), t1, t2)
    return _condition(_mp(X), _mp(y), mp.mpf(s2), _mp(t1), _mp(t2))


def _floats(moments: dict[str, Any]) -> dict[str, Any]:
    """Entries of a result of `_condition` as float64."""
    arrays = {k: np.asarray(moments[k], dtype=float) for k in ("mean", "variance", "covariance")}
    return {**moments, **arrays, "log_norm": float(moments["log_norm"])}


def condition(
    X: Like, y: Like, noise_variance: float, shift: Like, precision: Like, dps: int = 50
) -> dict[str, Any]:
    """Mean, variance, covariance and log Z of Q for given sites, in mpmath.

    Dense A = X'X/s2 + diag(t2) and its inverse; Z is the integral of
    N(y | Xw, s2 I) exp(t1'w - w' diag(t2) w / 2). `positive_definite` is whether A has a Cholesky
    factor; if not, the moments are nan and log_norm is inf.
    """
    with mp.workdps(dps):
        return _floats(_q(X, y, noise_variance, shift, precision, dps))


def condition_dense(
    X: Like, y: Like, noise_variance: float, shift: Like, precision: Like
) -> dict[str, Any]:
    """`condition` in float64, by `numpy.linalg` (relative error up to 1e-16 cond(A))."""
    return _floats(_q(X, y, noise_variance, shift, precision, None))


# ---- energy, settled features, certificate


def _kept(
    X: Like, y: Like, inclusion: Like, slab_variance: Like, *natural: Like
) -> tuple[Array, ...]:
    """X, y, p, v and the natural parameters without the features of p = 0."""
    X = np.asarray(X, dtype=float)
    kept = _per_feature(inclusion, X.shape[1]) > 0
    vectors = (_per_feature(a, X.shape[1])[kept] for a in (inclusion, slab_variance, *natural))
    return (X[:, kept], np.asarray(y, dtype=float), *vectors)


def energy(
    X: Like,
    y: Like,
    noise_variance: float,
    inclusion: Like,
    slab_variance: Like,
    site_shift: Like,
    site_precision: Like,
    marginal_shift: Like,
    marginal_precision: Like,
    dps: int | None = None,
) -> float:
    """The EP energy E(v, t) = -log Z(t) - sum log Zhat(v - t) + log Ztilde(v).

    Z, Zhat and Ztilde are the three integrals, over the features of p > 0 (those of p = 0 are
    ignored). With dps=None Z comes from float64 linear algebra; the sum is always in mpmath.
    """
    natural = (site_shift, site_precision, marginal_shift, marginal_precision)
    X, y, p, v, *kept = _kept(X, y, inclusion, slab_variance, *natural)
    with mp.workdps(dps or 30):
        t1, t2, v1, v2 = (_mp(a) for a in kept)
        total = -mp.mpf(_q(X, y, noise_variance, t1, t2, dps)["log_norm"])
        for i in range(len(p)):
            total -= _tilt(v1[i] - t1[i], v2[i] - t2[i], p[i], v[i], dps or 30)["log_norm"]
            proper = v2[i] > 0  # log of the integral of exp(v1 w - v2 w^2 / 2)
            total += mp.log(2 * mp.pi / v2[i]) / 2 + v1[i] ** 2 / (2 * v2[i]) if proper else mp.inf
        return float(total)


def energy_bound(n: int, d: int, noise_variance: float) -> float:
    """The lower bound n/2 log(2 pi s2) - d/2 log 2 of E; d counts the features that keep p > 0."""
    return n / 2 * math.log(2 * math.pi * noise_variance) - d / 2 * math.log(2)


def settled_sites(
    X: Like, y: Like, noise_variance: float, inclusion: Like, slab_variance: Like
) -> dict[str, Array]:
    """Which features carry no question, and the sites of those that stay in the model.

    `removed`: p = 0, marginal exactly 0. `fixed`: p = 1, site (0, 1/v), or a column of zeros,
    site (0, 1/(p v)), marginal = the prior's moments. `shift` and `precision` are nan where not
    fixed. (y and the noise variance play no part.)
    """
    X = np.asarray(X, dtype=float)
    p, v = (_per_feature(a, X.shape[1]) for a in (inclusion, slab_variance))
    removed = p == 0
    fixed = ~removed & ((p == 1) | ~X.any(axis=0))
    precision = np.full(X.shape[1], math.nan)
    precision[fixed] = 1 / (p[fixed] * v[fixed])
    shift = np.where(fixed, 0.0, math.nan)
    return {"removed": removed, "fixed": fixed, "shift": shift, "precision": precision}


def _variance_difference(
    v_var: Any, p_var: Any, q_var: Any, t2_clipped: bool, h2_clipped: bool, v2_clipped: bool
) -> Any:
    """Largest pairwise difference of three variances that no active constraint explains.

    At t2 = eps, Q below P is explained; at h2 = eps, P below Q is. The marginal must then agree
    with one of the two: with Q or P, whichever is nearer (regular EP takes it from Q, a double
    loop from moments the constraint does not touch). At v2 = 3 eps, v below either is explained.
    """
    v_p, v_q = (0 if v2_clipped and v_var < x else abs(v_var - x) for x in (p_var, q_var))
    if (t2_clipped and q_var < p_var) or (h2_clipped and p_var < q_var):
        return min(v_p, v_q)
    return max(v_p, v_q, abs(p_var - q_var))


def residual(
    X: Like,
    y: Like,
    noise_variance: float,
    inclusion: Like,
    slab_variance: Like,
    site_shift: Like,
    site_precision: Like,
    marginal_shift: Like,
    marginal_precision: Like,
    box_eps: float | None = None,
    dps: int | None = None,
) -> tuple[float, int]:
    """The certificate and the number of features that the box clips.

    Per feature, moments of the marginal v (v1/v2, 1/v2), of P at the cavity v - t and of Q given
    the sites: the largest pairwise difference, means in units of sqrt(slab variance), variances
    in units of slab variance, less what the box (eps = box_eps / slab variance) explains. Settled
    features are left out (those of p = 1 and of zero columns still condition Q, by the sites
    given). inf if A is not positive definite, a cavity or a marginal is improper, or nan appears.
    With dps=None Q comes from float64 linear algebra.
    """
    settled = settled_sites(X, y, noise_variance, inclusion, slab_variance)
    asked = np.flatnonzero(~settled["fixed"][~settled["removed"]])
    natural = (site_shift, site_precision, marginal_shift, marginal_precision)
    X, y, p, v, *kept = _kept(X, y, inclusion, slab_variance, *natural)
    largest, n_clipped = mp.mpf(0), 0
    with mp.workdps(dps or 30):
        t1, t2, v1, v2 = (_mp(a) for a in kept)
        q = _q(X, y, noise_variance, t1, t2, dps)
        proper = q["positive_definite"]
        for i in asked:
            h1, h2 = v1[i] - t1[i], v2[i] - t2[i]
            eps = -mp.inf if box_eps is None else mp.mpf(box_eps) / v[i]
            clipped = (t2[i] <= 1.01 * eps, h2 <= 1.01 * eps, v2[i] <= 3.03 * eps)
            n_clipped += any(clipped) and box_eps is not None
            tilt = _tilt(h1, h2, p[i], v[i], dps or 30)
            if not (proper and v2[i] > 0 and mp.isfinite(tilt["mean"])):
                proper = False
                continue
            means = (v1[i] / v2[i], tilt["mean"], mp.mpf(q["mean"][i]))
            variances = (1 / v2[i], tilt["variance"], mp.mpf(q["variance"][i]))
            gap_mean = (max(means) - min(means)) / mp.sqrt(v[i])
            gap_variance = _variance_difference(*variances, *clipped) / v[i]
            proper = proper and bool(mp.isfinite(gap_mean) and mp.isfinite(gap_variance))
            largest = max(largest, gap_mean, gap_variance)
        return (float(largest) if proper else math.inf), n_clipped


# ---- exact posteriors


def enumerate_naive(
    X: Like,
    y: Like,
    noise_variance: float,
    inclusion: Like,
    slab_variance: Like,
    dps: int | None = None,
) -> dict[str, Any]:
    """Exact posterior by a loop over all 2^d supports (d <= 12; with dps, d <= 5).

    A support s has prior prod p prod (1 - p), evidence N(y | 0, s2 I + X_s V X_s') and a Gaussian
    posterior of precision X_s'X_s/s2 + 1/V; the posterior is their mixture.
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    (n, d), convert = X.shape, _mp if dps else np.asarray
    p, v = (_per_feature(a, d) for a in (inclusion, slab_variance))
    log_weights, supports, means, covariances = [], [], [], []
    with mp.workdps(dps or 17):
        X, y, p, v, eye = (convert(a) for a in (X, y, p, v, np.eye(n)))
        s2 = mp.mpf(noise_variance) if dps else float(noise_variance)
        for support in itertools.product((False, True), repeat=d):
            s = np.array(support, dtype=bool)
            prior = math.prod(np.where(s, p, 1 - p).tolist(), start=mp.mpf(1))
            if prior == 0:
                continue
            solved = _inverse(s2 * eye + np.dot(X[:, s] * v[s], X[:, s].T))
            assert solved is not None
            inverse, log_det = solved
            chi2 = _dot(y, np.dot(inverse, y))
            posterior = _condition(X[:, s], y, s2, 0 * v[s], 1 / v[s])
            mean, covariance = convert(np.zeros(d)), convert(np.zeros((d, d)))
            mean[s], covariance[np.ix_(s, s)] = posterior["mean"], posterior["covariance"]
            log_weights.append(mp.log(prior) - (n * mp.log(2 * mp.pi) + log_det + chi2) / 2)
            supports.append(s)
            means.append(mean)
            covariances.append(covariance)
        top = max(log_weights)
        terms = [mp.exp(x - top) for x in log_weights]
        total = mp.fsum(terms)
        weights = np.array([x / total for x in terms], dtype=X.dtype)
        mean = np.dot(weights, np.array(means))
        off = np.array(means) - mean  # the covariance within supports and that between them
        covariance = np.tensordot(weights, np.array(covariances), 1)
        covariance = covariance + np.dot(off.T * weights, off)
        return {
            "log_evidence": float(top + mp.log(total)),
            "inclusion_probability": np.dot(weights, np.array(supports)).astype(float),
            "mean": mean.astype(float),
            "variance": np.diag(covariance).astype(float),
            "covariance": covariance.astype(float),
        }


def single_feature(
    x: Like, y: Like, noise_variance: float, inclusion: float, slab_variance: float, dps: int = 50
) -> dict[str, float]:
    """Exact posterior for d = 1 in closed form, in mpmath.

    With a = x'x/s2 and b = x'y/s2, the Bayes factor of the slab is
    (1 + v a)^(-1/2) exp(b^2 / (2 (a + 1/v))) (Sherman-Morrison), the slab's posterior is Gaussian
    with precision a + 1/v and mean b / (a + 1/v).
    """
    with mp.workdps(dps):
        x, y = (_mp(np.ravel(np.asarray(z, dtype=float))) for z in (x, y))
        s2, p, v = (mp.mpf(z) for z in (noise_variance, inclusion, slab_variance))
        a, b = _dot(x, x) / s2, _dot(x, y) / s2
        g = a + 1 / v
        factor = mp.exp(b * b / (2 * g)) / mp.sqrt(1 + v * a)
        pip = p * factor / (p * factor + 1 - p)
        null = -(len(y) * mp.log(2 * mp.pi * s2) + _dot(y, y) / s2) / 2
        return {
            "log_evidence": float(null + mp.log(p * factor + 1 - p)),
            "inclusion_probability": float(pip),
            "mean": float(pip * b / g),
            "variance": float(pip / g + pip * (1 - pip) * (b / g) ** 2),
        }


def ridge(
    X: Like, y: Like, noise_variance: float, slab_variance: Like, dps: int | None = None
) -> dict[str, Any]:
    """Mean, covariance and log evidence under the Gaussian prior w ~ N(0, diag(v)).

    The posterior precision is X'X/s2 + diag(1/v); the evidence is the integral of
    N(y | Xw, s2 I) exp(-w'diag(1/v)w / 2) over the prior's normaliser prod (2 pi v)^(1/2).
    """
    X = np.asarray(X, dtype=float)
    v = _per_feature(slab_variance, X.shape[1])
    args = (X, y, noise_variance, np.zeros(len(v)), 1 / v)
    q = condition_dense(*args) if dps is None else condition(*args, dps=dps)
    log_evidence = q["log_norm"] - np.log(2 * np.pi * v).sum() / 2
    return {"mean": q["mean"], "covariance": q["covariance"], "log_evidence": log_evidence}


# ---- the paper's data


def paper_sets(count: int = 100) -> Iterator[tuple[Array, Array, Array, Array, Array]]:
    """The paper's synthetic sets as (X, y, Xt, yt, w): one generator, seed 0, sets in order.

    d = 25, 10 training and 1000 test rows uniform on the unit sphere, coefficients from the prior
    of inclusion 0.2 and slab variance 1, noise of standard deviation 0.005.
    """
    rng = np.random.default_rng(0)
    for _ in range(count):
        u, z = rng.random(25), rng.standard_normal(25)
        w = np.where(u < 0.2, z, 0.0)
        X, Xt = rng.standard_normal((10, 25)), rng.standard_normal((1000, 25))
        X, Xt = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (X, Xt))
        y = X @ w + 0.005 * rng.standard_normal(10)
        yield X, y, Xt, Xt @ w + 0.005 * rng.standard_normal(1000), w
