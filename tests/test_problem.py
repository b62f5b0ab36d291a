"""A problem is checked once: what is malformed is refused by name, what is odd is taken.

Exercises :eq:`model`, :eq:`prior` and :eq:`settled`.
"""

import fractions
import math
import re

import array_api_strict
import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import epslab as es
from epslab import Natural

NAN, INF = math.nan, math.inf
PRIOR = es.SpikeSlabPrior(inclusion=0.3, slab_variance=2.0)
X = np.array([[1.0, 0.5, -0.2], [0.3, -1.0, 0.7], [0.0, 0.4, 1.5], [1.0, 1.0, 1.0]])
Y = np.array([1.0, -2.0, 0.5, 0.1])


def problem(X=X, y=Y, noise_variance=0.1, prior=PRIOR):
    return es.Problem(X, y, noise_variance=noise_variance, prior=prior)


PROBLEM = problem()
RESULT = es.solve(PROBLEM, es.ParallelEP())
EXACT = es.solve(PROBLEM, es.ExactEnumeration())
SITES, MARGINALS, POSTERIOR = RESULT.sites, RESULT.marginals, RESULT.posterior


def with_entry(array, value):
    array = np.array(array, dtype=float)
    array.flat[1] = value
    return array


def started(shift, precision):
    return es.solve(PROBLEM, es.ParallelEP(), start=Natural(shift, precision))


def masked(array):
    return np.ma.masked_array(array, mask=np.zeros(np.shape(array), dtype=bool))


