"""Selection and combination of sources by number: lazy, and for every kind of source."""

from __future__ import annotations

from adapters.selecting.mix import mix
from adapters.selecting.packed import packed
from adapters.selecting.split import split
from adapters.sources.concatenation import concatenate

__all__ = ["concatenate", "mix", "packed", "split"]
