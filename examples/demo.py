"""Find twenty spikes among 512 features from 100 rows, and write what was found.

What ``make demo`` runs. Shows progress in a terminal, the certificate, the chosen features with
their probabilities, and writes demo-result.csv.
"""

import csv
import os
import tempfile
from pathlib import Path

import numpy as np

import epslab as es
from epslab.experiments import Simulated, compressive_sensing

OUTPUT = Path("demo-result.csv")


def print_trace(result: es.FitResult) -> None:
    """How the certificate came down."""
    print("  iteration       energy     residual  conditionings")
    for record in result.trace:
        print(
            f"  {record.iteration:9d} {record.energy:12.4f} {record.residual:12.2e} "
            f"{record.n_conditionings:14d}"
        )


def print_features(result: es.FitResult, data: Simulated) -> None:
    """The features that matter, most probable first, beside the truth."""
    posterior = result.posterior
    chosen = np.flatnonzero(posterior.inclusion_probability > 0.5)
    order = chosen[np.argsort(-np.abs(posterior.mean[chosen]))]
    print("  feature  probability  coefficient       sd   truth")
    for j in order:
        print(
            f"  {j:7d} {posterior.inclusion_probability[j]:12.4f} {posterior.mean[j]:12.4f} "
            f"{np.sqrt(posterior.variance[j]):8.4f} {data.coefficients[j]:7.1f}"
        )
    true = set(np.flatnonzero(data.coefficients))
    found = set(order.tolist())
    print(f"\n  {len(true & found)} of {len(true)} true features found, {len(found - true)} false")


def write_coefficients(result: es.FitResult, path: Path) -> None:
    """Write every feature as a row; beside first, then rename, so that no half file is left."""
    posterior = result.posterior
    handle, name = tempfile.mkstemp(dir=path.resolve().parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["feature", "inclusion_probability", "mean", "standard_deviation"])
            for j in range(posterior.mean.shape[0]):
                probability, mean = posterior.inclusion_probability[j], posterior.mean[j]
                sd = np.sqrt(posterior.variance[j])
                writer.writerow([j, f"{probability:.6g}", f"{mean:.6g}", f"{sd:.6g}"])
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def main() -> None:
    """Fit, show, write."""
    data = compressive_sensing(seed=0)
    problem = data.problem()
    n, d = data.X.shape
    print(f"Simulated: {n} rows, {d} features, 20 of them matter, noise sd .005\n")
    result = es.solve(problem, es.ParallelEP(step_size=0.9), observers=es.ProgressBar(every=0.0))
    print_trace(result)
    print(f"\n  {result.status}")
    print(f"  residual {result.residual:.1e} (tol {result.solver.tol:.0e}), ", end="")
    print(f"log evidence {result.log_evidence:.2f}, {result.seconds:.3f} s\n")
    print_features(result, data)
    error = data.test_error(result.posterior.predict(data.X_test).mean)
    print(f"  test mean squared error {error:.2e} (noise variance {data.noise_variance:.2e})")
    write_coefficients(result, OUTPUT)
    print(f"\nWrote {OUTPUT}: probability, mean and standard deviation of every feature.")


if __name__ == "__main__":
    main()
