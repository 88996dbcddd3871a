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
    on_damage: Callable[[RecordError], Any] | None = None,
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
        on_damage: Called for each damaged record, which is left out; None raises.

    Returns:
        How many records were written.

    Raises:
        OSError: Files can't be read or written.
        RecordError: A damaged record, or nothing but these; one that isn't an image where the first
            one is, or is one where that isn't, or a label that the format can't hold.
        ValueError: An unknown format.
    """
    if format not in CODECS:
        raise ValueError(f"format must be {listed()}, got {format!r}")
    files, count = RecordFiles(paths), 0
    images = Images(None, {})
    holds_images: bool | None = None
    damage: RecordError | None = None
    with RecordWriter(out, format=format) as writer:
        for number in range(len(files)):
            shard, own = files.locate(number)
            try:
                payload = shard.read(own)
            except RecordError as error:
                if on_damage is None:
                    raise
                damage = error
                on_damage(error)
                continue
            if holds_images is None:
                holds_images = guessed(payload, shard.format) == "image"
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
            count += 1
            if progress is not None:
                progress(number + 1, len(files))
        if damage is not None and not count:
            raise damage
    return count
