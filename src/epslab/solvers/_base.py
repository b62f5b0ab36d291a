"""Solvers: frozen settings with an `init` and a `step`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from epslab._domain import Domain, Proper
from epslab._driver import EPState, iterate
from epslab._errors import require_count, require_number
from epslab._natural import Natural
from epslab._observers import Observer
from epslab._problem import Problem
from epslab._result import FitResult


class Solver(ABC):
    """Turns a problem into a result."""

    name: ClassVar[str]

    @abstractmethod
    def run(
        self,
        problem: Problem,
        start: FitResult | Natural | None,
        observers: Sequence[Observer],
    ) -> FitResult:
        """Solve `problem`, from `start` where given."""


@dataclass(frozen=True, kw_only=True)
class EPSolver(Solver):
    """Settings that every iterative solver has.

    Parameters
    ----------
    tol : float
        Largest residual (:eq:`residual`) that counts as converged: a disagreement of moments in
        slab units, not the error of a probability.
    max_iter : int
    domain : Domain
    """

    tol: float = 1e-4
    max_iter: int = 1000
    domain: Domain = field(default_factory=Proper)

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        require_number(self.tol, "tol", above=0.0)
        require_count(self.max_iter, "max_iter")
        if not isinstance(self.domain, Domain):
            msg = f"domain must be Proper() or Box(eps), got {self.domain!r}"
            raise TypeError(msg)

    def run(
        self,
        problem: Problem,
        start: FitResult | Natural | None,
        observers: Sequence[Observer],
    ) -> FitResult:
        """Iterate until the certificate holds."""
        return iterate(problem, self, start, observers)

    @abstractmethod
    def init(self, problem: Problem, start: FitResult | Natural | None) -> EPState:
        """Return the state before the first iteration."""

    @abstractmethod
    def step(self, problem: Problem, state: EPState) -> EPState:
        """Return the state after one more iteration."""
