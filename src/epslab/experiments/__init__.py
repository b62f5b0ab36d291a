"""Simulated problems with a known truth, as the benchmarks and the demonstration use them."""

from epslab.experiments._problems import Simulated, compressive_sensing, paper_sets

__all__ = ["Simulated", "compressive_sensing", "paper_sets"]