MALFORMED = [
    # ---- X
    ("1-d", lambda: problem(X=X[0]), ValueError, "X"),
    ("3-d", lambda: problem(X=X[:, :, None]), ValueError, "X"),
    ("ragged", lambda: problem(X=[[1.0, 2.0], [3.0]]), TypeError, "X"),
    ("text", lambda: problem(X=[["a", "b"]] * 4), TypeError, "X"),
    ("none", lambda: problem(X=None), TypeError, "X"),
    ("complex", lambda: problem(X=X * 1j), TypeError, "X"),
    ("objects", lambda: problem(X=np.array([[object()]] * 4)), TypeError, "X"),
    ("dates", lambda: problem(X=np.full((4, 1), "2020-01-01", dtype="M8[D]")), TypeError, "X"),
    ("masked", lambda: problem(X=masked(X)), TypeError, "X"),
    ("nan", lambda: problem(X=with_entry(X, NAN)), ValueError, "X"),
    ("infinite", lambda: problem(X=with_entry(X, -INF)), ValueError, "X"),
    ("no rows", lambda: problem(X=np.empty((0, 3)), y=[]), ValueError, "X"),
    ("no features", lambda: problem(X=np.empty((4, 0))), ValueError, "X"),
    ("sparse nan", lambda: problem(X=sp.csc_array(with_entry(X, NAN))), ValueError, "X"),
    ("sparse complex", lambda: problem(X=sp.csr_array(X * 1j)), TypeError, "X"),
    ("sparse 1-d", lambda: problem(X=sp.coo_array(X[0])), ValueError, "X"),
    (
        "overflow",
        lambda: problem(X=X * 1e200),
        ValueError,
        "X, y, noise_variance and slab_variance",
    ),
    # ---- y
    ("scalar", lambda: problem(y=1.0), ValueError, "y"),
    ("column", lambda: problem(y=Y[:, None]), ValueError, "y"),
    ("short", lambda: problem(y=Y[:3]), ValueError, "y"),
    ("long", lambda: problem(y=np.ones(5)), ValueError, "y"),
    ("nan", lambda: problem(y=with_entry(Y, NAN)), ValueError, "y"),
    ("infinite", lambda: problem(y=with_entry(Y, INF)), ValueError, "y"),
    ("text", lambda: problem(y=["a", "b", "c", "d"]), TypeError, "y"),
    ("none", lambda: problem(y=None), TypeError, "y"),
    ("sparse", lambda: problem(y=sp.csc_array(Y[:, None])), TypeError, "y"),
    ("masked", lambda: problem(y=masked(Y)), TypeError, "y"),
    # ---- noise_variance
    ("zero", lambda: problem(noise_variance=0.0), ValueError, "noise_variance"),
    ("negative", lambda: problem(noise_variance=-1.0), ValueError, "noise_variance"),
    ("nan", lambda: problem(noise_variance=NAN), ValueError, "noise_variance"),
    ("infinite", lambda: problem(noise_variance=INF), ValueError, "noise_variance"),
    ("text", lambda: problem(noise_variance="0.1"), TypeError, "noise_variance"),
    ("none", lambda: problem(noise_variance=None), TypeError, "noise_variance"),
    ("complex", lambda: problem(noise_variance=1j), TypeError, "noise_variance"),
    ("bool", lambda: problem(noise_variance=True), TypeError, "noise_variance"),
    ("numpy bool", lambda: problem(noise_variance=np.True_), TypeError, "noise_variance"),
    ("array", lambda: problem(noise_variance=[0.1]), TypeError, "noise_variance"),
    ("0-d text", lambda: problem(noise_variance=np.array("a")), TypeError, "noise_variance"),
    ("0-d complex", lambda: problem(noise_variance=np.array(1j)), TypeError, "noise_variance"),
    # ---- prior
    ("number", lambda: problem(prior=0.3), TypeError, "prior"),
    ("class", lambda: problem(prior=es.SpikeSlabPrior), TypeError, "prior"),
    ("negative", lambda: es.SpikeSlabPrior(-0.1, 1.0), ValueError, "inclusion"),
    ("above 1", lambda: es.SpikeSlabPrior([0.5, 1.5], 1.0), ValueError, "inclusion"),
    ("nan", lambda: es.SpikeSlabPrior(NAN, 1.0), ValueError, "inclusion"),
    ("2-d", lambda: es.SpikeSlabPrior([[0.5, 0.5, 0.5]], 1.0), ValueError, "inclusion"),
    ("text", lambda: es.SpikeSlabPrior("half", 1.0), TypeError, "inclusion"),
    ("none", lambda: es.SpikeSlabPrior(None, 1.0), TypeError, "inclusion"),
    ("length", lambda: problem(prior=es.SpikeSlabPrior([0.5, 0.5], 1.0)), ValueError, "inclusion"),
    ("empty", lambda: problem(prior=es.SpikeSlabPrior([], 1.0)), ValueError, "inclusion"),
    ("zero", lambda: es.SpikeSlabPrior(0.5, 0.0), ValueError, "slab_variance"),
    ("negative", lambda: es.SpikeSlabPrior(0.5, [1.0, -1.0]), ValueError, "slab_variance"),
    ("infinite", lambda: es.SpikeSlabPrior(0.5, INF), ValueError, "slab_variance"),
    ("complex", lambda: es.SpikeSlabPrior(0.5, 1j), TypeError, "slab_variance"),
    ("sparse", lambda: es.SpikeSlabPrior(0.5, sp.csc_array(X)), TypeError, "slab_variance"),
    (
        "length",
        lambda: problem(prior=es.SpikeSlabPrior(0.5, [1.0] * 4)),
        ValueError,
        "slab_variance",
    ),
    # ---- settings of solvers, domains and observers
    ("zero", lambda: es.ParallelEP(tol=0.0), ValueError, "tol"),
    ("nan", lambda: es.SequentialEP(tol=NAN), ValueError, "tol"),
    ("text", lambda: es.DoubleLoopEP(tol="small"), TypeError, "tol"),
    ("negative", lambda: es.ParallelEP(max_iter=-1), ValueError, "max_iter"),
    ("fraction", lambda: es.ParallelEP(max_iter=10.5), TypeError, "max_iter"),
    ("bool", lambda: es.ParallelEP(max_iter=True), TypeError, "max_iter"),
    ("zero", lambda: es.ParallelEP(step_size=0.0), ValueError, "step_size"),
    ("above 1", lambda: es.SequentialEP(step_size=1.01), ValueError, "step_size"),
    ("none", lambda: es.SequentialEP(step_size=None), TypeError, "step_size"),
    ("name", lambda: es.ParallelEP(domain="box"), TypeError, "domain"),
    ("class", lambda: es.DoubleLoopEP(domain=es.Box), TypeError, "domain"),
    ("text", lambda: es.DoubleLoopEP(max_features="many"), TypeError, "max_features"),
    ("negative", lambda: es.DoubleLoopEP(max_features=-1), ValueError, "max_features"),
    ("fraction", lambda: es.ExactEnumeration(max_features=2.5), TypeError, "max_features"),
    ("zero", lambda: es.Box(eps=0.0), ValueError, "eps"),
    ("one", lambda: es.Box(eps=1), ValueError, "eps"),
    ("text", lambda: es.Box(eps="tiny"), TypeError, "eps"),
    ("zero", lambda: es.TimeLimit(0), ValueError, "seconds"),
    ("text", lambda: es.TimeLimit("ten"), TypeError, "seconds"),
    ("text", lambda: es.ProgressBar(every="often"), TypeError, "every"),
    # ---- solve
    ("array", lambda: es.solve(X), TypeError, "problem"),
    ("name", lambda: es.solve(PROBLEM, "nuts"), ValueError, "solver"),
    ("class", lambda: es.solve(PROBLEM, es.ParallelEP), TypeError, "solver"),
    ("tuple", lambda: es.solve(PROBLEM, start=(0.0, 1.0)), TypeError, "start"),
    ("exact", lambda: es.solve(PROBLEM, "parallel-ep", start=EXACT), ValueError, "start"),
    (
        "of no use",
        lambda: es.solve(PROBLEM, "exact-enumeration", start=RESULT),
        ValueError,
        "start",
    ),
    ("length", lambda: started(np.zeros(2), np.ones(2)), ValueError, "start"),
    ("two lengths", lambda: started(np.zeros(3), np.ones(2)), ValueError, "start"),
    ("nan", lambda: started(np.full(3, NAN), np.ones(3)), ValueError, "start"),
    ("text", lambda: started(np.array(["a"] * 3), np.ones(3)), TypeError, "start"),
    ("number", lambda: es.solve(PROBLEM, observers=3), TypeError, "observers"),
    ("class", lambda: es.solve(PROBLEM, observers=es.ProgressBar), TypeError, "observers"),
    ("function", lambda: es.solve(PROBLEM, observers=[print]), TypeError, "observers"),
    # ---- energy and residual
    ("number", lambda: es.energy(3, SITES, MARGINALS), TypeError, "problem"),
    ("none", lambda: es.residual(None, SITES, MARGINALS), TypeError, "problem"),
    ("number", lambda: es.energy(PROBLEM, 3, MARGINALS), TypeError, "sites"),
    ("array", lambda: es.residual(PROBLEM, X, MARGINALS), TypeError, "sites"),
    ("none", lambda: es.residual(PROBLEM, SITES, None), TypeError, "marginals"),
    ("length", lambda: es.energy(PROBLEM, Natural(Y, Y), MARGINALS), ValueError, "sites"),
    ("length", lambda: es.residual(PROBLEM, SITES, Natural(Y, Y)), ValueError, "marginals"),
    ("name", lambda: es.residual(PROBLEM, SITES, MARGINALS, "box"), TypeError, "domain"),
    # ---- posterior
    ("number", lambda: POSTERIOR.covariance(1), TypeError, "indices"),
    ("text", lambda: POSTERIOR.covariance("01"), TypeError, "indices"),
    ("fraction", lambda: POSTERIOR.covariance([0.5]), TypeError, "indices"),
    ("mask", lambda: POSTERIOR.covariance([True, False, True]), TypeError, "indices"),
    ("numpy mask", lambda: POSTERIOR.covariance(np.array([True] * 3)), TypeError, "indices"),
    ("nested", lambda: POSTERIOR.covariance([[0, 1]]), TypeError, "indices"),
    ("nan", lambda: POSTERIOR.covariance([NAN]), TypeError, "indices"),
    ("infinite", lambda: POSTERIOR.covariance([INF]), TypeError, "indices"),
    ("too large", lambda: POSTERIOR.covariance([3]), ValueError, "indices"),
    ("too small", lambda: POSTERIOR.covariance([-4]), ValueError, "indices"),
    ("negative", lambda: POSTERIOR.sample(-1), ValueError, "size"),
    ("fraction", lambda: POSTERIOR.sample(1.5), TypeError, "size"),
    ("bool", lambda: POSTERIOR.sample(True), (TypeError, ValueError), "size"),
    ("pair", lambda: POSTERIOR.sample((2, 3)), TypeError, "size"),
    ("text", lambda: POSTERIOR.sample(1, "seed"), TypeError, "random_state"),
    ("negative", lambda: POSTERIOR.sample(1, -1), ValueError, "random_state"),
    ("1-d", lambda: POSTERIOR.predict(X[0]), ValueError, "X"),
    ("columns", lambda: POSTERIOR.predict(X[:, :2]), ValueError, "X"),
    ("nan", lambda: POSTERIOR.predict(with_entry(X, NAN)), ValueError, "X"),
    ("none", lambda: POSTERIOR.predict(None), TypeError, "X"),
    ("complex", lambda: POSTERIOR.predict(sp.csr_array(X * 1j)), TypeError, "X"),
    ("exact columns", lambda: EXACT.posterior.predict(X[:, :2]), ValueError, "X"),
    ("name", lambda: RESULT.trace.column("time"), ValueError, "name"),
]


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [row[1:] for row in MALFORMED],
    ids=[f"{name}: {what}" for what, _, _, name in MALFORMED],
)
def test_malformed_calls_are_refused_by_name(call, error, name):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) in (ValueError, TypeError)
    named = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(caught.value))
    assert named, "the message names the argument"


