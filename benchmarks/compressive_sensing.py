"""Regular EP on compressive sensing: how often it is certified, and at what price."""

import argparse
import os
import statistics

import numpy as np
from threadpoolctl import threadpool_limits

import epslab as es
from epslab.experiments import compressive_sensing


def main() -> None:
    """Print one line a seed and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="BLAS threads")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    solver = es.ParallelEP(step_size=0.9, tol=1e-4)
    print(f"n=100, d=512, 20 spikes, {solver}, {options.threads} BLAS threads")
    print(f"{'seed':>5} {'status':>10} {'residual':>9} {'iterations':>11} {'ms':>8} {'MSE':>9}")
    certified = []
    with threadpool_limits(options.threads):
        es.solve(compressive_sensing(0).problem(), solver)  # warm up
        for seed in range(options.seeds):
            data = compressive_sensing(seed)
            result = es.solve(data.problem(), solver)
            error = data.test_error(result.posterior.predict(data.X_test).mean)
            if result.converged:
                certified.append((result, error))
            print(
                f"{seed:5d} {result.status.name:>10} {result.residual:9.1e} {result.n_iter:11d} "
                f"{1e3 * result.seconds:8.1f} {error:9.2e}"
            )
    iterations = statistics.median(result.n_iter for result, _ in certified)
    milliseconds = 1e3 * statistics.median(result.seconds for result, _ in certified)
    error = np.mean([error for _, error in certified])
    print(
        f"certified {len(certified)} of {options.seeds}; of those, median {iterations:g} "
        f"iterations, {milliseconds:.1f} ms; mean test MSE {error:.2e}"
    )


if __name__ == "__main__":
    main()
