"""From RecordIO to TFRecord and back, with the encoded images as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from adapters.errors import ContentError, RecordError
from adapters.records import CODECS, RecordFiles, RecordWriter
from adapters.records.files import Paths
from adapters.records.formats import listed
from adapters.sources import Images, guessed, identity


def convert(
    paths: Paths,
    out: str | os.PathLike[str],
    *,
    format: str,
    progress: Callable[[int, int], Any] | None = None,
) -> int:
    """Write the records of one or several files into one file of another format.

    Images get the header that the format has, with label and id, and aren't encoded again; any
    other record is copied. Features of a tf.train.Example besides these have no place in RecordIO,
    and are left out.

    Args:
        paths: The files, of either format.
        out: The new file; an index comes beside it.
        format: ``"recordio"`` or ``"tfrecord"``.
        progress: Called with the records that are done and all there are.

    Returns:
        How many records.

    Raises:
        OSError: Files can't be read or written.
        RecordError: A damaged record, one that isn't an image where the first one is, or is one
            where that isn't, or a label that the format can't hold.
        ValueError: An unknown format.
    """
    if format not in CODECS:
        raise ValueError(f"format must be {listed()}, got {format!r}")
    files = RecordFiles(paths)
    images = Images(None, {})
    holds_images = len(files) > 0 and guessed(files.read(0), files.locate(0)[0].format) == "image"
    with RecordWriter(out, format=format) as writer:
        for number in range(len(files)):
            shard, own = files.locate(number)
            payload = shard.read(own)
            try:
                if shard.format == format:
                    writer.write(bytes(payload))
                elif not holds_images:
                    if guessed(payload, shard.format) == "image":
                        raise ContentError("no image, as in the first record", "an image")
                    writer.write(bytes(payload))
                else:
                    image, label = images.split(payload, shard.format)
                    number_in_list = identity(payload, shard.format)
                    packed = CODECS[format].envelope.pack(bytes(image), label, number_in_list)
                    writer.write(packed)
            except ContentError as error:
                offset = int(shard.offsets[own])
                raise RecordError(
                    shard.storage.name, own, offset, error.expected, error.found
                ) from error
            if progress is not None:
                progress(number + 1, len(files))
    return len(files)
