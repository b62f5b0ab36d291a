"""Random numbers: reproducible, and the same for every library."""

import numpy as np
import pytest

from epslab import _array


@pytest.mark.parametrize("seed", [0, 7, np.int64(7)])
def test_a_seed_gives_the_same_numbers_again(seed):
    first, again = (_array.generator(seed).standard_normal(5) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_generator_is_used_as_it_is_and_moves_on():
    rng = np.random.default_rng(3)
    assert _array.generator(rng) is rng


def test_no_seed_is_a_new_stream_each_time():
    first, again = (_array.generator(None).standard_normal(5) for _ in range(2))
    assert (first != again).any()


@pytest.mark.parametrize("shape", [(4,), (2, 3), (0, 3)])
def test_draws_do_not_depend_on_the_library(xp, shape):
    draw = _array.standard_normal(np.random.default_rng(1), shape, like=xp.ones(1))
    assert _array.namespace_of(draw) is _array.namespace_of(xp.ones(1))
    assert draw.dtype == xp.float64
    np.testing.assert_array_equal(np.asarray(draw), np.random.default_rng(1).standard_normal(shape))


@pytest.mark.parametrize(
    ("value", "error"),
    [("a", TypeError), (1.5, TypeError), (np.random.RandomState(0), TypeError), (-1, ValueError)],
    ids=["text", "fraction", "legacy", "negative"],
)
def test_other_seeds_are_refused(value, error):
    with pytest.raises(error, match="random_state"):
        _array.generator(value)
