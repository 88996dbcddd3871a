"""Remote objects compressed as a whole, inflated into an unnamed temporary file when opened."""

from __future__ import annotations

import tempfile
from typing import IO, Any, cast

from adapters.records.inflation import inflate
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import InflatedFile


class InflatedObject(InflatedFile):
    """Content of an object compressed with GZIP or ZLIB; each process inflates it for itself.

    Args:
        remote: The object.

    Raises:
        RecordError: The compressed data are damaged from the start.
    """

    def __init__(self, remote: RemoteFile) -> None:
        self._remote = remote
        self.name = remote.name
        self.changed_ns = remote.changed_ns
        self._begin(remote.size)

    @property
    def remote(self) -> RemoteFile:
        """The compressed object."""
        return self._remote

    def _opened(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is the caller's to close.
        try:
            self.damage = inflate(self.name, cast(IO[bytes], _Reader(self._remote)), file)
            self._remote.close()
            return self._inflated(file)
        except BaseException:
            file.close()
            raise


class _Reader:
    """Reads an object sequentially."""

    def __init__(self, remote: RemoteFile) -> None:
        self._stream: Any = remote.stream()
        self._at = 0

    def read(self, size: int) -> bytes:
        data = bytes(self._stream.read(self._at, size))
        self._at += len(data)
        return data
