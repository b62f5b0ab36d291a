"""Time and memory of one conditioning, beside the BLAS calls it cannot do without.

A dual conditioning has to form the Gram matrix X D X' (syrk) and to whiten the columns of X with
its Cholesky factor (trsm); everything else is overhead. Times are the best of several, all in this
process and with the same number of BLAS threads; the order is shuffled between rounds. Memory is
the growth of a fresh process's peak resident size over what it was before X existed.
"""

import argparse
import os
import resource
import subprocess
import sys
import time

import numpy as np
from scipy.linalg import blas, lapack
from threadpoolctl import threadpool_limits

import epslab as es

SHAPES = ((200, 2000), (500, 20_000), (1000, 20_000))
N_NEGATIVE = 20


def make_problem(n: int, d: int) -> es.Problem:
    """Independent columns, 20 coefficients, half of the variance explained."""
    rng = np.random.default_rng(0)
    X = np.empty((n, d), order="F")
    for j in range(d):  # column by column: no second array of X's size, ever
        X[:, j] = rng.standard_normal(n)
    y = X[:, :N_NEGATIVE] @ rng.standard_normal(N_NEGATIVE)
    noise_variance = float(y.var())
    y = y + np.sqrt(noise_variance) * rng.standard_normal(n)
    prior = es.SpikeSlabPrior(N_NEGATIVE / d, 1.0)
    return es.Problem(X, y, noise_variance=noise_variance, prior=prior)


def make_sites(problem: es.Problem, n_negative: int) -> es.Natural:
    """Prior sites, some of them moved below zero as far as Q stays proper."""
    sites = problem.default_sites()
    precision = np.array(sites.precision)
    precision[:n_negative] = -0.05
    return es.Natural(np.array(sites.shift), precision)


def blas_seconds(problem: es.Problem, sites: es.Natural) -> float:
    """One syrk and one trsm on matrices that are ready for them."""
    W = problem.likelihood.columns.X * np.sqrt(1.0 / sites.precision)
    W = np.asfortranarray(W)
    began = time.perf_counter()
    C = blas.dsyrk(1.0, W, lower=1)
    seconds = time.perf_counter() - began
    C[np.diag_indices_from(C)] += problem.noise_variance
    L = lapack.dpotrf(C, lower=1)[0]
    began = time.perf_counter()
    blas.dtrsm(1.0, L, W, lower=1, overwrite_b=1)
    return seconds + time.perf_counter() - began


def conditioning_seconds(problem: es.Problem, sites: es.Natural) -> float:
    """One conditioning."""
    began = time.perf_counter()
    problem.condition(sites)
    return time.perf_counter() - began


def times(n: int, d: int, rounds: int) -> str:
    """One row of the table."""
    problem = make_problem(n, d)
    plain, negative = make_sites(problem, 0), make_sites(problem, N_NEGATIVE)
    jobs = {
        "blas": lambda: blas_seconds(problem, plain),
        "plain": lambda: conditioning_seconds(problem, plain),
        "negative": lambda: conditioning_seconds(problem, negative),
    }
    best = dict.fromkeys(jobs, np.inf)
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        for name in rng.permutation(list(jobs)):
            best[name] = min(best[name], jobs[name]())
    return (
        f"{n:6d} {d:7d} {1e3 * best['blas']:11.1f} {1e3 * best['plain']:11.1f} "
        f"{best['plain'] / best['blas']:8.2f} {best['negative'] / best['plain']:12.2f}"
    )


def peak_growth(n: int, d: int) -> float:
    """Peak resident memory of a conditioning in units of X, in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", str(n), str(d)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_own_growth(n: int, d: int) -> None:
    """What `peak_growth` runs."""
    # Libraries load, and BLAS makes its own buffers for n rows, before the count begins.
    problem = make_problem(n, n + 50)
    problem.condition(make_sites(problem, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    problem = make_problem(n, d)
    problem.condition(make_sites(problem, 0))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    print(unit * (after - before) / (8 * n * d))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="BLAS threads")
    parser.add_argument("--rounds", type=int, default=5, help="timings of which the best counts")
    parser.add_argument("--memory-of", type=int, nargs=2, metavar=("N", "D"))
    options = parser.parse_args()
    with threadpool_limits(options.threads):
        if options.memory_of:
            print_own_growth(*options.memory_of)
            return
        print(f"One conditioning, {options.threads} BLAS threads, best of {options.rounds}")
        print(
            f"{'n':>6} {'d':>7} {'syrk+trsm':>11} {'condition':>11} {'ratio':>8} "
            f"{N_NEGATIVE:>5}neg/plain {'peak/X':>8}"
        )
        print(f"{'':>14} {'ms':>11} {'ms':>11}")
        # Memory first, while this process is small: a child inherits its parent's peak.
        peaks = [peak_growth(n, d) for n, d in SHAPES]
        for (n, d), peak in zip(SHAPES, peaks, strict=True):
            print(f"{times(n, d, options.rounds)} {peak:8.2f}", flush=True)


if __name__ == "__main__":
    main()
