"""A regression problem: data, noise and prior, checked once and never changed."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from epslab import _array
from epslab._array import Array, namespace_of
from epslab._errors import as_float
from epslab._natural import Natural, Tilted
from epslab.likelihoods import (
    Columns,
    DenseColumns,
    Gaussian,
    Likelihood,
    SparseColumns,
    gaussian_likelihood,
)
from epslab.priors import SpikeSlabPrior

# Squared signal-to-noise ratio of a column below which the data say nothing about its
# coefficient: at 1e-24 its mean would move by 1e-12 slab standard deviations, :eq:`settled`.
_NO_INFORMATION = 1e-24


class Problem:
    """Linear regression ``y = X w + noise`` with a prior on the coefficients.

    Implements :eq:`model`. There is no intercept: centre the columns and y where one is wanted.

    Parameters
    ----------
    X : array of shape (n, d), or scipy.sparse matrix
        float32 is kept as float32 in memory and promoted block by block; arithmetic is float64.
        Not copied and never modified; do not change it while the problem is in use.
    y : array of shape (n,)
    noise_variance : float
    prior : SpikeSlabPrior

    Attributes
    ----------
    n_rows, n_features : int
    noise_variance : float
    prior : SpikeSlabPrior

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range; the message names it.

    Examples
    --------
    >>> import numpy as np
    >>> import epslab as es
    >>> prior = es.SpikeSlabPrior(inclusion=0.5, slab_variance=1.0)
    >>> es.Problem(np.eye(2), [0.0, 2.0], noise_variance=0.1, prior=prior)
    Problem(n_rows=2, n_features=2, noise_variance=0.1)
    """

    def __init__(self, X: Any, y: Any, *, noise_variance: float, prior: SpikeSlabPrior) -> None:
        if not isinstance(prior, SpikeSlabPrior):
            msg = f"prior must be a SpikeSlabPrior, got {type(prior).__name__}"
            raise TypeError(msg)
        self.prior = prior
        self.noise_variance = _positive_number(noise_variance, "noise_variance")
        X = _checked_design(X)
        self.n_rows, self.n_features = X.shape
        y = _checked_target(y, X)
        bound = prior.bound(self.n_features, like=y)
        xp = namespace_of(y)
        self.is_kept = bound.inclusion > 0
        self.kept = xp.nonzero(self.is_kept)[0]
        counts = xp.cumulative_sum(xp.astype(self.is_kept, xp.int64))
        self.rank = xp.clip(counts - 1, min=0)  # place among the kept, for those that are
        if self.kept.shape[0] < self.n_features:
            X = X[:, self.kept] if _array.is_sparse(X) else xp.take(X, self.kept, axis=1)
            bound = bound.take(self.kept)
        self._bound = bound
        columns: Columns = SparseColumns(X) if _array.is_sparse(X) else DenseColumns(X)
        self._settle(columns, y)
        self.likelihood: Likelihood = gaussian_likelihood(
            columns, y, self.noise_variance, 1.0 / bound.slab_variance
        )

    def __repr__(self) -> str:
        """Sizes and noise."""
        return (
            f"Problem(n_rows={self.n_rows}, n_features={self.n_features}, "
            f"noise_variance={self.noise_variance:g})"
        )

    # ---- what solvers use: arrays over the kept features --------------------------------------

    @property
    def scale(self) -> Array:
        """Slab variances of the kept features, the unit of the certificate."""
        return self._bound.scale

    @property
    def cavity_floor(self) -> Array:
        """Cavity precisions have to exceed this."""
        return self._bound.cavity_floor

    @property
    def bound_prior(self) -> Any:
        """The prior of the kept features."""
        return self._bound

    def condition(self, sites: Natural) -> Gaussian:
        """Q given sites of the kept features."""
        return self.likelihood.condition(sites)

    def tilted(self, cavity: Natural) -> Tilted:
        """P given cavities of the kept features."""
        return self._bound.tilted(cavity)

    def default_sites(self) -> Natural:
        """Sites with the prior's own moments: where every solver starts."""
        return self._bound.moments().natural()

    def with_settled(self, sites: Natural) -> Natural:
        """The same sites, those of settled features put where they belong, :eq:`settled`."""
        return sites.where(self.open, self._settled_sites)

    # ---- between all features and the kept ones -----------------------------------------------

    def gather(self, natural: Natural, name: str) -> Natural:
        """The kept features of `natural`, in the library and precision of the problem.

        `name` is what the caller calls it, for the message where it does not fit.
        """
        if not isinstance(natural, Natural):
            msg = f"{name} must be Natural parameters, got {type(natural).__name__}"
            raise TypeError(msg)
        parts = []
        for part in ("shift", "precision"):
            label = f"{name}.{part}"
            values = _array.as_real_array(getattr(natural, part), label, like=self.scale)
            if values.shape != (self.n_features,):
                msg = f"{label} must have shape ({self.n_features},), got {tuple(values.shape)}"
                raise ValueError(msg)
            parts.append(namespace_of(values).take(values, self.kept))
        return Natural(*parts)

    def scatter(self, values: Array, fill: float) -> Array:
        """An array over all features: `values` for the kept ones and `fill` for the others."""
        xp = namespace_of(values)
        if values.shape[-1] == self.n_features:
            return values
        if values.shape[-1] == 0:
            return xp.full((*values.shape[:-1], self.n_features), fill, dtype=values.dtype)
        return xp.where(self.is_kept, xp.take(values, self.rank, axis=-1), fill)

    def scatter_natural(self, natural: Natural) -> Natural:
        """Natural parameters over all features; a removed one is a point mass at zero."""
        return Natural(self.scatter(natural.shift, 0.0), self.scatter(natural.precision, math.inf))

    # ---- construction --------------------------------------------------------------------------

    def _settle(self, columns: Columns, y: Array) -> None:
        """Find the features that carry no question, and refuse numbers that overflow."""
        xp = namespace_of(y)
        bound = self._bound
        with _array.quiet():
            information = columns.squared_norms() * bound.slab_variance / self.noise_variance
            signal = float(y @ y) / self.noise_variance
            total = float(xp.sum(information)) * max(1.0, signal)
            extremes = (signal, total, 1.0 / self.noise_variance)
        if not all(math.isfinite(number) for number in extremes):
            msg = (
                "X, y, noise_variance and slab_variance span too many orders of magnitude: "
                "the signal-to-noise ratio overflows; rescale X and y"
            )
            raise ValueError(msg)
        silent = information * max(1.0, signal) <= _NO_INFORMATION
        certain = bound.inclusion == 1.0
        self.open = ~(silent | certain)
        with _array.quiet():
            self._settled_sites = self.default_sites()


