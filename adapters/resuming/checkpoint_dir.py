"""The folder of a training's checkpoints; the newest few are retained.

A checkpoint is an ``.npz`` file that ``np.load`` opens: a ZIP archive without compression,

    saved.json   the value as JSON
    0.npy ...    its arrays

The file is written under a hidden name, synced to disk and renamed, so it is either complete or
absent when the process or the machine dies. The archive has a CRC of each member: a file that was
damaged later is skipped with a warning, and the previous one is read. A file that can't be read for
another reason is an error. One process at a time writes to a folder, see ``lock.py``; others may
read. How often it does, see ``schedule.py``.

In the JSON, a tuple becomes ``{"tuple": [...]}``, a dict ``{"dict": [[key, value], ...]}``, an
array ``{"array": its index}`` and bytes ``{"bytes": the index of their array}``. Numbers, strings,
None and lists stay as they are.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.resuming.lock import Lock, force_names, make
from adapters.resuming.schedule import Schedule

log = logging.getLogger("adapters")

Arrays = list[NDArray[Any]]

_SUFFIX = ".npz"
_VALUE = "saved.json"
# Names of checkpoints, "epoch-step", and of those that are being written, with a process id.
_WHOLE = re.compile(r"\d{6,}-\d{9,}\.npz")
_HALF = re.compile(r"\.\d{6,}-\d{9,}\.\d+\.tmp")
_FORMAT = 1
_format: Any = np.lib.format  # NumPy's type stubs are incomplete here.


class CheckpointDir:
    """The checkpoints of one training, which are saved while it continues.

    At most one thread runs, and it ends when its file is complete. The training thread calls
    ``write`` and ``wait``; both block while a file is being written.

    Args:
        path: The folder; ``save`` creates it if necessary.
        keep: Number of files to retain; older ones are removed when a new one is complete.
        every: Argument of ``Schedule``.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int, every: Any = 30) -> None:
        self.path = Path(path)
        self.lock = Lock(self.path)
        self.schedule = Schedule(every)
        self._keep = keep
        self._thread: threading.Thread | None = None

    def begin(self, rank: int, over: bool = False) -> Any:
        """Lock the folder for a training, see ``Lock.take``, and return the ``newest`` value."""
        self.schedule.restart()
        self.lock.take(rank, over)
        if self.lock.writes:
            for half in self.path.glob(".*.tmp"):  # Incomplete files of killed processes.
                if _HALF.fullmatch(half.name):
                    half.unlink(missing_ok=True)
        return self.newest()

    def end(self) -> None:
        """Wait until the file is complete, and release the folder."""
        try:
            self.wait()
        finally:  # Ctrl-C may end the wait.
            self.lock.release()

    @property
    def ready(self) -> bool:
        """True if this process writes checkpoints, and no file is being written."""
        return self.lock.writes and not (self._thread is not None and self._thread.is_alive())

    def write(self, name: str, value: Any) -> None:
        """Start to save a value, which must not be changed afterwards; errors are warnings."""

        def save() -> None:
            try:
                self.save(name, value)
            except Exception as error:
                log.warning(
                    "the training could not be saved to %s (%s: %s); it continues, and a crash "
                    "would lose what came since the last file there",
                    self.path,
                    type(error).__name__,
                    error,
                )

        self.wait()
        self._thread = threading.Thread(target=save, name="adapters-resume")
        self._thread.start()
        self.schedule.saved()

    def wait(self) -> None:
        """Wait until the file is complete."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def save(self, name: str, value: Any) -> Path:
        """Save a value, and remove older files.

        ``name`` is f"{epoch:06d}-{step:09d}", and must sort after the earlier names.

        Raises:
            OSError: The file can't be written.
            TypeError: ``value`` contains something that can't be saved.
        """
        arrays: Arrays = []
        text = json.dumps({"format": _FORMAT, "value": to_json(value, arrays)})
        make(self.path)
        final = self.path / f"{name}{_SUFFIX}"
        hidden = self.path / f".{name}.{os.getpid()}.tmp"
        try:
            with open(hidden, "wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    archive.writestr(_VALUE, text)
                    for number, array in enumerate(arrays):
                        with archive.open(f"{number}.npy", "w", force_zip64=True) as member:
                            _format.write_array(member, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, final)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
        force_names(self.path)
        files = self._files()
        at = files.index(final)  # Newer names exist if training resumed from an older file.
        for old in [*files[:at], *files[at + self._keep :]]:
            old.unlink(missing_ok=True)
        return final

    def newest(self) -> Any:
        """The value in the newest undamaged file; None if there is no file.

        Raises:
            OSError: The folder or a file can't be read at present; likewise ``MemoryError``.
            ValueError: All files are damaged, or a file is of another version of this package.
        """
        damage = ""
        for path in self._files():
            if damage:
                log.warning("%s: the one saved before it is used", damage)
            try:
                return _read(path)
            except _FormatError:
                raise
            except Exception as error:  # zipfile, zlib, json and NumPy raise many types.
                obstacle = _obstacle(error)
                if obstacle is not None and not isinstance(obstacle, FileNotFoundError):
                    raise obstacle from None
                # Another process may have removed the file meanwhile.
                damage = damage if obstacle else f"{path} is damaged ({error})"
        if damage:
            raise ValueError(
                f"folder must have an intact file to resume from, got {self.path}: {damage}, and "
                "no other one is intact. Restore one, or give Resume a new folder to start over"
            )
        return None

    def _files(self) -> list[Path]:
        """List the checkpoints, newest first; other files in the folder are the user's."""
        try:
            names = os.listdir(self.path)  # Path.glob hides errors.
        except FileNotFoundError:
            return []
        return [self.path / name for name in sorted(names, reverse=True) if _WHOLE.fullmatch(name)]


