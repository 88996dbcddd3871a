"""Record files: packing of images, conversion and verification."""

from __future__ import annotations

from adapters.packing.convert import convert
from adapters.packing.encoding import ENCODINGS
from adapters.packing.manifest import Manifest
from adapters.packing.materialize import materialize
from adapters.packing.pack import pack
from adapters.packing.verify import verify

__all__ = [
    "ENCODINGS",
    "Manifest",
    "convert",
    "materialize",
    "pack",
    "verify",
]
