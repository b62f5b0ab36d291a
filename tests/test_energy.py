"""Energy and certificate of any sites and marginals, against sums of integrals in mpmath.

Exercises :eq:`energy`, :eq:`gaussian-norm`, :eq:`stationarity`, :eq:`lower-bound`,
:eq:`bounded-without-box`, :eq:`residual`, :eq:`clipped` and :eq:`settled`.
"""

import math

import designs
import numpy as np
import oracles
import pytest

import epslab as es
from epslab import Natural

SHAPES = [(4, 7), (7, 4), (1, 3), (1, 1)]
PROPER = es.Proper()


class Case:
    """A problem with sites and marginals of no particular merit."""

    def __init__(self, rng, n, d, inclusion=None):
        self.X, self.y, self.noise, self.slab = designs.regression(rng, n, d)
        self.inclusion = rng.uniform(0.02, 0.98, d) if inclusion is None else inclusion
        precision = designs.precisions(rng, self.slab)
        chosen = rng.permutation(d)[: d // 2]
        precision[chosen] = 0.1 / self.slab[chosen]
        precision = designs.negated(self.X, self.noise, precision, chosen)
        self.sites = Natural(designs.shifts(rng, precision), precision)
        # marginal = site + cavity, the cavity above -1/v, the marginal above 0
        cavity = 10 ** rng.uniform(-2, 2, d) - rng.choice([0.0, 0.9], d)
        marginal = np.maximum(precision + cavity / self.slab, 0.1 / self.slab)
        self.marginals = Natural(rng.standard_normal(d) * np.sqrt(marginal), marginal)

    @property
    def args(self):
        return self.X, self.y, self.noise, self.inclusion, self.slab

    @property
    def problem(self):
        prior = es.SpikeSlabPrior(self.inclusion, self.slab)
        return es.Problem(self.X, self.y, noise_variance=self.noise, prior=prior)

    def true_energy(self, sites=None, marginals=None):
        t, v = sites or self.sites, marginals or self.marginals
        return oracles.energy(*self.args, t.shift, t.precision, v.shift, v.precision, dps=40)

    def true_residual(self, sites=None, marginals=None, eps=None):
        t, v = sites or self.sites, marginals or self.marginals
        natural = t.shift, t.precision, v.shift, v.precision
        return oracles.residual(*self.args, *natural, box_eps=eps, dps=40)

    def q_marginals(self):
        """Marginals of Q at the sites."""
        q = oracles.condition(self.X, self.y, self.noise, self.sites.shift, self.sites.precision)
        return Natural(q["mean"] / q["variance"], 1 / q["variance"])


def changed(natural, part, j, value):
    values = getattr(natural, part).copy()
    values[j] = value
    pair = {"shift": natural.shift, "precision": natural.precision, part: values}
    return Natural(**pair)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trial", range(4))
def test_energy_is_the_sum_of_three_integrals(rng, shape, trial):
    """:eq:`energy` at any sites and marginals, negative site precisions included."""
    case = Case(rng, *shape)
    assert es.energy(case.problem, case.sites, case.marginals) == pytest.approx(
        case.true_energy(), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trial", range(4))
def test_residual_is_the_largest_difference_of_moments(rng, shape, trial):
    """:eq:`residual`, for marginals of Q and for any others; nothing is raised to a bound."""
    case = Case(rng, *shape)
    for marginals in (case.marginals, case.q_marginals()):
        true, n_clipped = case.true_residual(marginals=marginals)
        assert n_clipped == 0
        assert es.residual(case.problem, case.sites, marginals) == pytest.approx(true, rel=1e-7)


def near_bounds(rng, case, eps):
    """Sites and marginals at and about every bound of Box(eps), moments of any order."""
    d = len(case.slab)
    floor = eps / case.slab
    near = np.array([1.0, 1.005, 1.009, 1.02, 3.0, 30.0, 1e3])
    site, cavity = (floor * rng.choice(near, d) for _ in range(2))
    marginal = np.maximum(site + cavity, 3 * floor)
    site = np.where(rng.random(d) < 0.5, site, marginal - cavity)
    shift, marginal_shift = (rng.standard_normal(d) * np.sqrt(a) for a in (site, marginal))
    return Natural(shift, site), Natural(marginal_shift, marginal)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trial", range(10))
def test_residual_in_a_box_leaves_out_what_a_constraint_explains(rng, shape, trial):
    """:eq:`clipped`, all three rules and all their combinations; shifts of any kind."""
    case, eps = Case(rng, *shape), 0.05
    sites, marginals = near_bounds(rng, case, eps)
    if trial % 2:  # marginals from moments of P, as in a double loop: the means agree
        cavity = marginals - sites
        tilted = oracles.tilted_many(cavity.shift, cavity.precision, case.inclusion, case.slab)
        marginals = Natural(tilted["mean"] * marginals.precision, marginals.precision)
    true, _ = case.true_residual(sites, marginals, eps)
    got = es.residual(case.problem, sites, marginals, es.Box(eps))
    assert got == pytest.approx(true, rel=1e-7)
    plain = es.residual(case.problem, sites, marginals)
    assert got <= plain * (1 + 1e-9), "an excuse only takes away"


def test_a_marginal_at_its_bound_is_excused_at_a_cavity_at_its_own():
    """:eq:`clipped`, rules 1 and 2 together, where a double loop ends for a feature of no weight.

    What the data say of it is below eps, so h2 = eps holds P below Q, v2 falls by eps a step, and
    ends at 3 eps below Q's precision: the constrained solution, with v between P and Q.
    """
    eps, noise = 1e-3, 1.0
    X, y = np.array([[3e-3]]), np.zeros(1)
    sites = Natural(np.zeros(1), np.array([2 * eps]))
    marginals = Natural(np.zeros(1), np.array([3 * eps]))
    natural = sites.shift, sites.precision, marginals.shift, marginals.precision
    true, n_active = oracles.residual(X, y, noise, 0.5, 1.0, *natural, box_eps=eps)
    assert (true, n_active) == (0.0, 1)
    problem = es.Problem(X, y, noise_variance=noise, prior=es.SpikeSlabPrior(0.5, 1.0))
    assert es.residual(problem, sites, marginals, es.Box(eps)) == pytest.approx(0.0, abs=1e-9)


def test_no_difference_is_excused_without_a_box(rng):
    """:eq:`residual` under Proper is the plain one, wherever sites and cavities lie."""
    case = Case(rng, 4, 6)
    sites, marginals = near_bounds(rng, case, 0.05)
    plain = es.residual(case.problem, sites, marginals)
    assert es.residual(case.problem, sites, marginals, PROPER) == plain
    assert plain == pytest.approx(case.true_residual(sites, marginals)[0], rel=1e-7)


# ---- derivatives and bounds


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_is_a_difference_of_moments(rng, shape):
    """:eq:`stationarity` by central differences, in the sites and in the marginals."""
    case = Case(rng, *shape)
    problem, t, v = case.problem, case.sites, case.marginals
    q = oracles.condition(case.X, case.y, case.noise, t.shift, t.precision)
    cavity = v - t
    p = oracles.tilted_many(cavity.shift, cavity.precision, case.inclusion, case.slab)
    for j in range(shape[1]):
        of_q = np.array([q["mean"][j], -(q["variance"][j] + q["mean"][j] ** 2) / 2])
        of_p = np.array([p["mean"][j], -p["second"][j] / 2])
        own = v.shift[j] / v.precision[j]
        of_v = np.array([own, -(1 / v.precision[j] + own**2) / 2])
        size = sum(np.abs(a) for a in (of_q, of_p, of_v)) + 1
        for k, part in enumerate(("shift", "precision")):
            e = 1e-5 / size[k]
            for natural, slope in ((t, of_p[k] - of_q[k]), (v, of_v[k] - of_p[k])):
                at = getattr(natural, part)[j]
                ends = [changed(natural, part, j, at + s * e) for s in (1, -1)]
                pairs = [(a, v) if natural is t else (t, a) for a in ends]
                high, low = (es.energy(problem, *pair) for pair in pairs)
                rounding = 1e-12 * (1 + abs(high)) / e
                assert (high - low) / (2 * e) == pytest.approx(slope, abs=1e-4 * size[k] + rounding)


@pytest.mark.parametrize("trial", range(6))
def test_energy_is_concave_in_the_sites(rng, trial):
    """The inner problem has one maximum: midpoints lie above chords."""
    case = Case(rng, 4, 5)
    half = Natural(case.marginals.shift / 2, case.marginals.precision / 2)
    middle = case.sites.moved(half, 0.5)
    ends = [es.energy(case.problem, t, case.marginals) for t in (case.sites, half)]
    assert es.energy(case.problem, middle, case.marginals) >= sum(ends) / 2 - 1e-9


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settled", [False, True])
def test_half_the_marginals_give_the_bound(rng, shape, settled):
    """:eq:`lower-bound`, for marginals of any precision above 0, settled features or not."""
    d = shape[1]
    inclusion = rng.choice([0.0, 0.3, 1.0], d) if settled else None
    case = Case(rng, *shape, inclusion=inclusion)
    for _ in range(5):
        precision = 10 ** rng.uniform(-6, 6, d) / case.slab
        marginals = Natural(rng.standard_normal(d) * np.sqrt(precision) * 10, precision)
        half = Natural(marginals.shift / 2, marginals.precision / 2)
        bound = oracles.energy_bound(shape[0], int((case.inclusion > 0).sum()), case.noise)
        assert es.energy(case.problem, half, marginals) >= bound - 1e-9 * abs(bound)


def test_energy_falls_without_bound_at_the_edge_of_the_domain(rng):
    """:eq:`bounded-without-box`: at its edge the energy, to be maximised, goes to -infinity."""
    case = Case(rng, 3, 4)
    t, v = case.sites, case.marginals
    q = oracles.condition(case.X, case.y, case.noise, t.shift, t.precision)
    singular = t.precision[0] - 1 / q["variance"][0]
    energies = [
        es.energy(case.problem, changed(t, "precision", 0, singular + gap), v)
        for gap in (1e-2, 1e-4, 1e-6)
    ]
    assert energies == sorted(energies, reverse=True)
    assert energies[0] - energies[-1] > 4  # half of log 1e4 at least
    floor = v.precision[1] + 1 / case.slab[1]
    energies = [
        es.energy(case.problem, changed(t, "precision", 1, floor - gap), v)
        for gap in (1e-2, 1e-4, 1e-6)
    ]
    assert energies == sorted(energies, reverse=True)


# ---- where something does not exist


def improper(case):
    """Sites and marginals of which one factor has no integral, and the energy's sign there."""
    t, v = case.sites, case.marginals
    q = oracles.condition(case.X, case.y, case.noise, t.shift, t.precision)
    singular = t.precision[0] - 1.01 / q["variance"][0]
    return {
        "Q": (changed(t, "precision", 0, singular), v, -math.inf),
        "cavity": (changed(t, "precision", 0, v.precision[0] + 1.01 / case.slab[0]), v, -math.inf),
        "marginal": (t, changed(v, "precision", 0, -0.1 / case.slab[0]), math.inf),
        "flat marginal": (t, changed(v, "precision", 0, 0.0), math.inf),
    }


@pytest.mark.parametrize("what", ["Q", "cavity", "marginal", "flat marginal"])
@pytest.mark.parametrize("shape", [(4, 7), (7, 4)])
def test_what_has_no_integral_is_infinite(rng, what, shape):
    """:eq:`proper`: the certificate is never finite where a distribution does not exist."""
    case = Case(rng, *shape)
    sites, marginals, sign = improper(case)[what]
    assert es.residual(case.problem, sites, marginals) == math.inf
    assert es.residual(case.problem, sites, marginals, es.Box()) == math.inf
    assert case.true_residual(sites, marginals)[0] == math.inf
    if what != "marginal":  # there the cavity may be improper too, and infinities meet
        assert es.energy(case.problem, sites, marginals) == sign


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", ["shift", "precision"])
@pytest.mark.parametrize("role", ["sites", "marginals"])
def test_numbers_that_are_not_finite_never_certify(rng, value, part, role):
    case = Case(rng, 3, 4)
    pair = {"sites": case.sites, "marginals": case.marginals}
    pair[role] = changed(pair[role], part, 2, value)
    assert es.residual(case.problem, pair["sites"], pair["marginals"]) == math.inf


# ---- settled features


def with_settled_features(rng):
    """p = 0, p = 1, a column of zeros, and three open features."""
    inclusion = np.array([0.3, 0.0, 1.0, 0.4, 0.2, 0.6])
    case = Case(rng, 5, 6, inclusion=inclusion)
    case.X[:, 3] = 0.0
    settled = oracles.settled_sites(*case.args)
    fixed = settled["fixed"]
    shift = np.where(fixed, settled["shift"], case.sites.shift)
    # positive sites alone, so that Q stays proper without the column that was taken out
    precision = np.where(fixed, settled["precision"], np.abs(case.sites.precision) + 0.1)
    case.sites = Natural(shift, precision)
    case.marginals = Natural(case.marginals.shift, precision + 1.0)
    return case


def test_settled_features_are_found(rng):
    """:eq:`settled`: which they are, and the sites at which they stay."""
    case = with_settled_features(rng)
    problem, settled = case.problem, oracles.settled_sites(*case.args)
    np.testing.assert_array_equal(problem.kept, np.flatnonzero(~settled["removed"]))
    np.testing.assert_array_equal(problem.open, ~settled["fixed"][problem.kept])
    zeros = Natural(np.zeros(5), np.zeros(5))
    put = problem.scatter_natural(problem.with_settled(zeros))
    fixed = settled["fixed"]
    np.testing.assert_array_equal(put.shift[fixed], settled["shift"][fixed])
    np.testing.assert_allclose(put.precision[fixed], settled["precision"][fixed], rtol=1e-15)
    np.testing.assert_array_equal(put.precision[settled["removed"]], [np.inf])


def test_energy_and_residual_with_settled_features(rng):
    """:eq:`settled`: they condition Q by their sites, and count for nothing else."""
    case = with_settled_features(rng)
    problem = case.problem
    assert es.energy(problem, case.sites, case.marginals) == pytest.approx(
        case.true_energy(), rel=1e-10
    )
    true, _ = case.true_residual()
    assert es.residual(problem, case.sites, case.marginals) == pytest.approx(true, rel=1e-8)


@pytest.mark.parametrize("value", [math.inf, math.nan, -3.0])
def test_nothing_is_asked_of_a_removed_feature(rng, value):
    """:eq:`settled`, p = 0: its entries may be anything; a result has infinite precision there."""
    case = with_settled_features(rng)
    sites, marginals = (
        changed(changed(natural, "precision", 1, value), "shift", 1, value)
        for natural in (case.sites, case.marginals)
    )
    problem = case.problem
    assert es.energy(problem, sites, marginals) == es.energy(problem, case.sites, case.marginals)
    for domain in (PROPER, es.Box(1e-3)):
        assert es.residual(problem, sites, marginals, domain) == es.residual(
            problem, case.sites, case.marginals, domain
        )


@pytest.mark.parametrize("j", [2, 3], ids=["always in", "no information"])
@pytest.mark.parametrize("precision", [0.5, 40.0, -1.0])
def test_marginals_of_fixed_features_do_not_count(rng, j, precision):
    """:eq:`settled`: they take part in no residual, be their marginals what they may."""
    case = with_settled_features(rng)
    marginals = changed(changed(case.marginals, "precision", j, precision), "shift", j, 7.0)
    assert case.true_residual(marginals=marginals)[0] == case.true_residual()[0]
    assert es.residual(case.problem, case.sites, marginals) == pytest.approx(
        case.true_residual()[0], rel=1e-8
    )


def test_nothing_open_is_certified_at_once(rng):
    """:eq:`residual`: a maximum over no features is 0."""
    case = Case(rng, 4, 3, inclusion=np.ones(3))
    sites = Natural(np.zeros(3), 1 / case.slab)
    marginals = Natural(np.zeros(3), 2 / case.slab)
    assert es.residual(case.problem, sites, marginals) == 0.0
    assert es.residual(case.problem, sites, marginals, es.Box()) == 0.0


# ---- units


@pytest.mark.parametrize("domain", [PROPER, es.Box(0.05)], ids=["proper", "box"])
def test_residual_does_not_depend_on_units(rng, domain):
    """:eq:`residual`: columns times a, slab over a^2; y and noise with the slab."""
    case = Case(rng, 4, 5)
    sites, marginals = near_bounds(rng, case, 0.05)
    reference = es.residual(case.problem, sites, marginals, domain)
    for by_column in (np.full(5, 1e6), 10 ** rng.uniform(-4, 4, 5)):
        case_scaled = Case(rng, 4, 5, inclusion=case.inclusion)
        case_scaled.X, case_scaled.y = case.X * by_column, case.y
        case_scaled.noise, case_scaled.slab = case.noise, case.slab / by_column**2
        scaled = (
            Natural(a.shift * by_column, a.precision * by_column**2) for a in (sites, marginals)
        )
        assert es.residual(case_scaled.problem, *scaled, domain) == pytest.approx(
            reference, rel=1e-9
        )