ODD = {
    "lists": lambda: problem(X=X.tolist(), y=Y.tolist()),
    "tuples": lambda: problem(X=tuple(map(tuple, X.tolist())), y=tuple(Y)),
    "integers": lambda: problem(X=np.arange(12).reshape(4, 3), y=np.arange(4)),
    "booleans": lambda: problem(X=X > 0, y=Y > 0),
    "float32": lambda: problem(X=X.astype(np.float32), y=Y.astype(np.float32)),
    "float16": lambda: problem(X=X.astype(np.float16)),
    "Fortran": lambda: problem(X=np.asfortranarray(X)),
    "strided": lambda: problem(X=np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]),
    "array_api_strict": lambda: problem(X=array_api_strict.asarray(X)),
    "sparse": lambda: problem(X=sp.lil_array(X)),
    "matrix": lambda: problem(X=X.view(np.matrix)),  # what scipy.sparse calls dense
    "one row": lambda: problem(X=X[:1], y=Y[:1]),
    "one feature": lambda: problem(X=X[:, :1]),
    "one number": lambda: problem(X=[[2.0]], y=[1.0]),
    "column of zeros": lambda: problem(X=X * [1.0, 0.0, 1.0]),
    "all zeros": lambda: problem(X=0 * X),
    "constant column": lambda: problem(X=np.where([True, False, False], 1.0, X)),
    "duplicate columns": lambda: problem(X=X[:, [0, 0, 1]]),
    "opposite columns": lambda: problem(X=np.stack([X[:, 0], -X[:, 0], X[:, 1]], axis=1)),
    "y of zeros": lambda: problem(y=0 * Y),
    "always out": lambda: problem(prior=es.SpikeSlabPrior(0, 1)),
    "always in": lambda: problem(prior=es.SpikeSlabPrior(1, 1)),
    "mixed": lambda: problem(prior=es.SpikeSlabPrior([0.0, 0.5, 1.0], [1.0, 2.0, 3.0])),
    "integer prior": lambda: problem(prior=es.SpikeSlabPrior([0, 1, 1], [1, 2, 3])),
    "0-d prior": lambda: problem(prior=es.SpikeSlabPrior(np.array(0.5), np.float32(2))),
    "integer noise": lambda: problem(noise_variance=1),
    "numpy noise": lambda: problem(noise_variance=np.float32(0.5)),
    "0-d noise": lambda: problem(noise_variance=np.array(0.5)),
    "fraction": lambda: problem(noise_variance=fractions.Fraction(1, 3)),
}


