"""Random numbers, drawn on the host so that they are the same for every array library."""

from __future__ import annotations

import numbers

import numpy as np

from epslab._array._namespace import Array, device_of, namespace_of

Generator = np.random.Generator


def generator(random_state: object) -> Generator:
    """A NumPy generator from None, an integer seed or a generator (used as it is)."""
    if random_state is None or isinstance(random_state, numbers.Integral):
        if random_state is not None and int(random_state) < 0:
            msg = f"random_state must not be negative, got {random_state}"
            raise ValueError(msg)
        return np.random.default_rng(None if random_state is None else int(random_state))
    if isinstance(random_state, Generator):
        return random_state
    msg = (
        "random_state must be None, an integer or a numpy.random.Generator, "
        f"got {type(random_state).__name__}"
    )
    raise TypeError(msg)


def standard_normal(rng: Generator, shape: tuple[int, ...], like: Array) -> Array:
    """Standard normal draws in the library and on the device of `like`, in float64."""
    return namespace_of(like).asarray(rng.standard_normal(shape), device=device_of(like))
