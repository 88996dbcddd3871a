"""Collate functions of ``SafeSequence`` and ``gluon_loader``: make a batch from samples."""

from __future__ import annotations

from adapters.collating.padding import Pad, Ragged, pad, ragged

__all__ = ["Pad", "Ragged", "pad", "ragged"]
