"""Likelihoods: conditioning a linear model on Gaussian sites, one file per data form."""

from epslab.likelihoods._base import Columns, Gaussian, Likelihood, SitesAlone, Walk
from epslab.likelihoods._conditioning import gaussian_likelihood
from epslab.likelihoods._data import DenseColumns
from epslab.likelihoods._sparse import SparseColumns

__all__ = [
    "Columns",
    "DenseColumns",
    "Gaussian",
    "Likelihood",
    "SitesAlone",
    "SparseColumns",
    "Walk",
    "gaussian_likelihood",
]
