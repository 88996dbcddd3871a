"""Table of the record file formats; a file has the first one whose start it matches."""

from __future__ import annotations

import os

from adapters.records import recordio, tfrecord
from adapters.records.codec import Codec

CODECS: dict[str, Codec] = {codec.name: codec for codec in (recordio.CODEC, tfrecord.CODEC)}


def listed() -> str:
    """Names of the formats, for messages."""
    *others, last = (f'"{name}"' for name in sorted(CODECS))
    return f"{', '.join(others)} or {last}"


def codec_of(path: str | os.PathLike[str]) -> Codec | None:
    """Return the format that the file name's suffix indicates; None if it indicates none."""
    suffix = os.path.splitext(path)[1].lower()
    return next((codec for codec in CODECS.values() if suffix in codec.suffixes), None)
