"""Solvers: frozen settings with an `init` and a `step`."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from epslab._domain import Domain, Proper
from epslab._driver import EPState, iterate
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
        Largest residual (:eq:`residual`) that counts as converged.
    max_iter : int
    domain : Domain
    """

    tol: float = 1e-4
    max_iter: int = 1000
    domain: Domain = field(default_factory=Proper)

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        require_number(self.tol, "tol", above=0.0)
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, numbers.Integral):
            msg = f"max_iter must be a whole number, got {self.max_iter!r}"
            raise TypeError(msg)
        if self.max_iter < 0:
            msg = f"max_iter must not be negative, got {self.max_iter}"
            raise ValueError(msg)
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


def require_number(value: Any, name: str, *, above: float, up_to: float = math.inf) -> None:
    """Refuse what is not a number in ``(above, up_to]``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        msg = f"{name} must be a number, got {type(value).__name__}"
        raise TypeError(msg)
    number = float(value)
    if not above < number <= up_to or math.isinf(number):
        limit = f" and at most {up_to:g}" if math.isfinite(up_to) else ""
        msg = f"{name} must be a number above {above:g}{limit}, got {number:g}"
        raise ValueError(msg)
