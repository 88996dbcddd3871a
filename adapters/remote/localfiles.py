"""Files on slow disks, as a client for a cache on a fast disk."""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterator

from adapters.remote.answers import Changed, Head


class LocalFiles:
    """Client for local files, by path. Thread-safe."""

    def head(self, key: str) -> Head:
        """Return the size and version of a file.

        Raises:
            IsADirectoryError: Not a regular file.
        """
        status = os.stat(key)
        if not stat.S_ISREG(status.st_mode):
            raise IsADirectoryError(f"{key} is not a file")
        return _head(status)

    def get(self, key: str, begin: int, end: int, head: Head | None) -> bytes:
        """Return these bytes of that version."""
        descriptor = os.open(key, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = _head(os.fstat(descriptor))
            if head is not None and found[:2] != head[:2]:
                raise Changed(f"{found.size} bytes, changed since")
            pieces = []
            while begin < end and (piece := os.pread(descriptor, end - begin, begin)):
                pieces.append(piece)
                begin += len(piece)
        finally:
            os.close(descriptor)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def get_all(self, key: str) -> tuple[bytes, Head]:
        """Return a whole file."""
        with open(key, "rb") as file:
            return file.read(), _head(os.fstat(file.fileno()))

    def list(self, folder: str) -> Iterator[tuple[str, Head | None]]:
        """Yield all files below a folder."""
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                yield path, self.head(path)

    def put(self, key: str, data: bytes | str) -> None:
        """Write a file so that it appears complete or not at all."""
        folder, name = os.path.split(key)
        hidden = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
        try:
            if isinstance(data, bytes):
                with open(hidden, "wb") as file:
                    file.write(data)
            else:
                shutil.copyfile(data, hidden)
            os.replace(hidden, key)
        except BaseException:
            if os.path.exists(hidden):
                os.unlink(hidden)
            raise

    def delete(self, key: str) -> None:
        """Remove a file."""
        os.unlink(key)


def _head(status: os.stat_result) -> Head:
    return Head(status.st_size, str(status.st_mtime_ns), status.st_mtime_ns)
