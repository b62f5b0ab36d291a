"""The way into and out of array libraries: nothing is copied, lost or coerced in silence."""

import warnings

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp

from epslab import _array


def test_real_arrays_pass_through_uncopied(xp):
    for dtype in (xp.float32, xp.float64):
        array = xp.ones((2, 3), dtype=dtype)
        assert _array.as_real_array(array, "X") is array
        assert _array.namespace_of(array) is _array.namespace_of(_array.as_real_array(array, "X"))


def test_subclasses_of_numpy_arrays_become_plain_ones():
    """A numpy.matrix multiplies by other rules; its numbers stay where they are."""
    given = np.ones((2, 3))
    real = _array.as_real_array(given.view(np.matrix), "X")
    assert type(real) is np.ndarray
    assert np.shares_memory(real, given)


@pytest.mark.parametrize("kind", ["int8", "int64", "uint16", "bool"])
def test_whole_numbers_become_float64(xp, kind):
    array = xp.asarray([[0, 1], [1, 1]], dtype=getattr(xp, kind))
    real = _array.as_real_array(array, "X")
    assert real.dtype == xp.float64
    np.testing.assert_array_equal(np.asarray(real), [[0, 1], [1, 1]])


@pytest.mark.parametrize("value", [[[1, 2], [3, 4]], ((1.0, 2.0), (3.0, 4.0)), 5, 2.5, True])
def test_python_values_become_float64(value):
    real = _array.as_real_array(value, "X")
    assert isinstance(real, np.ndarray)
    assert real.dtype == np.float64
    np.testing.assert_array_equal(real, np.asarray(value, dtype=float))


def test_like_decides_library_and_precision(xp):
    like = xp.ones(2)
    for value in ([1, 2], np.float32([1, 2]), array_api_strict.asarray([1.0, 2.0])):
        real = _array.as_real_array(value, "y", like=like)
        assert _array.namespace_of(real) is _array.namespace_of(like)
        assert real.dtype == xp.float64
        np.testing.assert_array_equal(np.asarray(real), [1.0, 2.0])


@pytest.mark.parametrize(
    "value",
    [
        "text",
        None,
        1j,
        np.array([object()]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        [[1, 2], [3]],
        np.ma.masked_array([1.0, 2.0], mask=[True, False]),
        sp.csc_array(np.eye(2)),
        array_api_strict.asarray([1j]),
    ],
    ids=["text", "none", "complex", "object", "date", "ragged", "masked", "sparse", "strict"],
)
def test_what_is_not_real_numbers_is_refused_by_name(value):
    with pytest.raises(TypeError, match="weights"):
        _array.as_real_array(value, "weights")


@pytest.mark.parametrize("form", [sp.csr_array, sp.coo_matrix, sp.lil_array, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, bool])
def test_sparse_columns_hold_the_same_numbers(rng, form, dtype):
    dense = (rng.random((4, 6)) * 3 * (rng.random((4, 6)) < 0.5)).astype(dtype)
    columns = _array.as_sparse_columns(form(dense), "X")
    assert columns.format == "csc"
    assert isinstance(columns, sp.csc_array)
    assert columns.dtype == (np.float32 if dtype is np.float32 else np.float64)
    np.testing.assert_array_equal(columns.toarray(), dense.astype(columns.dtype))


def test_sparse_columns_sum_duplicates_and_leave_the_caller_alone():
    """Entries given twice add up, as scipy means them to; squares must see their sum."""
    given = sp.csc_array((np.array([1.0, 2.0, 4.0]), [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    columns = _array.as_sparse_columns(given, "X")
    assert columns.nnz == 2
    np.testing.assert_array_equal(columns.toarray(), [[3.0, 0.0], [0.0, 4.0]])
    assert given.nnz == 3
    np.testing.assert_array_equal(given.data, [1.0, 2.0, 4.0])


def test_canonical_sparse_columns_are_not_copied():
    given = sp.csc_array(np.eye(3))
    assert np.shares_memory(_array.as_sparse_columns(given, "X").data, given.data)


def test_sparse_columns_refuse_by_name():
    with pytest.raises(TypeError, match="design"):
        _array.as_sparse_columns(sp.csc_array(np.eye(2) * 1j), "design")


def test_to_numpy_is_a_view_of_numpy_and_a_copy_of_the_rest():
    ours = np.ones(3)
    assert _array.to_numpy(ours) is ours
    np.testing.assert_array_equal(_array.to_numpy(array_api_strict.ones(3)), ours)


def test_is_sparse():
    assert _array.is_sparse(sp.csc_array(np.eye(2)))
    assert _array.is_sparse(sp.coo_matrix(np.eye(2)))
    assert not _array.is_sparse(np.eye(2))
    assert not _array.is_sparse([[1.0]])


def test_quiet_silences_the_hardware_and_nothing_else():
    with _array.quiet():
        assert np.isinf(np.float64(1.0) / np.float64(0.0))
        with pytest.warns(UserWarning, match="still heard"):
            warnings.warn("still heard", stacklevel=1)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.float64(1.0) / np.float64(0.0)
