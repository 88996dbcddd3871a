"""What a format of record files is: how records stand in a file, in its index, and what in them.

A new format is a ``Codec`` in a file of its own, and a line in ``formats.CODECS``. All that differs
between formats is said here: no other file asks which of them it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.records.envelope import IN_EXAMPLE, Envelope
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


class Following(Protocol):
    """Finds the next whole record behind damage."""

    def __call__(self, storage: Storage, last: int | None, broken: int) -> int:
        """Where it begins; the file's size if there is none.

        Args:
            storage: The file.
            last: Where the record begins that ends at ``broken``, by its header; None if there is
                none. It may be the damaged one: what is returned then lies before ``broken``.
            broken: Where a record should begin, and none does that is whole.
        """
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
        suffixes: What the names of such files end in, the usual ending first; an index takes the
            place of one of these.
        envelope: How an image and its label stand in a record.
        crcs_fit: Which of many records of one size, as they stand in the file, have the right CRC
            over their payload; None where there is none, or where each is to be read by itself.
        kernel_kind: What the image kernel calls such records, if it finds image and label in them
            as ``read`` and ``envelope`` do; else 0.
        compressible: Whether a file may as well be compressed as a whole, with GZIP or ZLIB.
        following: Where the next whole record begins in a damaged file; None if a file that can't
            be scanned is refused as a whole.

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
    suffixes: tuple[str, ...] = ()
    envelope: Envelope = IN_EXAMPLE
    crcs_fit: Callable[[NDArray[np.uint8]], NDArray[np.bool_]] | None = None
    kernel_kind: int = 0
    compressible: bool = False
    following: Following | None = None

    @property
    def suffix(self) -> str:
        """What the names of new files end in."""
        return self.suffixes[0] if self.suffixes else f".{self.name}"