@pytest.mark.parametrize("call", ODD.values(), ids=ODD)
@pytest.mark.parametrize("solver", ["parallel-ep", "sequential-ep", "double-loop-ep"])
def test_odd_but_legal(call, solver):
    """Accepted, solved, certified where that is certain, and every number of the answer is one."""
    odd = call()
    result = es.solve(odd, solver)
    assert result.converged or solver != "double-loop-ep"
    for name in ("mean", "variance", "inclusion_probability"):
        values = np.asarray(getattr(result.posterior, name))
        assert values.shape == (odd.n_features,)
        assert np.isfinite(values).all()
    assert math.isfinite(result.energy)


@pytest.mark.parametrize("name", ["lists", "Fortran", "strided", "array_api_strict", "matrix"])
def test_the_same_numbers_are_the_same_problem(name):
    one, other = (es.solve(p, es.ParallelEP(tol=1e-10)) for p in (ODD[name](), PROBLEM))
    np.testing.assert_allclose(np.asarray(one.posterior.mean), other.posterior.mean, atol=1e-9)
    assert one.energy == pytest.approx(other.energy, rel=1e-10)


def test_pandas_frames_are_arrays():
    pd = pytest.importorskip("pandas")
    framed = problem(X=pd.DataFrame(X, columns=list("abc")), y=pd.Series(Y))
    np.testing.assert_array_equal(
        framed.default_sites().precision, PROBLEM.default_sites().precision
    )
    with pytest.raises(TypeError, match="X"):
        problem(X=pd.DataFrame({"a": ["x", "y", "z", "w"]}))