def _checked_design(X: Any) -> Any:
    """A finite, real, non-empty matrix."""
    if _array.is_sparse(X):
        _require_two_dimensions(X)
        X = _array.as_sparse_columns(X, "X")
        values = X.data
    else:
        values = X = _array.as_real_array(X, "X")
    _require_two_dimensions(X)
    if X.shape[0] < 1 or X.shape[1] < 1:
        msg = f"X must have at least one row and one feature, got shape {tuple(X.shape)}"
        raise ValueError(msg)
    _require_finite(values, "X")
    return X


def _require_two_dimensions(X: Any) -> None:
    if X.ndim != 2:
        msg = f"X must be a 2-d array of shape (rows, features), got shape {tuple(X.shape)}"
        raise ValueError(msg)


def _checked_target(y: Any, X: Any) -> Array:
    """A finite vector with one number per row of X, float64 in X's library."""
    like = X.data if _array.is_sparse(X) else X
    y = _array.as_real_array(y, "y", like=like)
    y = namespace_of(y).asarray(y, copy=True)  # the caller may go on to change theirs
    if y.ndim != 1:
        msg = f"y must be a 1-d array, got shape {tuple(y.shape)}"
        raise ValueError(msg)
    if y.shape[0] != X.shape[0]:
        msg = f"y must have one number per row of X: got {y.shape[0]} for {X.shape[0]} rows"
        raise ValueError(msg)
    _require_finite(y, "y")
    return y


def _require_finite(values: Array, name: str) -> None:
    xp = namespace_of(values)
    # The sum is finite unless an entry is not (or it overflows): one pass without a mask.
    with _array.quiet():
        if bool(xp.isfinite(xp.sum(values))):
            return
    bad = int(xp.sum(xp.astype(~xp.isfinite(values), xp.int64)))
    if bad:
        msg = f"{name} must be finite, got {bad} NaN or infinite entries: drop or impute them"
        raise ValueError(msg)


def _positive_number(value: Any, name: str) -> float:
    """A finite number above zero."""
    array = _array.as_real_array(as_float(value, name) if isinstance(value, Real) else value, name)
    is_boolean = namespace_of(array).isdtype(getattr(value, "dtype", array.dtype), "bool")
    if isinstance(value, bool) or is_boolean or array.ndim != 0:
        msg = f"{name} must be a number, got {type(value).__name__}"
        raise TypeError(msg)
    number = float(array)
    if not (math.isfinite(number) and number > 0):
        msg = f"{name} must be a finite number above 0, got {number:g}"
        raise ValueError(msg)
    return number
