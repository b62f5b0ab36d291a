"""Solvers: each file is one algorithm."""

from epslab.solvers._base import EPSolver, Solver
from epslab.solvers._double_loop import DoubleLoopEP
from epslab.solvers._exact import ExactEnumeration
from epslab.solvers._parallel import ParallelEP
from epslab.solvers._sequential import SequentialEP

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver for solver in (DoubleLoopEP, ExactEnumeration, ParallelEP, SequentialEP)
}

__all__ = [
    "SOLVERS",
    "DoubleLoopEP",
    "EPSolver",
    "ExactEnumeration",
    "ParallelEP",
    "SequentialEP",
    "Solver",
]
