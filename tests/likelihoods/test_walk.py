"""Q under changes of one site at a time: after any walk, what a fresh conditioning says.

Exercises :eq:`walk` and :eq:`walk-update`.
"""

import array_api_strict
import designs
import numpy as np
import oracles
import pytest
import scipy.sparse as sp

from epslab import Natural
from epslab._array import quiet
from epslab.likelihoods import DenseColumns, SparseColumns
from epslab.likelihoods._conditioning import DualGaussian, DualLikelihood, PrimalLikelihood

SHAPES = [(1, 4), (3, 6), (5, 5), (6, 3), (1, 1)]


def sparse(X):
    return SparseColumns(sp.csc_array(X))


def strict(X):
    return DenseColumns(array_api_strict.asarray(X))


@pytest.fixture(params=[DualLikelihood, PrimalLikelihood], ids=["dual", "primal"])
def form(request):
    return request.param


class Walker:
    """A walk beside the sites as they ought to be."""

    def __init__(self, form, columns, problem, shift, precision):
        self.X, self.y, self.noise, self.slab = problem
        self.shift, self.precision = shift.copy(), precision.copy()
        arrays = [self.y, 1 / self.slab, self.shift, self.precision]
        if columns is strict:
            arrays = [array_api_strict.asarray(a) for a in arrays]
        y, lift, *sites = arrays
        with quiet():
            likelihood = form(columns(self.X), y, self.noise, lift)
            self.walk = likelihood.walk(Natural(*sites))

    def look(self, j):
        """Marginal of feature j; a visit that changes nothing."""
        seen = []

        def propose(feature, mean, variance):
            seen.append((feature, mean, variance))
            return 0.0, 0.0

        self.walk.visit(j, propose)
        ((feature, mean, variance),) = seen
        assert feature == j
        return mean, variance

    def move(self, j, precision, shift):
        """Put site j where it is wanted."""
        change = float(shift - self.shift[j]), float(precision - self.precision[j])
        with quiet():
            self.walk.visit(j, lambda *_: change)
        self.shift[j], self.precision[j] = shift, precision

    def is_safe(self, j, precision):
        """Whether no marginal gets so wide that any update would lose the digits of the others."""
        trial = self.precision.copy()
        trial[j] = precision
        q = oracles.condition_dense(self.X, self.y, self.noise, self.shift, trial)
        width = q["variance"] / self.slab
        return q["positive_definite"] and width.min() > 0 and width.max() < 100

    def lowest(self, j):
        """Site precision at which Q loses its integral: that of the site minus the marginal's."""
        return self.precision[j] - 1 / self.look(j)[1]

    def assert_true(self, rtol=1e-7):
        true = oracles.condition(self.X, self.y, self.noise, self.shift, self.precision)
        assert true["positive_definite"]
        for j in range(len(self.shift)):
            mean, variance = self.look(j)
            assert variance == pytest.approx(true["variance"][j], rel=rtol)
            size = np.sqrt(variance) + abs(true["mean"][j])
            assert mean == pytest.approx(true["mean"][j], abs=rtol * size)


def walker(rng, form, columns, shape):
    problem = designs.regression(rng, *shape)
    precision = designs.precisions(rng, problem[-1])
    return Walker(form, columns, problem, designs.shifts(rng, precision), precision)


@pytest.mark.parametrize("columns", [DenseColumns, sparse, strict])
@pytest.mark.parametrize("shape", SHAPES)
def test_walk_is_conditioning(rng, form, columns, shape):
    """Visits in any order, precisions down through zero to negative ones, and back up."""
    walking = walker(rng, form, columns, shape)
    walking.assert_true()
    d = shape[1]
    for _ in range(4 * d):
        j = int(rng.integers(d))
        lowest, slab = walking.lowest(j), walking.slab[j]
        precision = (0.9 * lowest, 0.5 * lowest, 0.0, 1e-5 / slab, 1 / slab)[rng.integers(5)]
        if not walking.is_safe(j, precision):
            precision = max(walking.precision[j], 1 / slab)
        walking.move(j, precision, rng.standard_normal() * np.sqrt(abs(precision) + 1))
    walking.assert_true()


@pytest.mark.parametrize("shape", [(2, 5), (5, 3)])
def test_a_site_goes_below_zero_and_comes_back(rng, form, shape):
    """One feature through every kind of precision; the others feel it at each step."""
    walking = walker(rng, form, DenseColumns, shape)
    slab = walking.slab[0]
    for precision in (
        1 / slab,
        1e-6 / slab,
        0.0,
        0.9 * walking.lowest(0),
        0.0,
        1e-6 / slab,
        5 / slab,
    ):
        walking.move(0, precision, 0.3)
        walking.assert_true(rtol=1e-7)


def test_walk_starts_from_negative_sites(rng, form):
    """Sites that conditioning lifts are explicit from the first visit on."""
    problem = designs.regression(rng, 4, 7)
    X, _, noise, slab = problem
    precision = designs.precisions(rng, slab)
    precision[2] = 0.0
    precision = designs.negated(X, noise, precision, [0, 5])
    assert precision.min() < 0
    walking = Walker(form, DenseColumns, problem, designs.shifts(rng, precision), precision)
    walking.assert_true()
    for j in (0, 2, 5):
        walking.move(j, 1 / slab[j], 0.1)
    walking.assert_true()


def test_sites_of_a_small_walk_stay_with_the_caller(rng, form):
    """The walk keeps books of its own: the arrays it started from are not touched."""
    X, y, noise, slab = designs.regression(rng, 3, 5)
    sites = Natural(np.zeros(5), 1 / slab)
    walk = form(DenseColumns(X), y, noise, 1 / slab).walk(sites)
    walk.visit(1, lambda *_: (0.5, -0.5 / slab[1]))
    np.testing.assert_array_equal(sites.shift, np.zeros(5))
    np.testing.assert_array_equal(sites.precision, 1 / slab)


def test_walk_over_collinear_columns(rng):
    """Where the d x d form is rotated to fewer rows the walk starts from the rotated Q."""
    X = designs.ill_conditioned(rng, "duplicates", 6, 3)
    slab = np.ones(3)
    y, noise = designs.target(rng, X, slab, 1e-12)
    likelihood = PrimalLikelihood(DenseColumns(X), y, noise, 1 / slab)
    assert isinstance(likelihood.condition(Natural(0 * slab, 1 / slab)), DualGaussian)
    walking = Walker(PrimalLikelihood, DenseColumns, (X, y, noise, slab), 0 * slab, 1 / slab)
    walking.move(1, 3.0, 0.2)
    walking.move(0, 0.7, -0.4)
    walking.assert_true(rtol=1e-5)
