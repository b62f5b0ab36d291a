"""Q under changes of one site at a time, by rank-one updates: :eq:`walk`, :eq:`walk-update`."""

from __future__ import annotations

from typing import Any

from epslab import _array
from epslab._array import Array, NotPositiveDefinite, namespace_of
from epslab.likelihoods._base import Columns, Gaussian, Proposal, Walk


def _shrink(precision: float, variance: float) -> float:
    """Factor by which a change of site precision shrinks its marginal, :eq:`walk-update`."""
    factor = 1.0 + precision * variance
    if not factor > 0:
        msg = "the change of one site leaves Q improper"
        raise NotPositiveDefinite(msg)
    return factor


class PrimalWalk(Walk):
    """The d x d covariance, updated.

    Implements :eq:`walk-update`.

    Parameters
    ----------
    gaussian : Gaussian
        Q at the starting sites, of a primal likelihood.
    """

    def __init__(self, gaussian: Gaussian) -> None:
        self.mean = gaussian.moments.mean
        xp = namespace_of(self.mean)
        self.covariance = gaussian.covariance_rows(xp.arange(self.mean.shape[0]))

    def visit(self, j: int, propose: Proposal) -> None:
        """Show `propose` the marginal of feature `j` and add what it answers to the site."""
        mean, variance = float(self.mean[j]), float(self.covariance[j, j])
        shift, precision = propose(j, mean, variance)
        shrink = _shrink(precision, variance)
        column = self.covariance[:, j]
        self.mean = self.mean + column * ((shift - precision * mean) / shrink)
        self.covariance = self.covariance - (column * (precision / shrink))[:, None] * column


class DualWalk(Walk):
    """An n x n matrix, updated, and the columns of the features without a usable site precision.

    Implements :eq:`walk` and :eq:`walk-update`.

    Symbols: K = kernel = ``(I - X S X'/s2)/s2``, which is ``C^-1`` while every precision is
    positive; F = the features whose site precision is not above `floor`, and for them
    G = ``X S[:, F]`` (columns of `images`), S_FF = `block`, and their means.

    Parameters
    ----------
    columns : Columns
    y : array of shape (n,)
    noise_variance : float
    floor : array of shape (d,)
        Features whose site precision is not above this are kept explicitly.
    gaussian : Gaussian
        Q at the starting sites.
    """

    def __init__(
        self, columns: Columns, y: Array, noise_variance: float, floor: Array, gaussian: Any
    ) -> None:
        xp = namespace_of(y)
        self.columns = columns
        self.noise_variance = noise_variance
        self.floor = floor
        self.shift = xp.asarray(gaussian.sites.shift, copy=True)
        self.precision = xp.asarray(gaussian.sites.precision, copy=True)
        self.error = (y - columns.times(gaussian.moments.mean)) / noise_variance
        inverse_factor = _array.invert_lower(gaussian.factor)
        self.kernel = inverse_factor.T @ inverse_factor
        if gaussian.downdate is not None:
            image = columns.times(gaussian.downdate.T) / noise_variance
            self.kernel = self.kernel - image @ image.T
        F = xp.nonzero(~(self.precision > floor))[0]
        self.explicit = [int(j) for j in F]
        rows = gaussian.covariance_rows(F)
        self.images = columns.times(rows.T)
        self.block = xp.take(rows, F, axis=1)
        self.means = xp.take(gaussian.moments.mean, F)

    def visit(self, j: int, propose: Proposal) -> None:
        """Show `propose` the marginal of feature `j` and add what it answers to the site."""
        mean, variance, image, cross = self._at(j)
        shift, precision = propose(j, mean, variance)
        shrink = _shrink(precision, variance)
        rate, pull = precision / shrink, (shift - precision * mean) / shrink
        self.shift[j] += shift
        self.precision[j] += precision
        self.error = self.error - image * (pull / self.noise_variance)
        self.kernel = self.kernel + (image * (rate / self.noise_variance**2))[:, None] * image
        self.images = self.images - image[:, None] * (cross * rate)
        self.block = self.block - (cross * rate)[:, None] * cross
        self.means = self.means + cross * pull
        self._keep_or_drop(
            j, mean + variance * pull, variance / shrink, image / shrink, cross / shrink
        )

    def _at(self, j: int) -> tuple[float, float, Array, Array]:
        """Mean, variance, ``X S e_j`` and ``S[j, F]``."""
        if j in self.explicit:
            i = self.explicit.index(j)
            return (
                float(self.means[i]),
                float(self.block[i, i]),
                self.images[:, i],
                self.block[i, :],
            )
        xp = namespace_of(self.kernel)
        x = self.columns.take(xp.asarray([j]))[:, 0]
        prior_variance = 1.0 / float(self.precision[j])
        solved = self.kernel @ x
        mean = prior_variance * (float(self.shift[j]) + float(x @ self.error))
        variance = prior_variance * (1.0 - prior_variance * float(x @ solved))
        cross = -(x @ self.images) * (prior_variance / self.noise_variance)
        return mean, variance, solved * (self.noise_variance * prior_variance), cross

    def _keep_or_drop(
        self, j: int, mean: float, variance: float, image: Array, cross: Array
    ) -> None:
        """Let feature `j` enter or leave the explicit ones, by its new site precision."""
        xp = namespace_of(self.kernel)
        usable = float(self.precision[j]) > float(self.floor[j])
        if j in self.explicit and usable:
            keep = xp.asarray([i for i, f in enumerate(self.explicit) if f != j], dtype=xp.int64)
            self.explicit.remove(j)
            self.images = xp.take(self.images, keep, axis=1)
            self.block = xp.take(xp.take(self.block, keep, axis=0), keep, axis=1)
            self.means = xp.take(self.means, keep)
        elif j not in self.explicit and not usable:
            self.explicit.append(j)
            corner = xp.concat([cross, xp.asarray([variance])])
            self.images = xp.concat([self.images, image[:, None]], axis=1)
            self.block = xp.concat([self.block, cross[None, :]], axis=0)
            self.block = xp.concat([self.block, corner[:, None]], axis=1)
            self.means = xp.concat([self.means, xp.asarray([mean])])
