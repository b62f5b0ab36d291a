"""The errors that the package raises on purpose."""

from __future__ import annotations

from epslab._array import NotPositiveDefinite

__all__ = ["Breakdown", "NotPositiveDefinite", "StopFit"]


class Breakdown(ArithmeticError):
    """A numerical breakdown inside an iteration; the driver turns it into a Status."""


class StopFit(Exception):
    """Raised by an observer to end a fit at the last good state (``Status.INTERRUPTED``)."""
