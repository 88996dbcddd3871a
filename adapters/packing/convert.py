"""Conversion between RecordIO and TFRecord, with the encoded images unchanged."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from adapters.errors import ContentError, RecordError
from adapters.records import CODECS, RecordFiles, RecordWriter
from adapters.records.envelope import has_fractions
from adapters.records.files import Paths
from adapters.records.formats import listed
from adapters.sources.decoders import Images, guessed
from adapters.sources.records import RecordSource


def convert(
    paths: Paths,
    out: str | os.PathLike[str],
    *,
    format: str,
    progress: Callable[[int, int], Any] | None = None,
    on_damage: Callable[[RecordError], Any] | None = None,
) -> int:
    """Write the records of one or several files into one file of another format.

    Images get the new format's header, with label and id, and aren't encoded again; other records
    are copied. RecordIO has no place for other features of a tf.train.Example: they are dropped.

    Args:
        paths: Files of either format.
        out: New file; an index is written next to it.
        format: ``"recordio"`` or ``"tfrecord"``.
        progress: Called with the number of finished records and the total.
        on_damage: Called for each damaged record, which is skipped; None raises.

    Returns:
        Number of records written.

    Raises:
        OSError: Files can't be read or written.
        RecordError: A record is damaged and ``on_damage`` is None, or all are damaged; images and
            other records are mixed; or the format can't hold a label.
        ValueError: The format is unknown.
    """
    if format not in CODECS:
        raise ValueError(f"format must be {listed()}, got {format!r}")
    files, count = RecordFiles(paths), 0
    images = Images(None, {})
    floats = False
    with contextlib.suppress(ContentError, RecordError):  # Reported when the record is read again.
        floats = has_fractions(RecordSource(files, images).labels_of(np.arange(len(files))))
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
                content = bytes(payload)
                if shard.format != format and holds_images:
                    image, label = images.split(payload, shard.format)
                    identity = shard.codec.envelope.identity(payload)
                    content = CODECS[format].envelope.pack(bytes(image), label, identity, floats)
                elif shard.format != format and guessed(payload, shard.format) == "image":
                    raise ContentError("no image, as in the first record", "an image")
                writer.write(content)
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
