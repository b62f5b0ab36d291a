"""The double loop on the paper's 100 sets, with the paper's box and without, and the exact answer.

Printed for each: how many sets are certified, the largest relative rise of the energy between
outer steps, how far the energy stays above its lower bound, and the mean squared error on the
test rows.
"""

import argparse
import itertools
import math
import statistics
import time

import numpy as np
from threadpoolctl import threadpool_limits

import epslab as es
from epslab.experiments import Simulated, paper_sets

N_EXACT = 10


def bound(data: Simulated) -> float:
    """Lower bound of the energy."""
    n, d = data.X.shape
    return 0.5 * n * math.log(2 * math.pi * data.noise_variance) - 0.5 * d * math.log(2)


def largest_rise(energies: list[float]) -> float:
    """Largest relative change upwards between two iterations; 0 where there is none."""
    changes = [(b - a) / max(1.0, abs(a)) for a, b in itertools.pairwise(energies)]
    return max([0.0, *changes])


def describe(name: str, solver: es.DoubleLoopEP, sets: list[Simulated]) -> None:
    """Run one solver over all sets and print its line."""
    began = time.perf_counter()
    results = [es.solve(data.problem(), solver) for data in sets]
    seconds = time.perf_counter() - began
    errors = [
        data.test_error(result.posterior.predict(data.X_test).mean)
        for data, result in zip(sets, results, strict=True)
    ]
    margin = min(
        min(result.trace.energy) - bound(data) for data, result in zip(sets, results, strict=True)
    )
    print(
        f"{name:22} certified {sum(r.converged for r in results)}/{len(sets)}  "
        f"largest residual {max(r.residual for r in results):.1e}  "
        f"largest rise {max(largest_rise(r.trace.energy) for r in results):.1e}  "
        f"above bound {margin:.1f}  clipped in {sum(r.n_active > 0 for r in results)} sets  "
        f"outer steps {statistics.median(r.n_iter for r in results):g}  "
        f"MSE {np.mean(errors):.4f} (first {N_EXACT}: {np.mean(errors[:N_EXACT]):.4f})  "
        f"{seconds:.1f} s"
    )


def main() -> None:
    """Print a line a solver."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=100)
    options = parser.parse_args()
    sets = list(paper_sets(options.sets))
    print(f"{len(sets)} sets of the paper's Figure 1, tol 1e-3, 1 BLAS thread")
    with threadpool_limits(1):
        describe("DoubleLoopEP, Box", es.DoubleLoopEP(tol=1e-3, domain=es.Box()), sets)
        describe("DoubleLoopEP, Proper", es.DoubleLoopEP(tol=1e-3), sets)
        errors, seconds = [], []
        for data in sets[:N_EXACT]:
            result = es.solve(data.problem(), "exact-enumeration")
            errors.append(data.test_error(result.posterior.predict(data.X_test).mean))
            seconds.append(result.seconds)
    print(
        f"{'ExactEnumeration':22} first {len(errors)} sets: MSE {np.mean(errors):.4f}  "
        f"{statistics.median(seconds):.1f} s each (2^25 supports)"
    )


if __name__ == "__main__":
    main()
