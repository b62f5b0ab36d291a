"""What the EP solvers share: where to start, how to measure a state, how far to step."""

from __future__ import annotations

from dataclasses import dataclass

from epslab._array import NotPositiveDefinite, namespace_of
from epslab._domain import Domain
from epslab._driver import EPState
from epslab._energy import certify, energy_of, is_proper
from epslab._errors import Breakdown, require_number
from epslab._natural import Natural
from epslab._problem import Problem
from epslab._result import FitResult
from epslab.likelihoods import Gaussian
from epslab.solvers._base import EPSolver

# A state from which less than a millionth of a step is proper has broken down.
_HALVINGS = 20


def start_sites(
    problem: Problem, start: FitResult | Natural | None, domain: Domain
) -> tuple[Natural, Natural | None]:
    """Sites, and marginals where known, to start from; over the kept features."""
    if start is None:
        return problem.with_settled(
            domain.nearest_sites(problem.default_sites(), problem.scale)
        ), None
    sites = start.sites if isinstance(start, FitResult) else start
    marginals = start.marginals if isinstance(start, FitResult) else None
    if sites is None:
        msg = "start must be a result with sites; an exact posterior has none"
        raise ValueError(msg)
    if not isinstance(sites, Natural):
        msg = f"start must be a FitResult or Natural sites, got {type(start).__name__}"
        raise TypeError(msg)
    kept = problem.gather(sites, "start.sites" if isinstance(start, FitResult) else "start")
    xp = namespace_of(kept.shift)
    if bool(xp.any(xp.isnan(kept.shift) | xp.isnan(kept.precision))):
        msg = "start must not hold NaN"
        raise ValueError(msg)
    # An earlier result has infinite precision where its prior excluded a feature for certain.
    finite = xp.isfinite(kept.shift) & xp.isfinite(kept.precision)
    kept = kept.where(finite, problem.default_sites())
    kept = problem.with_settled(domain.nearest_sites(kept, problem.scale))
    return kept, None if marginals is None else problem.gather(marginals, "start.marginals")


def measured(
    problem: Problem,
    domain: Domain,
    sites: Natural,
    marginals: Natural,
    gaussian: Gaussian,
    n_conditionings: int,
) -> EPState:
    """A state with its tilted distributions, energy and certificate.

    Implements :eq:`energy` and :eq:`residual` from a conditioning already done.
    """
    marginals = marginals.where(problem.open, gaussian.marginals())  # settled: Q's, by definition
    tilted = problem.tilted(marginals - sites)
    clipped = domain.clipped(marginals, sites, problem.scale)
    certificate = certify(problem, gaussian, tilted.moments(), marginals, clipped)
    return EPState(
        sites=sites,
        marginals=marginals,
        gaussian=gaussian,
        tilted=tilted,
        energy=energy_of(gaussian, tilted, marginals),
        residual=certificate.residual,
        n_active=certificate.n_active,
        n_conditionings=n_conditionings,
    )


def moved_state(
    problem: Problem,
    domain: Domain,
    origin: Natural,
    target: Natural,
    step_size: float,
    n_conditionings: int,
) -> EPState:
    """Go from `origin` towards `target`, as far as `step_size` and properness allow.

    Implements :eq:`step` and :eq:`largest-step`: the step is halved until Q and every cavity are
    proper. `origin` has to be proper itself. Marginals are Q's own.
    """
    xp = namespace_of(origin.shift)
    if not bool(xp.all(xp.isfinite(target.shift) & xp.isfinite(target.precision))):
        msg = "EP's target is not finite"
        raise Breakdown(msg)
    for trial in range(_HALVINGS):
        sites = origin.moved(target, step_size * 0.5**trial)
        try:
            gaussian = problem.condition(sites)
        except NotPositiveDefinite:
            continue
        marginals = gaussian.marginals()
        if is_proper(problem, marginals, sites):
            return measured(
                problem, domain, sites, marginals, gaussian, n_conditionings + trial + 1
            )
    msg = "no step, however short, keeps Q and the cavities proper"
    raise Breakdown(msg)


@dataclass(frozen=True, kw_only=True)
class RegularEP(EPSolver):
    """What the regular EP solvers have in common: a step size, and their start.

    Parameters
    ----------
    step_size : float
        How far to move towards EP's target, in (0, 1]; 1 is undamped.
    """

    step_size: float = 0.5

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        EPSolver.__post_init__(self)
        require_number(self.step_size, "step_size", above=0.0, up_to=1.0)

    def init(self, problem: Problem, start: FitResult | Natural | None) -> EPState:
        """Condition on the starting sites."""
        return regular_start(problem, self.domain, start)


def regular_start(problem: Problem, domain: Domain, start: FitResult | Natural | None) -> EPState:
    """First state of regular EP: the given sites, or as far towards them as is proper.

    Implements :eq:`segment`: the default sites are proper, and so is some of the way from them.
    """
    origin, _ = start_sites(problem, None, domain)
    target, _ = start_sites(problem, start, domain)
    return moved_state(problem, domain, origin, target, 1.0, 0)
