"""Observers watch a fit: a progress bar, a time limit, or whatever a caller brings."""

from __future__ import annotations

import sys
import time
from typing import IO, Any

from epslab._errors import StopFit, require_number
from epslab._result import FitResult, Record


class Observer:
    """Watches a fit; every method does nothing unless a subclass says otherwise.

    An observer ends a fit at the last good state by raising `StopFit`.
    """

    def started(self, solver: Any) -> None:
        """Called before any work, with the solver and its settings."""

    def iterated(self, record: Record) -> None:
        """Called after the start (iteration 0) and after every iteration."""

    def advanced(self, done: int, total: int) -> None:
        """Called by solvers without iterations, with the share of the work that is done."""

    def finished(self, result: FitResult) -> None:
        """Called with the result, however the fit ended."""


class TimeLimit(Observer):
    """Ends a fit after a number of seconds, with ``Status.INTERRUPTED`` and the last good state.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        require_number(seconds, "seconds", above=0.0)
        self.seconds = seconds
        self._deadline = float("inf")

    def started(self, solver: Any) -> None:
        """Start the clock."""
        self._deadline = time.perf_counter() + self.seconds

    def iterated(self, record: Record) -> None:
        """Stop the fit once the time is up."""
        self._check()

    def advanced(self, done: int, total: int) -> None:
        """Stop the fit once the time is up."""
        self._check()

    def _check(self) -> None:
        if time.perf_counter() > self._deadline:
            raise StopFit


class ProgressBar(Observer):
    """One line in a terminal that follows the fit; silent where there is no terminal.

    Parameters
    ----------
    stream : text stream, optional
        Standard error by default.
    every : float
        Least number of seconds between two updates.
    """

    def __init__(self, stream: IO[str] | None = None, every: float = 0.1) -> None:
        if every != 0:
            require_number(every, "every", above=0.0)
        self._stream = sys.stderr if stream is None else stream
        self._every = every
        self._shown = False
        self._last = 0.0
        self._solver: Any = None

    def started(self, solver: Any) -> None:
        """Forget the previous fit."""
        self._solver, self._shown, self._last = solver, False, 0.0

    def iterated(self, record: Record) -> None:
        """Show iteration, energy and residual."""
        self._show(
            f"{self._solver.name}: iteration {record.iteration}/{self._solver.max_iter}  "
            f"energy {record.energy:.6g}  residual {record.residual:.1e} "
            f"(tol {self._solver.tol:.0e})  {record.seconds:.1f} s"
        )

    def advanced(self, done: int, total: int) -> None:
        """Show the share of the work that is done."""
        filled = 30 * done // total
        bar = "#" * filled + "." * (30 - filled)
        self._show(f"{self._solver.name}: [{bar}] {100 * done // total} %")

    def finished(self, result: FitResult) -> None:
        """Show how it ended, and end the line."""
        if self._shown:
            self._last = 0.0
            self._show(
                f"{self._solver.name}: {result.status.name.lower()} after {result.n_iter} "
                f"iterations, residual {result.residual:.1e}, {result.seconds:.1f} s"
            )
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, text: str) -> None:
        now = time.perf_counter()
        if now - self._last < self._every or not self._stream.isatty():
            return
        self._last, self._shown = now, True
        self._stream.write(f"\r\x1b[2K{text}")
        self._stream.flush()
