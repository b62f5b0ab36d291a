"""What a likelihood has to offer: it conditions on Gaussian sites, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from epslab._array import Array, Generator, namespace_of, standard_normal
from epslab._natural import Moments, Natural

# From a feature and its marginal's mean and variance to the change of its site.
Proposal = Callable[[int, float, float], tuple[float, float]]


class Columns(ABC):
    """The design matrix X (n x d) wherever it lives: the only operations EP has for it.

    A data form is one such class. Results are dense float64 arrays; the two passes of a dual
    conditioning are `weighted_gram` and `whitened`.
    """

    n_rows: int
    n_features: int

    @abstractmethod
    def weighted_gram(self, scale: Array, weights: Array) -> tuple[Array, Array]:
        """With ``W = X diag(scale)``: ``W W'`` (lower triangle) and ``W weights``."""

    @abstractmethod
    def whitened(self, L: Array, scale: Array, a: Array) -> tuple[Array, Array]:
        """With ``V = L^-1 X diag(scale)``: the squared column norms of V, and ``V' a``."""

    @abstractmethod
    def cross_gram(self) -> Array:
        """``X'X`` (lower triangle), for d <= n."""

    @abstractmethod
    def take(self, indices: Array) -> Array:
        """The chosen columns as a dense (n, k) matrix."""

    @abstractmethod
    def times(self, w: Array) -> Array:
        """``X w`` for a vector (d,) or a matrix (d, k)."""

    @abstractmethod
    def transposed_times(self, z: Array) -> Array:
        """``X' z`` for a vector (n,) or a matrix (n, k)."""

    @abstractmethod
    def squared_norms(self) -> Array:
        """Squared length of every column."""


class Gaussian(ABC):
    """The distribution Q of :eq:`q-gaussian`: the likelihood times Gaussian sites.

    Attributes
    ----------
    sites : Natural
    moments : Moments
        Means and variances of the marginals.
    log_norm : float
        ``log Z``, the log integral of likelihood times sites.
    rounding : Moments or None
        Errors that rounding may have left in `moments`, where that is more than a few units in
        the last place.
    """

    sites: Natural
    moments: Moments
    log_norm: float
    rounding: Moments | None = None

    def marginals(self) -> Natural:
        """Natural parameters of the marginals."""
        return self.moments.natural()

    def covariance(self, indices: Array) -> Array:
        """Joint covariance (k, k) of the chosen features."""
        rows = self.covariance_rows(indices)
        return namespace_of(rows).take(rows, indices, axis=1)

    @abstractmethod
    def times_covariance(self, vector: Array) -> Array:
        """The covariance times a vector (d,)."""

    @abstractmethod
    def covariance_rows(self, indices: Array) -> Array:
        """Rows (k, d) of the covariance, for the chosen features."""

    @abstractmethod
    def projected_variance(self, rows: Array) -> Array:
        """Variance of ``rows @ w`` for each of the (k, d) rows."""

    @abstractmethod
    def sample(self, size: int, rng: Generator) -> Array:
        """Draw (size, d) joint samples of the coefficients."""


class SitesAlone(Gaussian):
    """The sites without the likelihood: what is left to show where conditioning fails at once.

    Parameters
    ----------
    sites : Natural
        With positive precisions.
    """

    def __init__(self, sites: Natural) -> None:
        self.sites = sites
        self.moments = sites.moments()
        self.log_norm = sites.log_norm()

    def times_covariance(self, vector: Array) -> Array:
        """The covariance times a vector (d,)."""
        return self.moments.variance * vector

    def covariance_rows(self, indices: Array) -> Array:
        """Rows (k, d) of the covariance, for the chosen features."""
        xp = namespace_of(indices)
        positions = xp.arange(self.moments.variance.shape[0])
        return xp.where(positions == indices[:, None], self.moments.variance, 0.0)

    def projected_variance(self, rows: Array) -> Array:
        """Variance of ``rows @ w`` for each of the (k, d) rows."""
        return (rows * rows) @ self.moments.variance

    def sample(self, size: int, rng: Generator) -> Array:
        """Draw (size, d) joint samples of the coefficients."""
        xp = namespace_of(self.moments.variance)
        draw = standard_normal(rng, (size, self.moments.mean.shape[0]), like=self.moments.mean)
        return self.moments.mean + xp.sqrt(self.moments.variance) * draw


class Walk(ABC):
    """Q under changes of one site at a time."""

    @abstractmethod
    def visit(self, j: int, propose: Proposal) -> None:
        """Show `propose` the marginal of feature `j` and add what it answers to the site."""


class Likelihood(ABC):
    """A Gaussian likelihood of the coefficients.

    Attributes
    ----------
    columns : Columns
    y : array of shape (n,)
    n_rows, n_features : int
    noise_variance : float
    """

    columns: Columns
    y: Array
    n_rows: int
    n_features: int
    noise_variance: float

    @abstractmethod
    def condition(self, sites: Natural) -> Gaussian:
        """Multiply by sites and normalise.

        Raises
        ------
        NotPositiveDefinite
            If likelihood times sites has no integral.
        """

    @abstractmethod
    def walk(self, sites: Natural) -> Walk:
        """Start changing one site at a time from `sites`."""