# ---- memory of the caller


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_floats_are_not_copied(dtype, order):
    given = np.array(X, dtype=dtype, order=order)
    target = Y.copy()
    built = problem(X=given, y=target)
    assert np.shares_memory(built.likelihood.columns.X, given)
    assert not np.shares_memory(built.likelihood.y, target), (
        "y is small, and the caller's to change"
    )
    assert built.likelihood.columns.X.dtype == dtype


def test_views_are_not_copied():
    wide = np.zeros((8, 6))
    wide[::2, ::2] = X
    assert np.shares_memory(problem(X=wide[::2, ::2]).likelihood.columns.X, wide)


def test_nothing_is_modified(read_only):
    """Arrays that cannot be written to go through every solver and every question."""
    inclusion, slab = read_only(np.array([0.0, 0.4, 1.0])), read_only(np.array([1.0, 2.0, 3.0]))
    locked = problem(read_only(X), read_only(Y), prior=es.SpikeSlabPrior(inclusion, slab))
    for solver in ("parallel-ep", "sequential-ep", "double-loop-ep", "exact-enumeration"):
        posterior = es.solve(locked, solver).posterior
        posterior.sample(2, 0)
        posterior.predict(read_only(X))
        posterior.covariance(read_only(np.array([0, 2])))
    sites = Natural(read_only(np.zeros(3)), read_only(np.ones(3)))
    es.solve(locked, es.SequentialEP(), start=sites)
    es.energy(locked, sites, sites + sites)


# ---- all features and the kept ones


@pytest.fixture
def half_kept():
    return problem(prior=es.SpikeSlabPrior([0.2, 0.0, 1.0], [1.0, 2.0, 3.0]))


def test_features_that_are_always_out_are_left_out(half_kept):
    """:eq:`settled`: removing the column is exact; arrays inside cover the others."""
    np.testing.assert_array_equal(half_kept.kept, [0, 2])
    np.testing.assert_array_equal(half_kept.scale, [1.0, 3.0])
    np.testing.assert_array_equal(half_kept.cavity_floor, [-1.0, -1 / 3])
    np.testing.assert_array_equal(half_kept.open, [True, False])
    np.testing.assert_array_equal(half_kept.likelihood.columns.X, X[:, [0, 2]])
    assert half_kept.n_features == 3


def test_scatter_and_gather_are_inverse(half_kept, rng):
    natural = Natural(rng.standard_normal(2), rng.standard_normal(2))
    whole = half_kept.scatter_natural(natural)
    np.testing.assert_array_equal(whole.shift, [natural.shift[0], 0.0, natural.shift[1]])
    np.testing.assert_array_equal(
        whole.precision, [natural.precision[0], np.inf, natural.precision[1]]
    )
    back = half_kept.gather(whole, "sites")
    np.testing.assert_array_equal(back.shift, natural.shift)
    np.testing.assert_array_equal(back.precision, natural.precision)


