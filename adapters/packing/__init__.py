"""From images to record files (pack), from one format to the other (convert), checked (verify)."""

from __future__ import annotations

from adapters.packing.convert import convert
from adapters.packing.manifest import Manifest
from adapters.packing.pack import pack
from adapters.packing.verify import verify

__all__ = ["Manifest", "convert", "pack", "verify"]