class _FormatError(ValueError):
    """An intact file that another version of this package has saved."""


def _obstacle(error: Exception) -> Exception | None:
    """Return the reason why a file couldn't be read; None if it is damaged."""
    if isinstance(error, zipfile.BadZipFile):
        error = error.__context__ if isinstance(error.__context__, OSError) else error
    # Damage may lead to an invalid position, or to bz2, whose errors have no number.
    damaged = isinstance(error, OSError) and error.errno in (None, errno.EINVAL)
    return error if isinstance(error, (OSError, MemoryError)) and not damaged else None


def _read(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        saved = json.loads(archive.read(_VALUE))
        if saved["format"] != _FORMAT:
            raise _FormatError(
                f"{path} must have format {_FORMAT}, which this version of loader-adapters reads, "
                f"got {saved['format']}: resume with the version that saved it, or give Resume a "
                "new folder"
            )
        arrays = []
        for number in range(len(archive.namelist()) - 1):
            with archive.open(f"{number}.npy") as member:
                arrays.append(_format.read_array(member, allow_pickle=False))
                member.read()  # The CRC is checked at the end.
    return from_json(saved["value"], arrays)


# --- values as JSON and arrays ---


def to_json(value: Any, arrays: Arrays) -> Any:
    """Convert a value to JSON, and append its arrays to ``arrays``, without a copy if possible.

    Raises:
        TypeError: ``value`` contains another type, or an array of objects or records.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError("an array of objects can't be saved")
        entry: dict[str, Any] = {"array": len(arrays)}
        if array.dtype.kind == "V":  # For example bfloat16, which .npy files can't express.
            entry["dtype"] = array.dtype.name
            if array.dtype.names is not None:
                raise TypeError("an array of records can't be saved: save its fields")
            whole = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
            array = whole.reshape(array.shape)
        if isinstance(value, np.generic):
            entry["scalar"] = True
        arrays.append(array)
        return entry
    if isinstance(value, bytes):
        arrays.append(np.frombuffer(value, np.uint8))
        return {"bytes": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": [[to_json(each, arrays) for each in pair] for pair in value.items()]}
    if type(value) in (list, tuple):
        members = [to_json(each, arrays) for each in value]
        return members if isinstance(value, list) else {"tuple": members}
    raise TypeError(
        f"a {type(value).__name__} can't be saved: use None, numbers, texts, bytes, NumPy arrays, "
        "and lists, tuples and dicts of these"
    )


def from_json(entry: Any, arrays: Arrays) -> Any:
    """Restore the value that ``to_json`` converted."""
    if isinstance(entry, list):
        return [from_json(each, arrays) for each in entry]
    if not isinstance(entry, dict):
        return entry
    if "dict" in entry:
        return {from_json(k, arrays): from_json(v, arrays) for k, v in entry["dict"]}
    if "tuple" in entry:
        return tuple(from_json(each, arrays) for each in entry["tuple"])
    if "bytes" in entry:
        return arrays[entry["bytes"]].tobytes()
    array = arrays[entry["array"]]
    if "dtype" in entry:
        array = array.view(np.dtype(entry["dtype"]))
    return array[()] if entry.get("scalar") else array


# --- the fingerprint of a training ---

# The settings that an exact resume depends on are saved under the names that users know, and
# compared before any state is restored. Workers, learning rates and ``every`` may change, so they
# aren't part of it.


def check_fingerprint(
    saved: Mapping[str, Any],
    here: Mapping[str, Any],
    folder: str | os.PathLike[str],
) -> None:
    """Compare the values that both have, or raise ``ValueError``."""
    for name, value in saved.items():
        if name in here and here[name] != value:
            raise ValueError(
                f"{name} must be {value!r}, as when the training in {folder} was saved, got "
                f"{here[name]!r}: make it as it was, or give Resume a new folder"
            )


def check_order(
    saved: Mapping[str, Any],
    here: Mapping[str, Any],
    position: Mapping[str, int],
    folder: str | os.PathLike[str],
) -> None:
    """Compare the saved ``Order.fingerprint`` with the current one.

    If the position that the training resumes from counts samples, the number of shards and the
    batch size may differ. If it counts batches, the global batch size must not.

    Raises:
        ValueError: A value differs.
    """
    then, now = dict(saved), dict(here)
    if "samples" in position or then.get("shards") != now.get("shards"):
        sizes = [each.pop("batch_size", 1) * each.get("shards", 1) for each in (then, now)]
        if any(count for unit, count in position.items() if unit not in ("epoch", "samples")):
            name = "batch_size times the number of shards"
            then, now = {**then, name: sizes[0]}, {**now, name: sizes[1]}
    for each in (then, now):
        each.pop("shards", None)
    check_fingerprint(then, now, folder)