@pytest.mark.parametrize("leading", [(), (4,), (0,)])
def test_scatter_fills_the_last_axis(half_kept, rng, leading):
    values = rng.standard_normal((*leading, 2))
    whole = half_kept.scatter(values, 7.0)
    assert whole.shape == (*leading, 3)
    np.testing.assert_array_equal(whole[..., [0, 2]], values)
    np.testing.assert_array_equal(whole[..., 1], np.full(leading, 7.0))


def test_scatter_with_all_or_none_kept(rng):
    values = rng.standard_normal((2, 3))
    assert PROBLEM.scatter(values, 0.0) is values
    empty = problem(prior=es.SpikeSlabPrior(0.0, 1.0))
    np.testing.assert_array_equal(empty.scatter(np.empty((2, 0)), 5.0), np.full((2, 3), 5.0))


@pytest.mark.parametrize(
    ("shrink", "settled"), [(1e-8, False), (1e-12, False), (1e-14, True), (0.0, True)]
)
def test_no_information_is_a_matter_of_the_signal_to_noise_ratio(shrink, settled):
    """:eq:`settled`: at 1e-24 of squared signal to noise the posterior is the prior's."""
    scaled = X * [1.0, shrink, 1.0]
    built = problem(X=scaled)
    np.testing.assert_array_equal(built.open, [True, not settled, True])
    ratio = (scaled[:, 1] ** 2).sum() * 2.0 / 0.1 * max(1.0, Y @ Y / 0.1)
    assert (ratio <= 1e-24) == settled
    result = es.solve(built, es.ParallelEP(tol=1e-8))
    if settled:
        assert result.posterior.inclusion_probability[1] == pytest.approx(0.3, rel=1e-14)
        assert result.posterior.variance[1] == pytest.approx(0.6, rel=1e-14)
        assert abs(result.posterior.mean[1]) <= 1e-12 * 0.3 * math.sqrt(2.0)
    exact = oracles.enumerate_naive(scaled, Y, 0.1, 0.3, 2.0)
    assert result.posterior.inclusion_probability[1] == pytest.approx(
        exact["inclusion_probability"][1], abs=1e-7
    )


def test_default_sites_have_the_moments_of_the_prior():
    """:eq:`settled`, :eq:`prior`: shift 0, precision 1/(p v)."""
    sites = problem(prior=es.SpikeSlabPrior([0.2, 0.5, 1.0], [1.0, 2.0, 4.0])).default_sites()
    np.testing.assert_array_equal(sites.shift, np.zeros(3))
    np.testing.assert_allclose(sites.precision, [5.0, 1.0, 0.25], rtol=1e-15)


# ---- arbitrary numbers

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False) | st.sampled_from([NAN, INF, -INF, 1e300])


@given(arrays(float, st.tuples(st.integers(0, 3), st.integers(0, 3)), elements=NUMBERS), st.data())
def test_a_design_is_accepted_or_refused_by_name(design, data):
    """Nothing else may happen, whatever the numbers."""
    y = data.draw(arrays(float, design.shape[0], elements=NUMBERS))
    numbers = np.append(design.ravel(), y)
    if design.size and (np.abs(numbers) <= 1e6).all():
        built = problem(X=design, y=y)
        assert (built.n_rows, built.n_features) == design.shape
    else:
        with pytest.raises(ValueError, match=r"\b(X|y)\b"):
            problem(X=design, y=y)


def test_changes_to_small_arrays_come_too_late():
    """y and the prior are copied: what was checked is what is used."""
    target, inclusion = Y.copy(), np.full(np.shape(X)[1], 0.3)
    built = problem(y=target, prior=es.SpikeSlabPrior(inclusion, 1.0))
    before = es.solve(built, "exact-enumeration").log_evidence
    target *= 3.0
    inclusion[:] = 0.9
    assert es.solve(built, "exact-enumeration").log_evidence == before


@pytest.mark.parametrize("name", ["noise_variance", "tol"])
def test_whole_numbers_too_large_for_a_float(name):
    with pytest.raises(ValueError, match=name):
        problem(noise_variance=10**400) if name == "noise_variance" else es.ParallelEP(tol=10**400)
