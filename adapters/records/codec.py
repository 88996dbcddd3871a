"""What a format of record files is: how records stand in a file, and in its index.

A new format is a ``Codec`` in a file of its own, and a line in ``formats.CODECS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.records.storage import Storage


class Scan(Protocol):
    """Finds all records of a file."""

    def __call__(
        self, storage: Storage, verify: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each begins, and its size in the file; int64 ``(records,)`` both."""
        ...


class Read(Protocol):
    """Reads one record."""

    def __call__(
        self,
        storage: Storage,
        offset: int,
        number: int,
        verify: bool = True,
        size: int | None = None,
    ) -> memoryview:
        """The payload of the record that begins at ``offset``; ``size`` is what an index says."""
        ...


@dataclass(frozen=True)
class Codec:
    """One format.

    Args:
        name: As users give it.
        title: As people call it.
        encode: Makes of a payload the record as it stands in the file.
        scan: Finds the records.
        read: Reads one.
        end: Where the record that begins at an offset ends.
        begins: Whether a file begins with these bytes, of which there may be fewer than 16.
        header_bytes: Before the payload.
        crc_bytes: Behind it, and over it alone.
        has_sizes: Whether a line of an index is ``offset size``, as DALI has it; else
            ``key<TAB>offset``, as MXNet has it.

    Functions of a module, so that it can be sent to a process.
    """

    name: str
    title: str
    encode: Callable[[bytes], bytes]
    scan: Scan
    read: Read
    end: Callable[[Storage, int], int]
    begins: Callable[[bytes], bool]
    header_bytes: int
    crc_bytes: int
    has_sizes: bool
