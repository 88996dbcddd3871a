"""The formats of record files that there are; the first one that a file begins like is its own."""

from __future__ import annotations

import os

from adapters.records import recordio, tfrecord
from adapters.records.codec import Codec

# The length of a TFRecord may begin like a RecordIO file: three gigabytes and more.
CODECS: dict[str, Codec] = {codec.name: codec for codec in (tfrecord.CODEC, recordio.CODEC)}


def listed() -> str:
    """Their names, for messages."""
    *others, last = (f'"{name}"' for name in sorted(CODECS))
    return f"{', '.join(others)} or {last}"


def codec_of(path: str | os.PathLike[str]) -> Codec | None:
    """The format whose files are named like this one; None where the name doesn't say."""
    suffix = os.path.splitext(path)[1].lower()
    return next((codec for codec in CODECS.values() if suffix in codec.suffixes), None)
