"""One feature, where EP is exact: every solver beside the closed form, and the paper's box."""

import math

import epslab as es

NOISE_VARIANCE, INCLUSION = 1e-4, 0.2


def closed_form(y: float) -> tuple[float, float, float]:
    """Inclusion probability, mean and log evidence of ``y = w + noise`` with slab variance 1."""

    def log_density(variance: float) -> float:
        return -0.5 * (math.log(2 * math.pi * variance) + y * y / variance)

    log_in = math.log(INCLUSION) + log_density(1.0 + NOISE_VARIANCE)
    log_out = math.log(1.0 - INCLUSION) + log_density(NOISE_VARIANCE)
    inclusion = 1.0 / (1.0 + math.exp(log_out - log_in))
    top = max(log_in, log_out)
    evidence = top + math.log(math.exp(log_in - top) + math.exp(log_out - top))
    return inclusion, inclusion * y / (1.0 + NOISE_VARIANCE), evidence


def main() -> None:
    """Print a block a value of y."""
    solvers = [
        ("ParallelEP", es.ParallelEP(tol=1e-9)),
        ("SequentialEP", es.SequentialEP(tol=1e-9)),
        # Its last steps shrink by a twentieth each, so the answer lags the residual.
        ("DoubleLoopEP", es.DoubleLoopEP(tol=1e-11, max_iter=5000)),
        ("ExactEnumeration", es.ExactEnumeration()),
        ("DoubleLoopEP, Box", es.DoubleLoopEP(tol=1e-9, domain=es.Box())),
    ]
    print("x=1, noise variance 1e-4, inclusion .2, slab variance 1; errors against the closed form")
    print(
        f"{'y':>6} {'solver':18} {'inclusion':>10} {'mean':>10} {'evidence':>10} "
        f"{'d incl.':>8} {'d mean':>8} {'d evid.':>8} {'n_active':>8}"
    )
    for y in (0.02, 0.025, 0.03, 0.05, 0.1):
        inclusion, mean, evidence = closed_form(y)
        print(f"{y:6.3f} {'closed form':18} {inclusion:10.7f} {mean:10.7f} {evidence:10.6f}")
        prior = es.SpikeSlabPrior(INCLUSION, 1.0)
        problem = es.Problem([[1.0]], [y], noise_variance=NOISE_VARIANCE, prior=prior)
        for name, solver in solvers:
            result = es.solve(problem, solver)
            got = float(result.posterior.inclusion_probability[0])
            got_mean = float(result.posterior.mean[0])
            print(
                f"{y:6.3f} {name:18} {got:10.7f} {got_mean:10.7f} {-result.energy:10.6f} "
                f"{abs(got - inclusion):8.0e} {abs(got_mean - mean):8.0e} "
                f"{abs(-result.energy - evidence):8.0e} {result.n_active:8d}"
            )


if __name__ == "__main__":
    main()
