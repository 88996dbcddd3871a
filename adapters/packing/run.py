"""One run of ``pack``: from inputs to files, which get their names when all are finished.

::

    .train.packing/            during the run, and after an interrupt
        plan.json              inputs and settings: another plan starts from the beginning
        00000.rec  00000.idx   finished files
        manifest.json          what they hold; when it has final names, files are only renamed
    train-00000-of-00002.rec   the result
    train.json                 its manifest, which comes last
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from adapters.failure import Failure
from adapters.packing.inputs import Inputs
from adapters.packing.manifest import Manifest, PackedFile, Skipped, sha256_of
from adapters.packing.tasks import Encode, Outcome, Workers, opened, outcomes_of
from adapters.records import CODECS, RecordWriter, sidecar
from adapters.records.formats import codec_of

OnError = Literal["raise", "skip"]


class Run:
    """Working folder of a run, with the files that it has already; the arguments are ``pack``'s."""

    def __init__(
        self,
        out: str | os.PathLike[str],
        inputs: Inputs,
        format: str,
        settings: dict[str, Any],
        shard_bytes: int,
        on_error: OnError,
    ) -> None:
        self._out = out = Path(out, "data") if os.path.isdir(out) else Path(out)
        self._single = codec_of(out) is not None
        self._suffix = out.suffix if self._single else CODECS[format].suffix
        self._stem = out.with_suffix("") if self._single else out
        self._inputs = inputs
        self._format = format
        self._shard_bytes = shard_bytes
        self._on_error = on_error
        self._folder = _working_folder(self._stem)
        self._progress = self._folder / "manifest.json"
        self._settings = {**settings, "shard_bytes": shard_bytes}
        self._manifest, self._before = self._published_before()

    def complete(
        self,
        encode: Encode,
        executor: Any = None,
        workers: int | Literal["auto"] = "auto",
        progress: Callable[[int, int], Any] = lambda done, total: None,
    ) -> Manifest:
        """Write the files that are missing, and give all files their names.

        After an interrupt, the working folder stays only if another run can resume from it.
        """
        with locked(self._folder):
            manifest = self._prepared()
            if not self._is_named(manifest):
                try:
                    with opened(executor, workers) as pool:
                        self._write_all(manifest, encode, pool, progress)
                except BaseException:
                    if self._inputs.fingerprint is None:
                        shutil.rmtree(self._folder)
                    raise
            self._give_names(manifest)
            return manifest

    def _is_named(self, manifest: Manifest) -> bool:
        """True if only the renaming is left."""
        names = [path.name for path in self._names(len(manifest.files))]
        is_read = manifest.read == len(self._inputs)
        return is_read and names == [packed.name for packed in manifest.files]

    def _write_all(
        self,
        manifest: Manifest,
        encode: Encode,
        workers: Workers,
        progress: Callable[[int, int], Any],
    ) -> None:
        progress(manifest.read, len(self._inputs))
        skip = self._on_error == "skip"
        outcomes = outcomes_of(self._inputs, manifest.read, encode, skip, workers)
        with contextlib.closing(outcomes):
            following = next(outcomes, None)
            while following is not None:
                following = self._write_one(manifest, following, outcomes, progress)
        names = self._names(len(manifest.files))
        manifest.files = [
            replace(packed, name=name.name) for packed, name in zip(manifest.files, names)
        ]
        manifest.write(self._progress)

    def _give_names(self, manifest: Manifest) -> None:
        """Give the files their names, the manifest's last, and remove the folder."""
        names = [self._folder.with_name(packed.name) for packed in manifest.files]
        for number, name in enumerate(names):
            file = self._file(number)
            if file.exists():
                sidecar.remove(name)
                os.replace(file, name)
            sidecar.follow(file, name)
        for old in self._before:
            if old not in names:
                sidecar.remove(old)
                old.unlink(missing_ok=True)
        os.replace(self._progress, self._manifest)
        (self._folder / "plan.json").unlink()  # Without it, the rest of the folder is ignored.
        shutil.rmtree(self._folder)

    def _published_before(self) -> tuple[Path, list[Path]]:
        """Find the manifest's name, and the files that an earlier manifest of that name lists."""
        free = None
        for ending in (".json", f"{self._suffix}.json"):
            path = self._stem.with_name(self._stem.name + ending)
            try:
                manifest = Manifest.load(path)
            except FileNotFoundError:
                free = free or path
                continue
            except ValueError:
                continue
            if manifest.format == self._format:
                return path, [path.with_name(packed.name) for packed in manifest.files]
        if free is None:
            raise FileExistsError(
                f"out must leave the manifest a name, but {path} is something else, as is the "
                "shorter one"
            )
        return free, []

    def _prepared(self) -> Manifest:
        """The files of an earlier run if it had the same plan; else remove them."""
        inputs = self._inputs
        about = [inputs.fingerprint, inputs.seed, self._format, self._on_error, self._out.name]
        plan = json.dumps({"settings": self._settings, "about": about})
        path = self._folder / "plan.json"
        is_same = path.exists() and path.read_text() == plan and inputs.fingerprint is not None
        if self._progress.exists():
            earlier = Manifest.load(self._progress)
            if is_same and self._is_complete(earlier):
                return earlier
            # Some may have got their names before it was killed.
            names = [Path(packed.name) for packed in earlier.files]
            named = [path for at, path in enumerate(names) if path.stem != f"{at:05d}"]
            self._before += [self._folder.with_name(path.name) for path in named]
        for left in self._folder.iterdir():  # The folder itself is locked.
            left.unlink()
        path.write_text(plan)
        return Manifest(self._format, self._settings, inputs.classes, seed=inputs.seed)

    def _is_complete(self, manifest: Manifest) -> bool:
        """True if all files exist, perhaps under their final names."""
        is_named = self._is_named(manifest)
        for number, packed in enumerate(manifest.files):
            places = [self._file(number)]
            if is_named:
                places.append(self._folder.with_name(packed.name))
            if not any(each.is_file() and each.stat().st_size == packed.bytes for each in places):
                return False
        return True

    def _write_one(
        self,
        manifest: Manifest,
        following: Outcome | None,
        outcomes: Iterator[Outcome],
        progress: Callable[[int, int], Any],
    ) -> Outcome | None:
        """Write one file, and return the first outcome that didn't fit."""
        number, done = len(manifest.files), manifest.read
        path = self._file(number)
        skipped: list[Skipped] = []
        with RecordWriter(path, format=self._format) as writer:
            while following is not None:
                if (error := following.error) is not None:
                    raise error.restore() if isinstance(error, Failure) else error
                if following.skipped is not None:
                    skipped.append(following.skipped)
                elif following.record is not None:
                    size = writer.size_bytes + len(following.record)
                    if len(writer) and size > self._shard_bytes:
                        break
                    writer.write_encoded(following.record, following.number)
                done += 1
                progress(done, len(self._inputs))
                following = next(outcomes, None)
            records, size = len(writer), writer.size_bytes
        manifest.add(PackedFile(path.name, records, size, sha256_of(path)), done, skipped)
        manifest.write(self._progress)
        return following

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:05d}{self._suffix}"

    def _names(self, count: int) -> list[Path]:
        if self._single and count == 1:
            return [self._out]
        return [
            self._stem.with_name(f"{self._stem.name}-{number:05d}-of-{count:05d}{self._suffix}")
            for number in range(count)
        ]


def _working_folder(stem: Path) -> Path:
    return stem.with_name(f".{stem.name}.packing")


def earlier_settings(stem: Path) -> dict[str, Any]:
    """Settings of an interrupted run; empty if there was none."""
    try:
        return dict(json.loads((_working_folder(stem) / "plan.json").read_text())["settings"])
    except (FileNotFoundError, TypeError, ValueError):
        return {}


class FolderInUseError(FileExistsError):
    """Another run works in the folder."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder, and lock it within the context; else ``FolderInUseError``."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # The run that had locked it has just removed it.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                break
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            raise FolderInUseError(
                f"another run packs into {folder}: wait for its end, or give out another name"
            ) from None
        os.close(descriptor)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # A forked process may have the descriptor, too.
        os.close(descriptor)
