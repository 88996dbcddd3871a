"""Collates: what makes a batch of a list of samples, in ``SafeSequence`` and ``gluon_loader``."""

from __future__ import annotations

from adapters.collating.padding import Pad, pad
from adapters.collating.raggedness import Ragged, ragged

__all__ = ["Pad", "Ragged", "pad", "ragged"]
