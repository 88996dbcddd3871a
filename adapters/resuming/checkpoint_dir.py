"""The folder of a training's checkpoints, of which the newest few are kept.

A checkpoint is an ``.npz`` file, which ``np.load`` opens: a ZIP archive without compression,

    saved.json   what ``values.to_json`` made of the value
    0.npy ...    its arrays

The file is written under a hidden name, forced to the disk and renamed, so that it is complete or
absent, whenever the process or the machine dies. The archive has a CRC of each member: a file that
was damaged later is skipped with a warning, and the one before it is read. One process writes to a
folder at a time, see ``lock.py``; others may read.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adapters.resuming.values import Arrays, from_json, to_json

log = logging.getLogger("adapters")

_SUFFIX = ".npz"
_VALUE = "saved.json"
_FORMAT = 1
_CHUNK_BYTES = 16 * 2**20
# Errors of file systems without ``fsync`` of a folder: some of networks, and of FUSE.
_NO_FSYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP)
_format: Any = np.lib.format  # NumPy's stubs don't know all of it.


class CheckpointDir:
    """The checkpoints of one training.

    Args:
        path: The folder; ``save`` makes it if need be.
        keep: The number of files that stay; older ones are removed when a new one is complete.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int) -> None:
        self.path = Path(path)
        self._keep = keep

    def save(self, name: str, value: Any) -> Path:
        """Save a value, and remove older files.

        Args:
            name: The name of the file, which sorts behind those before it.
            value: See ``values.to_json``.

        Returns:
            The file.

        Raises:
            OSError: It can't be written.
            TypeError: Something in it can't be saved.
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
                            _write(member, array)
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, final)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
        _force_names(self.path)
        files = list(self._files())
        at = files.index(final)  # Newer names are of a training that resumed from an older file.
        for old in [*files[:at], *files[at + self._keep :]]:
            old.unlink(missing_ok=True)
        return final

    def clean(self) -> None:
        """Remove incomplete files of killed processes; for the process that writes."""
        for half in self.path.glob(".*.tmp"):
            half.unlink(missing_ok=True)

    def newest(self) -> Any:
        """The value of the newest file that is undamaged; None if there is none."""
        for path in self._files():
            try:
                return _read(path)
            except PermissionError:
                raise
            except Exception as error:  # zipfile, zlib, json and NumPy have many.
                log.warning("%s is damaged (%s): the one saved before it is used", path, error)
        return None

    def _files(self) -> Iterator[Path]:
        """The newest first."""
        return iter(sorted(self.path.glob(f"[!.]*{_SUFFIX}"), reverse=True))


def make(path: Path) -> None:
    """Make a folder and force its name to the disk."""
    path = path.absolute()
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _force_names(each.parent)


def _force_names(path: Path) -> None:
    """Force a folder's entries to the disk, if the file system supports that."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(folder)


def _write(member: IO[bytes], array: NDArray[Any]) -> None:
    """Write an array as ``np.save`` does, without copying its chunks."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    header = _format.header_data_from_array_1_0(array)
    _format.write_array_header_2_0(member, header)
    octets = memoryview(array.reshape(-1).view(np.uint8).data if array.size else b"")
    for start in range(0, len(octets), _CHUNK_BYTES):
        member.write(octets[start : start + _CHUNK_BYTES])


def _read(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        saved = json.loads(archive.read(_VALUE))
        if saved["format"] != _FORMAT:
            raise ValueError(f"its format is {saved['format']}, this version reads {_FORMAT}")
        arrays = []
        for number in range(len(archive.namelist()) - 1):
            with archive.open(f"{number}.npy") as member:
                arrays.append(_format.read_array(member, allow_pickle=False))
                member.read()  # To the end, where the CRC is compared.
    return from_json(saved["value"], arrays)
