"""Bayesian linear regression with spike-and-slab priors, by expectation propagation."""

from epslab._domain import Box, Domain, Proper
from epslab._energy import energy, residual
from epslab._errors import StopFit
from epslab._natural import Moments, Natural
from epslab._observers import Observer, ProgressBar, TimeLimit
from epslab._problem import Problem
from epslab._result import FitResult, Status, Trace
from epslab._solve import solve
from epslab.priors import SpikeSlabPrior
from epslab.solvers import DoubleLoopEP, ExactEnumeration, ParallelEP, SequentialEP

__all__ = [
    "Box",
    "Domain",
    "DoubleLoopEP",
    "ExactEnumeration",
    "FitResult",
    "Moments",
    "Natural",
    "Observer",
    "ParallelEP",
    "Problem",
    "ProgressBar",
    "Proper",
    "SequentialEP",
    "SpikeSlabPrior",
    "Status",
    "StopFit",
    "TimeLimit",
    "Trace",
    "energy",
    "residual",
    "solve",
]
