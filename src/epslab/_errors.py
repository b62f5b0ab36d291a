"""The errors that the package raises on purpose, and the checks of plain numbers."""

from __future__ import annotations

import math
import numbers
from typing import Any

from epslab._array import NotPositiveDefinite

__all__ = [
    "Breakdown",
    "NotPositiveDefinite",
    "StopFit",
    "as_float",
    "require_count",
    "require_number",
]


class Breakdown(ArithmeticError):
    """A numerical breakdown inside an iteration; the driver turns it into a Status."""


class StopFit(Exception):
    """Raised by an observer to end a fit at the last good state (``Status.INTERRUPTED``)."""


def as_float(value: Any, name: str) -> float:
    """Return a real number as a float, or say that it is too large to be one."""
    try:
        return float(value)
    except OverflowError as error:
        msg = f"{name} must be a finite number, got one of {len(str(value))} digits"
        raise ValueError(msg) from error


def require_number(value: Any, name: str, *, above: float, up_to: float = math.inf) -> None:
    """Refuse what is not a finite number in ``(above, up_to]``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        msg = f"{name} must be a number, got {type(value).__name__}"
        raise TypeError(msg)
    number = as_float(value, name)
    if not above < number <= up_to or math.isinf(number):
        limit = f" and at most {up_to:g}" if math.isfinite(up_to) else ""
        msg = f"{name} must be a number above {above:g}{limit}, got {number:g}"
        raise ValueError(msg)


def require_count(value: Any, name: str) -> None:
    """Refuse what is not a whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        msg = f"{name} must be a whole number, got {value!r}"
        raise TypeError(msg)
    if value < 0:
        msg = f"{name} must not be negative, got {value}"
        raise ValueError(msg)
