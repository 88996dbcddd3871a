"""What ``adapters pack --resize 256`` would bring: a few pictures, packed so, in the same plan.

They are written into a record file of their own, which is deleted with the source that reads it,
and decoded by the plan's own ``ImageDecoder`` behind the same workers.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapters.batch.sourceplan import SourcePlan
from adapters.errors import AdapterError
from adapters.images import ImageDecoder
from adapters.images.pixels import size_of
from adapters.records import CODECS, RecordWriter
from adapters.sources import Source, open_records

PIXELS = 256
# As pack has it.
_QUALITY, _FORMAT = 95, "tfrecord"
# Pictures that are encoded: of 12 megapixels, that takes two seconds.
_PICTURES = 16


def repacked(plan: SourcePlan, batches: Sequence[Any]) -> tuple[Source, Sequence[Any]] | None:
    """Some of the pictures of these batches, packed, as a source, and batches of its samples.

    Args:
        plan: Whose source decodes images.
        batches: Numbers of samples.

    Returns:
        None where packing makes none of them smaller, or one of them can't be packed.
    """
    source: Any = plan.source
    decoder = getattr(source, "decoder", None)
    if decoder is None:
        return None
    numbers = list(dict.fromkeys(np.concatenate(batches).tolist()))[:_PICTURES]
    folder = tempfile.mkdtemp(prefix="loader-adapters-")
    packed: Source | None = None
    try:
        pictures = [source.picture(number) for number in numbers]
        if any(min(size_of(encoded)) > PIXELS for encoded, _ in pictures):
            packed = _written(Path(folder, "packed.tfrecord"), pictures, decoder)
    except (AdapterError, ImportError, NotImplementedError, OSError, ValueError):
        packed = None
    if packed is None:
        shutil.rmtree(folder)
        return None
    weakref.finalize(packed, shutil.rmtree, folder, ignore_errors=True)
    return packed, [np.arange(len(batch)) % len(numbers) for batch in batches]


def _written(path: Path, pictures: list[tuple[bytes, Any]], decoder: ImageDecoder) -> Source:
    encode = importlib.import_module("simplejpeg").encode_jpeg
    codec, smaller = CODECS[_FORMAT], ImageDecoder(resize_short=PIXELS)
    with RecordWriter(path, format=_FORMAT) as writer:
        for number, (encoded, label) in enumerate(pictures):
            if min(size_of(encoded)) > PIXELS:
                array = np.ascontiguousarray(smaller.decode(encoded))
                encoded = encode(array, _QUALITY, "RGB", "420")
            writer.write(codec.envelope.pack(encoded, label, number))
    return open_records(path, decode=decoder)
