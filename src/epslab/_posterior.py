"""Posteriors: what is known of the coefficients after the fit."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from epslab import _array
from epslab._array import Array, Generator, namespace_of
from epslab._errors import require_count
from epslab._natural import Moments, Tilted
from epslab._problem import Problem
from epslab.likelihoods import Gaussian


class Posterior(ABC):
    """Marginals of the coefficients, and their joint distribution.

    Attributes
    ----------
    mean, variance, inclusion_probability : arrays of shape (d,)
    """

    mean: Array
    variance: Array
    inclusion_probability: Array

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def __repr__(self) -> str:
        """Kind and size."""
        return f"{type(self).__name__}({self._problem.n_features} features)"

    def covariance(self, indices: Any) -> Array:
        """Joint covariance of the chosen features.

        With EP it is that of the Gaussian Q; its diagonal agrees with `variance` as far as the
        certificate says.

        Parameters
        ----------
        indices : integers, shape (k,)
            Negative ones count from the end.

        Returns
        -------
        array of shape (k, k)
        """
        problem = self._problem
        chosen = _checked_indices(indices, problem.n_features)
        xp = namespace_of(problem.scale)
        if problem.kept.shape[0] == 0:
            return xp.zeros((len(chosen), len(chosen)), dtype=xp.float64)
        positions = xp.asarray(chosen, dtype=xp.int64)
        block = self._kept_covariance(xp.take(problem.rank, positions))
        is_kept = xp.take(problem.is_kept, positions)
        return xp.where(is_kept[:, None] & is_kept, block, 0.0)  # a removed feature is zero

    def sample(self, size: int, random_state: Any = None) -> Array:
        """Draw coefficients from the joint posterior; with EP, from the Gaussian Q.

        Parameters
        ----------
        size : int
        random_state : None, int or numpy.random.Generator

        Returns
        -------
        array of shape (size, d)
        """
        require_count(size, "size")
        draws = self._kept_sample(int(size), _array.generator(random_state))
        return self._problem.scatter(draws, 0.0)

    def predict(self, X: Any, *, noise: bool = True) -> Moments:
        """Mean and variance of the target at new rows, :eq:`predictive`.

        Parameters
        ----------
        X : array of shape (m, d), or scipy.sparse matrix
        noise : bool
            Whether the variance is that of a new observation, noise included (the default), or
            of the regression line alone.

        Returns
        -------
        Moments, arrays of shape (m,)
        """
        problem = self._problem
        like = problem.scale
        rows = X.toarray() if _array.is_sparse(X) else X
        rows = _array.as_real_array(rows, "X", like=like)
        if rows.ndim != 2 or rows.shape[1] != problem.n_features:
            msg = f"X must have shape (rows, {problem.n_features}), got {tuple(rows.shape)}"
            raise ValueError(msg)
        xp = namespace_of(like)
        if not bool(xp.all(xp.isfinite(rows))):
            msg = "X must be finite, got NaN or infinite entries"
            raise ValueError(msg)
        if problem.kept.shape[0] < problem.n_features:
            rows = xp.take(rows, problem.kept, axis=1)
        extra = problem.noise_variance if noise else 0.0
        line = self._projected(rows)
        return Moments(line.mean, line.variance + extra)

    @abstractmethod
    def _kept_covariance(self, rows: Array) -> Array:
        """Covariance of kept features by their rank among the kept."""

    @abstractmethod
    def _kept_sample(self, size: int, rng: Generator) -> Array:
        """Draw (size, kept) samples."""

    @abstractmethod
    def _projected(self, rows: Array) -> Moments:
        """Mean and variance of ``rows @ w`` over the kept features."""


class GaussianPosterior(Posterior):
    """EP's posterior: marginals from the tilted distributions, the joint one from Q.

    The tilted marginals (spike and slab times the exact cavity) have the right tails and the
    inclusion probabilities; Q has the correlations. At a fixed point means and variances agree.
    """

    def __init__(self, problem: Problem, gaussian: Gaussian, tilted: Tilted) -> None:
        super().__init__(problem)
        self._gaussian = gaussian
        self.mean = problem.scatter(tilted.mean, 0.0)
        self.variance = problem.scatter(tilted.variance, 0.0)
        self.inclusion_probability = problem.scatter(tilted.inclusion_probability, 0.0)

    def _kept_covariance(self, rows: Array) -> Array:
        return self._gaussian.covariance(rows)

    def _kept_sample(self, size: int, rng: Generator) -> Array:
        return self._gaussian.sample(size, rng)

    def _projected(self, rows: Array) -> Moments:
        mean = rows @ self._gaussian.moments.mean
        return Moments(mean, self._gaussian.projected_variance(rows))


class ExactPosterior(Posterior):
    """The posterior by enumeration: exact moments, exact draws.

    Parameters
    ----------
    problem : Problem
    inclusion_probability, mean : arrays over the kept features
    covariance : array, square over the kept features
    draw : callable
        From size and generator to (size, kept) exact samples, zeros where a draw excludes.
    """

    def __init__(
        self,
        problem: Problem,
        inclusion_probability: Array,
        mean: Array,
        covariance: Array,
        draw: Callable[[int, Generator], Array],
    ) -> None:
        super().__init__(problem)
        xp = namespace_of(mean)
        self._kept_mean = mean
        self._kept_cov = covariance
        self._draw = draw
        self.mean = problem.scatter(mean, 0.0)
        self.variance = problem.scatter(xp.linalg.diagonal(covariance), 0.0)
        self.inclusion_probability = problem.scatter(inclusion_probability, 0.0)

    def _kept_covariance(self, rows: Array) -> Array:
        xp = namespace_of(rows)
        return xp.take(xp.take(self._kept_cov, rows, axis=0), rows, axis=1)

    def _kept_sample(self, size: int, rng: Generator) -> Array:
        return self._draw(size, rng)

    def _projected(self, rows: Array) -> Moments:
        xp = namespace_of(rows)
        return Moments(rows @ self._kept_mean, xp.sum((rows @ self._kept_cov) * rows, axis=1))


def _checked_indices(indices: Any, n_features: int) -> list[int]:
    """Whole numbers within range, as positive positions."""
    try:
        given = list(indices)
    except TypeError as error:
        msg = f"indices must be a sequence of whole numbers, got {indices!r}"
        raise TypeError(msg) from error
    chosen = []
    for j in given:
        try:
            chosen.append(operator.index(j))
        except TypeError as error:
            msg = f"indices must be whole numbers, got {j!r}"
            raise TypeError(msg) from error
        if isinstance(j, bool) or "bool" in str(getattr(j, "dtype", "")):
            msg = "indices must be whole numbers, got booleans: pass the positions of a mask"
            raise TypeError(msg)
    if any(not -n_features <= j < n_features for j in chosen):
        msg = f"indices must lie within the {n_features} features, got {chosen}"
        raise ValueError(msg)
    return [j % n_features for j in chosen]
