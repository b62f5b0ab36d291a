"""Priors: each file is one prior, whose only job is the tilted distribution."""

from epslab.priors._base import BoundPrior, PairCovariance
from epslab.priors._spike_slab import BoundSpikeSlab, SpikeSlabPrior

__all__ = ["BoundPrior", "BoundSpikeSlab", "PairCovariance", "SpikeSlabPrior"]
