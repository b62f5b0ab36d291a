"""Conditioning a linear model on Gaussian sites, in n x n (dual) or d x d (primal) form.

Both forms take site precisions of any sign. `gaussian_likelihood` chooses the form once, from the
shape of X.
"""

from __future__ import annotations

import math
from functools import cached_property

from epslab import _array
from epslab._array import Array, Generator, NotPositiveDefinite, namespace_of
from epslab._natural import Moments, Natural
from epslab.likelihoods._base import Columns, Gaussian, Likelihood, Walk
from epslab.likelihoods._data import DenseColumns
from epslab.likelihoods._rounding import REFINE_ABOVE, refined
from epslab.likelihoods._walk import DualWalk, PrimalWalk

_LOG_2PI = math.log(2 * math.pi)

# Site precisions below this fraction of the lift are conditioned by lift and downdate. The direct
# form loses log10 of 1/t2, in units of the posterior variance, of its digits; the energy of a box
# solution with several sites at 1e-4 would be good to 1e-9 only.
LIFT_BELOW = 1e-2

# Where the data leave less than this of a feature's site variance, subtracting has lost ten digits
# and the conditioning is done again with that feature lifted to the precision of the data.
_STRONG = 1e-10

# A pivot below this fraction of its diagonal: the primal form has lost ten digits.
_COLLINEAR = 1e-10


class DualLikelihood(Likelihood):
    """The linear model in n x n form, for d > n.

    Implements :eq:`dual-gram`. Two passes over X, ``2 n^2 d`` flops and ``n^3 / 3`` for the
    factor; never a d x d array.

    Parameters
    ----------
    columns : Columns
    y : array of shape (n,)
    noise_variance : float
    lift : array of shape (d,)
        The precisions to which small site precisions are lifted, :eq:`lift`.
    """

    def __init__(self, columns: Columns, y: Array, noise_variance: float, lift: Array) -> None:
        self.columns = columns
        self.y = y
        self.noise_variance = noise_variance
        self.lift = lift
        self.information = columns.squared_norms() / noise_variance
        self.n_rows, self.n_features = columns.n_rows, columns.n_features

    def condition(self, sites: Natural) -> DualGaussian:
        """Multiply by sites and normalise."""
        return DualGaussian(self, sites)

    def walk(self, sites: Natural) -> Walk:
        """Start changing one site at a time from `sites`."""
        gaussian = DualGaussian(self, sites)
        return DualWalk(self.columns, self.y, self.noise_variance, LIFT_BELOW * self.lift, gaussian)


