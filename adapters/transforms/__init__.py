"""Common transforms of whole batches, for ``batch_transform=`` of both front ends.

Each is a pure function of a batch and its generator, vectorised in NumPy (and in the native kernel,
if it is built), the same for every kind of workers. A new one is a ``BatchTransform`` in its own
file and a line here.
"""

from __future__ import annotations

from adapters.transforms.chain import Chain
from adapters.transforms.colour import ColorJitter
from adapters.transforms.cutmix import CutMix
from adapters.transforms.erasing import RandomErasing
from adapters.transforms.labels import OneHot
from adapters.transforms.mixup import MixUp
from adapters.transforms.transform import BatchTransform

__all__ = [
    "BatchTransform",
    "Chain",
    "ColorJitter",
    "CutMix",
    "MixUp",
    "OneHot",
    "RandomErasing",
]
