"""Which array library an array belongs to, and the way into and out of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import scipy.sparse as sp

# An array of any library that follows the array API standard; the standard publishes no type.
Array = Any
Namespace = Any


def namespace_of(array: Array) -> Namespace:
    """Return the array API namespace of `array`."""
    return array.__array_namespace__()


def device_of(array: Array) -> Any:
    """Return the device on which `array` lives."""
    return array.device


def quiet() -> AbstractContextManager[Any]:
    """Silence floating-point warnings: callers inside test their results for finiteness."""
    return np.errstate(all="ignore")


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Copy `array` to the host as a NumPy array (a view where it already is one)."""
    return np.asarray(array)


def is_sparse(value: object) -> bool:
    """Whether `value` is a scipy.sparse matrix or array."""
    return bool(sp.issparse(value))


def as_sparse_columns(value: Any, name: str) -> Any:
    """Compressed sparse columns in canonical form, real and floating."""
    if value.dtype.kind not in "fiub":
        msg = f"{name} must hold real numbers, got a sparse matrix of dtype {value.dtype}"
        raise TypeError(msg)
    dtype = np.float32 if value.dtype == np.float32 else np.float64
    columns = sp.csc_array(value, dtype=dtype)  # a new container: the caller's stays untouched
    if not columns.has_canonical_format:
        columns = columns.copy()
        columns.sum_duplicates()
    return columns


def as_real_array(value: Any, name: str, like: Array | None = None) -> Array:
    """Return `value` as a floating array, without a copy where it already is one.

    float32 and float64 are kept; integers and booleans become float64. With `like` given the
    result is a float64 array of that library and device.

    Raises
    ------
    TypeError
        If `value` does not hold real numbers; the message names the argument.
    """
    if is_sparse(value):
        msg = f"{name} must be a dense array, got a scipy.sparse matrix"
        raise TypeError(msg)
    if isinstance(value, np.ma.MaskedArray):
        msg = f"{name} must be a plain array, got a masked array: fill or drop masked entries first"
        raise TypeError(msg)
    is_foreign = hasattr(value, "__array_namespace__") and not isinstance(value, np.ndarray)
    array = value if is_foreign else _from_python(value, name)  # subclasses become plain arrays
    xp = namespace_of(array)
    if not xp.isdtype(array.dtype, ("bool", "integral", "real floating")):
        msg = f"{name} must hold real numbers, got dtype {array.dtype}"
        raise TypeError(msg)
    if like is not None:
        target = namespace_of(like)
        if xp is not target:
            array = target.asarray(to_numpy(array), device=device_of(like))
        return target.astype(array, target.float64, copy=False)
    if array.dtype in (xp.float32, xp.float64):
        return array
    return xp.astype(array, xp.float64)


def _from_python(value: Any, name: str) -> np.ndarray[Any, Any]:
    """A list, a number or anything else with ``__array__`` as a NumPy array."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        msg = f"{name} must be an array of real numbers, got {type(value).__name__} ({error})"
        raise TypeError(msg) from error
    if array.dtype.kind not in "fiub":
        msg = (
            f"{name} must be an array of real numbers, "
            f"got {type(value).__name__} of dtype {array.dtype}"
        )
        raise TypeError(msg)
    return array