class DualGaussian(Gaussian):
    """Likelihood times sites through the factor of the n x n matrix C.

    Implements :eq:`dual-variance`, :eq:`dual-mean`, :eq:`dual-norm`, :eq:`lift`,
    :eq:`downdate`, :eq:`downdate-mean`, :eq:`downdate-norm`, :eq:`joint-covariance`,
    :eq:`joint-sample` and :eq:`predictive`.

    Symbols: D = prior_variance, C = L L', V = L^-1 X D^(1/2), S = lifted features,
    W = downdate, so that the covariance is ``D - D X' C^-1 X D + W W'``.
    """

    def __init__(self, likelihood: DualLikelihood, sites: Natural) -> None:
        xp = namespace_of(sites.shift)
        self.likelihood = likelihood
        self.sites = sites
        self.downdate: Array | None = None
        lifted = ~(sites.precision >= LIFT_BELOW * likelihood.lift)
        precision = xp.where(lifted, likelihood.lift, sites.precision)
        self._condition_lifted(precision)
        strong = self.moments.variance < _STRONG * self.prior_variance
        if bool(xp.any(strong)):
            lifted = lifted | strong
            data = xp.maximum(precision, likelihood.information)
            precision = xp.where(strong, data, precision)
            self._condition_lifted(precision)
        self.lifted = xp.nonzero(lifted)[0]
        if self.lifted.shape[0]:
            self._take_lift_back(xp.take(precision - sites.precision, self.lifted))
        if self.span > REFINE_ABOVE:
            self.moments, self.rounding = refined(self, self.moments)

    def times_covariance(self, vector: Array) -> Array:
        """The covariance times a vector (d,)."""
        scaled = self.prior_variance * vector
        z = _array.solve_positive(self.factor, self.likelihood.columns.times(scaled))
        product = scaled - self.prior_variance * self.likelihood.columns.transposed_times(z)
        if self.downdate is not None:
            back = _array.product(self.downdate, vector)
            product = product + _array.product(self.downdate.T, back)
        return product

    def _condition_lifted(self, precision: Array) -> None:
        """Moments and norm with the lifted, positive precisions."""
        xp = namespace_of(precision)
        columns, noise_variance = self.likelihood.columns, self.likelihood.noise_variance
        self.prior_variance = 1.0 / precision
        root = xp.sqrt(self.prior_variance)
        shift = self.sites.shift
        gram, prior_fit = columns.weighted_gram(root, root * shift)
        self.factor = _array.cholesky_of_psd_plus(gram, noise_variance)
        self.span = float(xp.max(xp.sum(self.factor**2, axis=1))) / noise_variance
        a = _array.solve_lower(self.factor, self.likelihood.y - prior_fit)
        norms, back = columns.whitened(self.factor, root, a)
        self.moments = Moments(
            self.prior_variance * shift + root * back, self.prior_variance * (1.0 - norms)
        )
        log_det = float(xp.sum(xp.log(xp.linalg.diagonal(self.factor))))
        prior_terms = shift * (self.prior_variance * shift) - xp.log(precision)
        self.log_norm = (
            0.5 * (columns.n_features - columns.n_rows) * _LOG_2PI
            - log_det
            - 0.5 * float(a @ a)
            + 0.5 * float(xp.sum(prior_terms))
        )

    def _take_lift_back(self, excess: Array) -> None:
        """Downdate of rank |S|: moments and norm with the true precisions."""
        xp = namespace_of(self.prior_variance)
        S = self.lifted
        root = xp.sqrt(excess)
        U = self.covariance_rows(S).T * root
        K = xp.eye(S.shape[0], dtype=U.dtype) - root[:, None] * xp.take(U, S, axis=0)
        R = _array.cholesky(K)
        self.downdate = _array.solve_lower(R, U.T)
        pull = _array.solve_lower(R, root * xp.take(self.moments.mean, S))
        self.moments = Moments(
            self.moments.mean + _array.product(self.downdate.T, pull),
            self.moments.variance + _array.squared_column_norms(self.downdate),
        )
        self.log_norm += 0.5 * float(pull @ pull)
        self.log_norm -= float(xp.sum(xp.log(xp.linalg.diagonal(R))))

    def covariance_rows(self, indices: Array) -> Array:
        """Rows (k, d) of the covariance, for the chosen features."""
        xp = namespace_of(self.prior_variance)
        columns = self.likelihood.columns
        chosen = xp.take(self.prior_variance, indices)
        Z = _array.solve_positive(self.factor, columns.take(indices) * chosen)
        rows = -(columns.transposed_times(Z) * self.prior_variance[:, None]).T
        positions = xp.arange(self.prior_variance.shape[0])
        rows = rows + xp.where(positions == indices[:, None], chosen[:, None], 0.0)
        if self.downdate is not None:
            taken = xp.take(self.downdate, indices, axis=1)
            rows = rows + _array.product(taken.T, self.downdate)
        return rows

    def projected_variance(self, rows: Array) -> Array:
        """Variance of ``rows @ w`` for each of the (k, d) rows."""
        xp = namespace_of(self.prior_variance)
        scaled = rows * self.prior_variance
        V = _array.solve_lower(self.factor, self.likelihood.columns.times(scaled.T))
        variance = xp.sum(rows * scaled, axis=1) - _array.squared_column_norms(V)
        if self.downdate is not None:
            variance = variance + _array.squared_column_norms(self.downdate @ rows.T)
        return xp.clip(variance, min=0.0)

    def sample(self, size: int, rng: Generator) -> Array:
        """Draw (size, d) joint samples of the coefficients."""
        xp = namespace_of(self.prior_variance)
        likelihood, columns = self.likelihood, self.likelihood.columns
        noise_sd = math.sqrt(likelihood.noise_variance)
        prior_draw = xp.sqrt(self.prior_variance)[:, None] * _array.standard_normal(
            rng, (columns.n_features, size), like=self.prior_variance
        )
        noise = noise_sd * _array.standard_normal(
            rng, (columns.n_rows, size), like=self.prior_variance
        )
        Z = _array.solve_positive(self.factor, columns.times(prior_draw) + noise)
        draw = prior_draw - self.prior_variance[:, None] * columns.transposed_times(Z)
        if self.downdate is not None:
            extra = _array.standard_normal(rng, (self.lifted.shape[0], size), like=draw)
            draw = draw + self.downdate.T @ extra
        return self.moments.mean + draw.T


class IllConditioned(ArithmeticError):
    """The d x d form has lost too many digits."""


