"""What the tests share: --seed, the array libraries, read-only arrays, hypothesis' profile."""

import zlib

import array_api_strict
import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("epslab", derandomize=True, deadline=None, print_blob=True, database=None)
settings.load_profile("epslab")


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="seed of the rng fixture (default: 0)")


@pytest.fixture
def rng(request):
    """A generator of the test's own: the laws hold for every --seed."""
    name = zlib.crc32(request.node.nodeid.encode())
    return np.random.default_rng([request.config.getoption("--seed"), name])


@pytest.fixture(params=[np, array_api_strict], ids=["numpy", "array_api_strict"])
def xp(request):
    """Namespaces that every formula has to run on."""
    return request.param


@pytest.fixture
def read_only():
    """A function from an array to the same array, which refuses to be written to."""

    def locked(array):
        view = np.asarray(array).view()
        view.flags.writeable = False
        return view

    return locked
