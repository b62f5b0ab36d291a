"""What a solver returns: posterior, certificate, and how it came about."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from epslab._natural import Natural
from epslab._posterior import Posterior


class Status(enum.Enum):
    """How a fit ended. The text is a sentence with advice."""

    CONVERGED = "Converged: the certificate's residual is within tol."
    MAX_ITER = (
        "Not converged: max_iter reached. Raise max_iter, or start from this result; regular EP "
        "may never get there, DoubleLoopEP does (for d up to a few thousand)."
    )
    STALLED = (
        "Not converged: iterations stopped changing anything above tol. Ask for a larger tol, or "
        "rescale the data if numbers span many orders of magnitude."
    )
    BREAKDOWN = (
        "Not converged: numbers broke down; this is the last finite state, and may be far from any "
        "solution. With regular EP take a smaller step_size, or DoubleLoopEP; with DoubleLoopEP "
        "rescale the data."
    )
    INTERRUPTED = (
        "Not converged: interrupted; this is the last good state. Pass it as start= to go on."
    )

    def __str__(self) -> str:
        """Return the sentence."""
        return self.value


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the trace.

    Parameters
    ----------
    iteration : int
        0 is the start.
    energy : float
        What the solver lowers.
    residual : float
        The certificate, :eq:`residual`.
    n_conditionings : int
        Conditionings so far, refused trials included.
    seconds : float
        Since the start.
    """

    iteration: int
    energy: float
    residual: float
    n_conditionings: int
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """The course of a fit, a `Record` per iteration; every field is also a column.

    Parameters
    ----------
    records : tuple of Record
    """

    records: tuple[Record, ...]

    def __repr__(self) -> str:
        """Length and last record."""
        return f"Trace({len(self.records)} records, the last {self.records[-1:]})"

    def __len__(self) -> int:
        """Return the number of records, the start included."""
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records."""
        return iter(self.records)

    def column(self, name: str) -> list[Any]:
        """Return one field of all records."""
        if name not in {field.name for field in fields(Record)}:
            msg = f"name must be one of {[field.name for field in fields(Record)]}, got {name!r}"
            raise ValueError(msg)
        return [getattr(record, name) for record in self.records]

    @property
    def iteration(self) -> list[int]:
        """Iterations, 0 the start."""
        return self.column("iteration")

    @property
    def energy(self) -> list[float]:
        """Energies."""
        return self.column("energy")

    @property
    def residual(self) -> list[float]:
        """Certificates."""
        return self.column("residual")

    @property
    def n_conditionings(self) -> list[int]:
        """Conditionings so far."""
        return self.column("n_conditionings")

    @property
    def seconds(self) -> list[float]:
        """Seconds since the start."""
        return self.column("seconds")

    def to_pandas(self) -> Any:
        """Return the trace as a pandas DataFrame, a column a field."""
        try:
            import pandas as pd
        except ImportError as error:
            msg = "Trace.to_pandas needs pandas: pip install 'epslab[pandas]'"
            raise ImportError(msg) from error
        return pd.DataFrame({field.name: self.column(field.name) for field in fields(Record)})


@dataclass(frozen=True, slots=True, repr=False)
class FitResult:
    """A posterior with its certificate.

    Parameters
    ----------
    posterior : Posterior
    status : Status
    residual : float
        Distance from a fixed point, :eq:`residual`; 0 for an exact posterior.
    n_active : int
        Features held by a constraint of `Box`; with any, the certificate is one of the
        constrained problem only.
    energy : float
        What the solver lowered.
    log_evidence : float
        EP's estimate, minus the energy, of a converged result; nan where it has not converged or
        a constraint is active, so that no failed run can win a comparison.
    sites, marginals : Natural or None
        None for an exact posterior, which has no sites.
    trace : Trace
    n_iter, n_conditionings : int
    seconds : float
    solver : Solver
        With all its settings.
    """

    posterior: Posterior
    status: Status
    residual: float
    n_active: int
    energy: float
    log_evidence: float
    sites: Natural | None
    marginals: Natural | None
    trace: Trace
    n_iter: int
    n_conditionings: int
    seconds: float
    solver: Any

    @property
    def converged(self) -> bool:
        """Whether the residual is within the solver's tolerance, and nothing else."""
        return self.status is Status.CONVERGED

    def __str__(self) -> str:
        """Status as a sentence, and what the certificate does not cover."""
        if not self.n_active:
            return str(self.status)
        return (
            f"{self.status} Box holds {self.n_active} features at its bounds: this is a solution "
            "of the constrained problem only."
        )

    def __repr__(self) -> str:
        """Status, certificate and cost in one line."""
        clipped = f", n_active={self.n_active}" if self.n_active else ""
        return (
            f"FitResult({self.status.name}, residual={self.residual:.2g}{clipped}, "
            f"energy={self.energy:.6g}, n_iter={self.n_iter}, "
            f"n_conditionings={self.n_conditionings})"
        )