class PrimalLikelihood(Likelihood):
    """The linear model in d x d form, for d <= n: X is read once, into ``X'X``.

    Parameters
    ----------
    columns : Columns
    y : array of shape (n,)
    noise_variance : float
    lift : array of shape (d,)
        As for `DualLikelihood`, to which ill-conditioned cases are passed on.
    """

    def __init__(self, columns: Columns, y: Array, noise_variance: float, lift: Array) -> None:
        self.columns = columns
        self.y = y
        self.noise_variance = noise_variance
        self.lift = lift
        self.n_rows, self.n_features = columns.n_rows, columns.n_features
        self.gram = columns.cross_gram() / noise_variance
        self.pull = columns.transposed_times(y) / noise_variance

    def condition(self, sites: Natural) -> Gaussian:
        """Multiply by sites and normalise.

        Where columns are too collinear for the d x d form, X is rotated once to d rows and the
        dual form, which squares no condition number across features, takes over.
        """
        try:
            return PrimalGaussian(self, sites)
        except IllConditioned:
            rotated, lost = self._rotated
            gaussian = rotated.condition(sites)
            gaussian.log_norm += lost
            return gaussian

    def walk(self, sites: Natural) -> Walk:
        """Start changing one site at a time from `sites`."""
        return PrimalWalk(self.condition(sites))

    @cached_property
    def _rotated(self) -> tuple[DualLikelihood, float]:
        """The same likelihood with d rows, and the log norm of what the rotation drops."""
        xp = namespace_of(self.y)
        dense = self.columns.take(xp.arange(self.n_features))
        Q, R = xp.linalg.qr(dense)
        y = Q.T @ self.y
        error = self.y - Q @ y
        spare = self.n_rows - self.n_features
        lost = -0.5 * spare * (_LOG_2PI + math.log(self.noise_variance))
        lost -= 0.5 * float(error @ error) / self.noise_variance
        dual = DualLikelihood(DenseColumns(R), y, self.noise_variance, self.lift)
        return dual, lost


class PrimalGaussian(Gaussian):
    """Likelihood times sites through the factor of the d x d precision matrix A.

    Implements :eq:`primal-moments`, :eq:`primal-norm` and :eq:`predictive`.

    Symbols: A = L L'.
    """

    def __init__(self, likelihood: PrimalLikelihood, sites: Natural) -> None:
        xp = namespace_of(sites.shift)
        self.likelihood = likelihood
        self.sites = sites
        self.factor, self.span = _precision_factor(likelihood.gram, sites.precision)
        self.inverse_factor = _array.invert_lower(self.factor)
        self.moments = Moments(
            self.times_covariance(likelihood.pull + sites.shift),
            _array.squared_column_norms(self.inverse_factor),
        )
        if self.span > REFINE_ABOVE:
            self.moments, self.rounding = refined(self, self.moments)
        mean = self.moments.mean
        error = likelihood.y - likelihood.columns.times(mean)
        site_terms = mean * (sites.shift - 0.5 * sites.precision * mean)
        self.log_norm = (
            0.5 * (likelihood.n_features - likelihood.n_rows) * _LOG_2PI
            - 0.5 * likelihood.n_rows * math.log(likelihood.noise_variance)
            - 0.5 * float(error @ error) / likelihood.noise_variance
            + float(xp.sum(site_terms))
            - float(xp.sum(xp.log(xp.linalg.diagonal(self.factor))))
        )

    def times_covariance(self, vector: Array) -> Array:
        """The covariance times a vector (d,)."""
        half = _array.product(self.inverse_factor, vector)
        return _array.product(self.inverse_factor.T, half)

    def covariance_rows(self, indices: Array) -> Array:
        """Rows (k, d) of the covariance, for the chosen features."""
        xp = namespace_of(self.inverse_factor)
        taken = xp.take(self.inverse_factor, indices, axis=1)
        return _array.product(taken.T, self.inverse_factor)

    def projected_variance(self, rows: Array) -> Array:
        """Variance of ``rows @ w`` for each of the (k, d) rows."""
        return _array.squared_column_norms(_array.product(self.inverse_factor, rows.T))

    def sample(self, size: int, rng: Generator) -> Array:
        """Draw (size, d) joint samples of the coefficients."""
        shape = (self.likelihood.n_features, size)
        draw = _array.standard_normal(rng, shape, like=self.inverse_factor)
        return self.moments.mean + (self.inverse_factor.T @ draw).T


def _precision_factor(information: Array, precision: Array) -> tuple[Array, float]:
    """Cholesky factor of ``information + diag(precision)`` and its span.

    Squared pivots are measured by the diagonal, so that the span does not depend on units.
    """
    xp = namespace_of(precision)
    if precision.shape[0] == 0:
        return information, 1.0
    positions = xp.arange(precision.shape[0])
    A = xp.where(positions[:, None] == positions, information + precision, information)
    try:
        factor = _array.cholesky(A)
    except NotPositiveDefinite as error:
        raise IllConditioned from error
    span = float(xp.max(xp.linalg.diagonal(A) / xp.linalg.diagonal(factor) ** 2))
    if span > 1.0 / _COLLINEAR:
        raise IllConditioned
    return factor, span


def gaussian_likelihood(
    columns: Columns, y: Array, noise_variance: float, lift: Array
) -> Likelihood:
    """Choose the cheaper of the two forms for the shape of X."""
    if columns.n_features > columns.n_rows:
        return DualLikelihood(columns, y, noise_variance, lift)
    return PrimalLikelihood(columns, y, noise_variance, lift)
