"""``pack``: images into record files, in parallel, restartable, the same bytes each time.

::

    .train.packing/            while it works, and after an interrupt
        plan.json              what is packed, and how: another plan starts from the beginning
        00000.rec  00000.idx   files that are finished
        00000.json             which inputs they hold
        manifest.json          written when all are finished; from then on files are only renamed
    train-00000-of-00002.rec   the result
    train.json                 its manifest, which comes last
"""

from __future__ import annotations

import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from adapters.arguments import check_integer
from adapters.errors import ContentError, RecordError
from adapters.packing.encoding import ENCODINGS, Encoder
from adapters.packing.inputs import Inputs, inputs_of
from adapters.packing.manifest import Manifest, PackedFile, Skipped, sha256_of
from adapters.records import RecordWriter, index_paths

OnError = Literal["raise", "skip"]
SUFFIXES = {"recordio": ".rec", "tfrecord": ".tfrecord"}
# Items that are under way for each worker: the file's writer shouldn't wait for a slow one.
_AHEAD = 8


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
) -> Manifest:
    """Pack images into record files: few large ones to read in training instead of many small ones.

    The same input gives the same bytes, whatever the number of workers. The files get their names
    when all are finished; a run that was interrupted goes on where it stopped, if it is started
    again with the same arguments.

    Args:
        source: A folder with a folder per class; an ``.lst`` file as MXNet's im2rec has it; arrays
            ``(images, labels)``; or a source of samples (image, label), where an image is an array
            or encoded.
        out: ``"train"`` gives ``train-00000-of-00003.tfrecord`` and so on, with an index beside
            each, and the manifest ``train.json``. ``"train.rec"`` names a single file, if one is
            enough.
        format: ``"recordio"``: the image behind MXNet's IRHeader; or ``"tfrecord"``: in a
            tf.train.Example, as ``image/encoded``, ``image/class/label`` and ``image/id``.
        shard_bytes: The most that a file may have, unless one record is larger.
        resize: Pixels of the shorter side, bilinear, as ``ImageDecoder(resize_short=...)``.
        quality: Of JPEGs, 1 to 100. None keeps JPEGs that aren't resized as they are, and takes 95
            for others.
        encoding: ``"jpeg"``, or ``"raw"``: arrays in NPY's format, larger, and with nothing to
            decode.
        workers: Threads, or ``"auto"``: one for each CPU.
        on_error: What happens with a file that is no image, or a damaged one: ``"raise"``, or
            ``"skip"``: it is named in the manifest.
        root: Of the paths in a list; else the list's folder.
        progress: Called with the inputs that are done and all there are.

    Returns:
        The manifest: counts, classes, files with checksums, and what was skipped, for which reason.

    Raises:
        OSError: Files can't be read or written.
        RecordError: A damaged image, or none, with ``on_error="raise"``.
        TypeError: A source without random access, or an argument of the wrong type.
        ValueError: An argument out of range, or nothing to pack.

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
    _check(format, shard_bytes, resize, quality, encoding, workers, on_error)
    inputs = inputs_of(source, root)
    if not len(inputs.items):
        raise ValueError("source must hold at least one image, got none")
    encoder = Encoder(format, encoding, resize, quality)
    work = _Work(Path(out), inputs, encoder, shard_bytes, on_error)
    if not work.finished:
        count = len(os.sched_getaffinity(0)) if workers == "auto" else max(1, workers)
        work.write_all(count, progress or (lambda done, total: None))
    return work.publish()


@dataclass(frozen=True)
class _Outcome:
    """What became of one input: a record, or the reason why not."""

    record: bytes | None
    skipped: Skipped | None


class _Work:
    """The folder that is worked in, and what is in it already."""

    def __init__(
        self, out: Path, inputs: Inputs, encoder: Encoder, shard_bytes: int, on_error: OnError
    ) -> None:
        self._suffix = SUFFIXES[encoder.format]
        self._single = out.suffix in (*SUFFIXES.values(), ".tfrecords")
        if self._single:
            self._suffix = out.suffix
        if out.is_dir():
            out = out / "data"
        self._stem = out.with_suffix("") if self._single else out
        self._out = out
        self._inputs = inputs
        self._encoder = encoder
        self._shard_bytes = shard_bytes
        self._on_error = on_error
        self._folder = self._stem.with_name(f".{self._stem.name}.packing")
        self._settings = {
            "encoding": encoder.encoding,
            "resize": encoder.resize,
            "quality": encoder.quality,
            "shard_bytes": shard_bytes,
        }
        self._prepare()

    @property
    def finished(self) -> bool:
        """Whether only names are missing."""
        return (self._folder / "manifest.json").exists()

    def write_all(self, workers: int, progress: Callable[[int, int], Any]) -> None:
        """Write the files that aren't there yet, and the manifest."""
        manifest = Manifest(self._encoder.format, self._settings, self._inputs.classes)
        done = self._load(manifest)
        total = len(self._inputs.items)
        progress(done, total)
        with ThreadPoolExecutor(workers, "adapters-pack") as pool:
            outcomes = self._outcomes(pool, done, workers * _AHEAD)
            pending = next(outcomes, None)
            while pending is not None:
                pending, done = self._write_one(manifest, pending, outcomes, done, total, progress)
        manifest.write(self._folder / "manifest.json.tmp")
        os.replace(self._folder / "manifest.json.tmp", self._folder / "manifest.json")

    def publish(self) -> Manifest:
        """Give the files their names; the manifest's comes last, and the folder goes."""
        manifest = Manifest.load(self._folder / "manifest.json")
        target = self._stem.with_name(self._stem.name + ".json")
        files = []
        for number, packed in enumerate(manifest.files):
            name = self._name(number, len(manifest.files))
            for old, new in zip(index_paths(self._folder / packed.name), index_paths(name)):
                if old.exists():
                    os.replace(old, new)
            if (self._folder / packed.name).exists():
                os.replace(self._folder / packed.name, name)
            files.append(PackedFile(name.name, packed.records, packed.bytes, packed.sha256))
        manifest.files = files
        self._remove_old(target, {packed.name for packed in files})
        temporary = target.with_name(f".{target.name}.tmp")
        manifest.write(temporary)
        os.replace(temporary, target)
        shutil.rmtree(self._folder)
        return manifest

    def _prepare(self) -> None:
        """Keep what an earlier run left, if it was of the same plan."""
        plan = json.dumps(
            [
                self._inputs.fingerprint,
                self._encoder.format,
                self._settings,
                self._on_error,
                self._suffix,
                self._single,
            ]
        )
        path = self._folder / "plan.json"
        kept = path.exists() and path.read_text() == plan and self._inputs.fingerprint is not None
        if not kept:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
            path.write_text(plan)

    def _load(self, manifest: Manifest) -> int:
        """Take over finished files; how many inputs they are."""
        while (note := self._folder / f"{len(manifest.files):05d}.json").exists():
            content = json.loads(note.read_text())
            manifest.files.append(PackedFile(**content["file"]))
            manifest.skipped += [Skipped(**each) for each in content["skipped"]]
            manifest.read = content["read"]
            manifest.packed += manifest.files[-1].records
        return manifest.read

    def _outcomes(self, pool: ThreadPoolExecutor, first: int, ahead: int) -> Iterator[_Outcome]:
        """What becomes of the inputs from number ``first`` on, in their order."""
        waiting: deque[Future[_Outcome]] = deque()
        try:
            for number in range(first, len(self._inputs.items)):
                waiting.append(pool.submit(self._outcome, number))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _outcome(self, number: int) -> _Outcome:
        name = f"sample {number}"
        try:
            item = self._inputs.items[number]
            name = item.name
            return _Outcome(self._encoder.record(item), None)
        except (ContentError, OSError, RecordError) as error:
            if self._on_error == "skip":
                return _Outcome(None, Skipped(name, str(error)))
            if isinstance(error, ContentError):
                raise RecordError(name, None, 0, error.expected, error.found) from error
            raise

    def _write_one(
        self,
        manifest: Manifest,
        pending: _Outcome,
        outcomes: Iterator[_Outcome],
        done: int,
        total: int,
        progress: Callable[[int, int], Any],
    ) -> tuple[_Outcome | None, int]:
        """Write one file; the outcome that didn't fit into it any more, and what is done."""
        name = f"{len(manifest.files):05d}{self._suffix}"
        skipped: list[Skipped] = []
        following: _Outcome | None = pending
        with RecordWriter(self._folder / name, format=self._encoder.format) as writer:
            while following is not None:
                if following.skipped is not None:
                    skipped.append(following.skipped)
                elif following.record is not None:
                    size = writer.size_bytes + len(following.record)
                    if len(writer) and size > self._shard_bytes:
                        break
                    writer.write_encoded(following.record)
                done += 1
                progress(done, total)
                following = next(outcomes, None)
            records, size = len(writer), writer.size_bytes
        path = self._folder / name
        packed = PackedFile(name, records, size, sha256_of(path))
        manifest.read = done
        manifest.packed += records
        manifest.skipped += skipped
        manifest.files.append(packed)
        note = self._folder / f"{len(manifest.files) - 1:05d}.json"
        content = {
            "file": asdict(packed),
            "read": done,
            "skipped": [asdict(each) for each in skipped],
        }
        temporary = note.with_name(note.name + ".tmp")
        temporary.write_text(json.dumps(content))
        os.replace(temporary, note)
        return following, done

    def _name(self, number: int, count: int) -> Path:
        if self._single and count == 1:
            return self._out
        return self._stem.with_name(f"{self._stem.name}-{number:05d}-of-{count:05d}{self._suffix}")

    def _remove_old(self, manifest: Path, kept: set[str]) -> None:
        """Files of the run before that this one has no more."""
        try:
            before = Manifest.load(manifest).files
        except (OSError, ValueError):
            return
        for packed in before:
            if packed.name not in kept:
                path = manifest.with_name(packed.name)
                for each in (path, *index_paths(path)):
                    each.unlink(missing_ok=True)


def _check(
    format: Any,
    shard_bytes: Any,
    resize: Any,
    quality: Any,
    encoding: Any,
    workers: Any,
    on_error: Any,
) -> None:
    if format not in SUFFIXES:
        raise ValueError(f'format must be "recordio" or "tfrecord", got {format!r}')
    if encoding not in ENCODINGS:
        raise ValueError(f'encoding must be "jpeg" or "raw", got {encoding!r}')
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
    check_integer("shard_bytes", shard_bytes, 1)
    if resize is not None:
        check_integer("resize", resize, 1, " or None")
    if quality is not None:
        check_integer("quality", quality, 1, " or None")
        if quality > 100:
            raise ValueError(f"quality must be <= 100, got {quality!r}")
        if encoding == "raw":
            raise ValueError('quality is about encoding="jpeg", got encoding="raw"')
    if workers != "auto":
        check_integer("workers", workers, 0, ' or "auto"')
