"""Parts of sources, and sources put together: by number, lazily, whatever kind they are of."""

from __future__ import annotations

from adapters.selecting.concatenate import concatenate
from adapters.selecting.mix import mix
from adapters.selecting.packed import packed
from adapters.selecting.split import split

__all__ = ["concatenate", "mix", "packed", "split"]
