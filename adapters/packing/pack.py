"""``pack``: images into record files, in parallel, resumable, the same bytes each time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from adapters.arguments import check_integer
from adapters.packing.encoding import ENCODINGS, ImageEncoder
from adapters.packing.inputs import inputs_of, labels_in, shuffled
from adapters.packing.manifest import Manifest
from adapters.packing.run import OnError, Run
from adapters.packing.tasks import check_executor
from adapters.packing.upload import packed_to
from adapters.records import CODECS
from adapters.records.envelope import has_fractions
from adapters.records.formats import listed
from adapters.remote.urls import is_url, local_path


def pack(
    source: Any,
    out: str | os.PathLike[str],
    *,
    format: str,
    shard_bytes: int = 128 * 2**20,
    resize: int | None = None,
    quality: int | None = None,
    encoding: str = "jpeg",
    workers: int | Literal["auto"] = "auto",
    on_error: OnError = "raise",
    root: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
    seed: int | Literal["auto"] | None = "auto",
    executor: Any = None,
) -> Manifest:
    """Pack images into record files: a few large files to read instead of many small ones.

    The same input gives the same bytes, whatever the number of workers. Files get their names when
    all are finished, the manifest last; a run killed between the names of two files may leave new
    files beside those of an earlier run until it is started again. An interrupted run resumes if it
    is started again with the same arguments; with a source of samples, whose changes can't be
    detected, it starts over.

    Args:
        source: A folder, a CSV file or a URL, as for ``open_images``; an ``.lst`` file of MXNet's
            im2rec; a result of ``open_images``, whose files are kept as they are if it has no
            ``decode``; arrays ``(images, labels)``; or a source of samples (image, label), whose
            images are arrays or encoded.
        out: ``"train"`` gives ``train-00000-of-00003.tfrecord`` and so on, each with an index, and
            the manifest ``train.json``, or ``train.tfrecord.json`` if other files have that name.
            ``"train.rec"`` names a single file, if one is enough. For a URL,
            ``"s3://bucket/train"``, files are packed in a temporary folder, so an interrupted run
            can't resume.
        format: ``"recordio"``: the image after MXNet's IRHeader; or ``"tfrecord"``: in a
            tf.train.Example, as ``image/encoded``, ``image/class/label`` and ``image/id``.
        shard_bytes: Maximum size of a file, unless one record is larger.
        resize: Pixels of the shorter side, bilinear, as ``ImageDecoder(resize_short=...)``. Images
            that are encoded again, for this or another reason, are stored upright as EXIF says.
        quality: JPEG quality, 1 to 100. None keeps JPEGs that aren't resized as they are, and uses
            95 for others.
        encoding: ``"jpeg"``, which holds 8 bits of grey or RGB; or ``"raw"``, arrays in NPY's
            format, which are larger, need no decoding and hold any bits and channels.
        workers: Number of threads; ``"auto"`` means one for each CPU that this process may use.
            With an ``executor``, number of concurrent tasks; ``"auto"`` asks it.
        on_error: Action for a file that is no image, or is damaged: ``"raise"``, or ``"skip"``,
            which lists it in the manifest.
        root: Folder of the paths in a list; by default the list's own.
        progress: Called with the number of finished inputs and the total.
        seed: Seed of the order in which samples are written. ``"auto"`` shuffles inputs sorted by
            class, as folders are, with seed 0, and keeps any other order; a number always shuffles,
            None never. The manifest records the seed. Ids keep the input's order.
        executor: Reads and encodes instead of threads: a ``concurrent.futures.Executor``, or the
            ``Client`` of a Dask cluster, whose workers must find the files under the same names.
            Samples of arrays and sources are read here and sent there. Only this process writes
            files, so a worker that dies or repeats a task doesn't change them. It stays open.

    Returns:
        The manifest: counts, classes, files with checksums, and skipped inputs with reasons.

    Raises:
        OSError: Files can't be read or written, other files have the manifest's names, or another
            run packs into the same files.
        RecordError: With ``on_error="raise"``: an input is no image, or is damaged, or the format
            can't hold its label.
        TypeError: The source has no random access, or an argument has the wrong type.
        ValueError: An argument is out of range, or there is nothing to pack.
        WorkerError: Workers of a Dask cluster died over the same inputs again and again, or its
            scheduler ended.

    Example:
        >>> import numpy as np, os, tempfile
        >>> from adapters import open_records, pack
        >>> images = np.zeros((5, 28, 28), "uint8")
        >>> path = os.path.join(tempfile.mkdtemp(), "zeros.rec")
        >>> pack((images, range(5)), path, format="recordio", encoding="raw").packed
        5
        >>> image, label = open_records(path, decode="image")[3]
        >>> image.shape, label
        ((28, 28), 3.0)
    """
    if format not in CODECS:
        raise ValueError(f"format must be {listed()}, got {format!r}")
    if encoding not in ENCODINGS:
        raise ValueError(f'encoding must be "jpeg" or "raw", got {encoding!r}')
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    shard_bytes = check_integer("shard_bytes", shard_bytes, 1)
    if resize is not None:
        resize = check_integer("resize", resize, 1, " or None")
    if quality is not None:
        quality = check_integer("quality", quality, 1, " or None")
        if quality > 100:
            raise ValueError(f"quality must be <= 100, got {quality!r}")
        if encoding != "jpeg":
            raise ValueError(f'quality is about encoding="jpeg", got encoding={encoding!r}')
    if workers != "auto":
        check_integer("workers", workers, 0, ' or "auto"')
    if seed is not None and not (isinstance(seed, str) and seed == "auto"):
        check_integer("seed", seed, 0, ', "auto" or None')
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable or None, got {progress!r}")
    check_executor(executor)

    def pack_here(path: str | os.PathLike[str]) -> Manifest:
        inputs = inputs_of(source, root)
        if not len(inputs):
            raise ValueError("source must hold at least one image, got none")
        settings = {"encoding": encoding, "resize": resize, "quality": quality}
        run = Run(path, shuffled(inputs, seed), format, settings, shard_bytes, on_error)
        floats = False
        if not CODECS[format].envelope.has_header:
            floats = has_fractions(labels_in(inputs.items, np.arange(len(inputs))))
        encoder = ImageEncoder(format, encoding, resize, quality, floats)
        return run.complete(encoder.record, executor, workers, progress or (lambda *counts: None))

    if isinstance(out, str) and is_url(out):
        return packed_to(out, pack_here)
    return pack_here(local_path(out, "out"))
