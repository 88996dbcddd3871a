"""Description of a record file format: its framing, its index and its payloads.

To add a format, write a ``Codec`` in a module of its own and add it to ``formats.CODECS``.
Everything that differs between formats is defined here, and what differs in their payloads in
``envelope``; other modules don't compare names of formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adapters.errors import RecordError
from adapters.records.envelope import IN_EXAMPLE, Envelope
from adapters.records.storage import Storage


@dataclass(frozen=True)
class Codec:
    """One format. All callables are module-level functions, so that a codec can be pickled.

    Args:
        name: Name in the API.
        title: Name in messages.
        encode: Returns the framed record for a payload.
        read: ``read(storage, offset, number, verify=True, size=None)`` returns the payload of the
            record at ``offset``; ``size`` comes from the index, if any.
        end: ``end(storage, offset, verify=True)`` returns the end of the record at an offset.
        begins: Returns True if a file may begin with these bytes, of which there may be fewer than
            16.
        header_bytes: Number of bytes before the payload. To find a record's end takes at most 16
            bytes, which ``peeked`` requests of an object.
        has_sizes: True if an index line is ``offset size`` (DALI), False if it is
            ``key<TAB>offset`` (MXNet).
        suffixes: File name suffixes, the default first. An index file's suffix replaces one of
            these.
        envelope: Layout of image and label in a payload.
        kernel_kind: The native kernel's number for this format if it parses records as ``read`` and
            ``envelope`` do; else 0.
        compressible: True if whole files may be compressed with GZIP or ZLIB.
        following: ``following(storage, last, broken)`` returns where damage begins, and the offset
            of the next intact record, or the file's size if there is none. ``broken`` is where a
            record should begin but no intact one does; ``last`` is the offset of the record that
            ends there according to its header, or None. Damage begins at one of them: at ``last``
            if its length is wrong. Without the function, a damaged file is refused as a whole.
    """

    name: str
    title: str
    encode: Callable[[bytes], bytes]
    read: Callable[..., memoryview]
    end: Callable[..., int]
    begins: Callable[[bytes], bool]
    header_bytes: int
    has_sizes: bool
    suffixes: tuple[str, ...] = ()
    envelope: Envelope = IN_EXAMPLE
    kernel_kind: int = 0
    compressible: bool = False
    following: Callable[[Storage, int | None, int], tuple[int, int]] | None = None

    @property
    def suffix(self) -> str:
        """Suffix of new files."""
        return self.suffixes[0] if self.suffixes else f".{self.name}"


def cut_short(file: str, number: int, offset: int, expected: int, found: int) -> RecordError:
    """Build the error for a record that continues behind the file's end."""
    return RecordError(file, number, offset, f"{expected} bytes", f"{found} before the file's end")


def unlike_index(file: str, number: int, offset: int, indexed: int, found: int) -> RecordError:
    """Build the error for a record that isn't as long as its index says."""
    remedy = "adapters verify FILE --write-index makes another index"
    return RecordError(
        file, number, offset, f"{indexed} bytes, as the index has it", f"{found} ({remedy})"
    )
