"""A trial of ``adapters pack --resize 256`` with a few images of a plan.

The images are packed into a temporary record file, which is deleted with the source that reads it.
The plan's own ``ImageDecoder`` decodes them, with the same workers.
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
# As in ``adapters pack``.
_QUALITY, _FORMAT = 95, "tfrecord"
# Number of images to encode: 16 of 12 megapixels take two seconds.
_PICTURES = 16


def repacked(plan: SourcePlan, batches: Sequence[Any]) -> tuple[Source, Sequence[Any]] | None:
    """Pack some of the images of these batches.

    Args:
        plan: A plan; only sources that decode images are packed.
        batches: The sample numbers of each batch.

    Returns:
        A source of the packed images and batches of its samples; None if packing makes no image
        smaller, or an image can't be packed.
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
