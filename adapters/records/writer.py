"""``RecordWriter``: writes records to a file that appears complete or not at all."""

from __future__ import annotations

import os
import uuid
import warnings
from array import array
from pathlib import Path

import numpy as np

from adapters.errors import ClosedError
from adapters.records.formats import CODECS, listed
from adapters.records.index import Index, text_of
from adapters.records.sidecar import place_of_writer
from adapters.remote.privatefiles import naming, write_whole
from adapters.remote.segments import write_all
from adapters.remote.urls import local_path

_BUFFER_BYTES = 256 << 10


class RecordWriter:
    """Writer for a RecordIO or TFRecord file and its index.

    The records go to a hidden file in the same folder. It is renamed to ``path`` when the ``with``
    block ends without an error, or at ``close``. After an exception, a kill or a power loss, the
    previous file at ``path`` is unchanged. Only the process that made a writer may use it.

    Args:
        path: The file; an existing one is replaced.
        format: ``"recordio"`` or ``"tfrecord"``.

    Raises:
        OSError: The folder can't be written to, or ``path`` is a folder.
        TypeError: ``path`` is no path.
        ValueError: An unknown format, or the URL of a store: ``pack`` writes to those.

    Example:
        >>> import os, tempfile
        >>> from adapters import RecordWriter, open_records
        >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
        >>> with RecordWriter(path, format="tfrecord") as writer:
        ...     writer.write(b"one"), writer.write(b"two")
        (0, 1)
        >>> open_records(path)[1]
        b'two'
    """

    def __init__(self, path: str | os.PathLike[str], *, format: str) -> None:
        if format not in CODECS:
            raise ValueError(f"format must be {listed()}, got {format!r}")
        # Absolute, as the working directory may change before the end.
        self._path = Path(os.path.abspath(local_path(path, "path")))
        if self._path.is_dir():
            raise IsADirectoryError(
                f"path must be that of a file, got {os.fspath(path)!r}, which is a folder: name a "
                "file in it"
            )
        if self._path.suffix.lower() == ".gz":
            raise ValueError(
                f"path must be that of an uncompressed file, got {os.fspath(path)!r}: leave .gz "
                "out, and compress the file afterwards"
            )
        if not self._path.parent.is_dir():
            raise FileNotFoundError(
                f"path must be in a folder that exists, got {os.fspath(path)!r}: make it first"
            )
        self._codec = CODECS[format]
        self._temporary = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}.tmp")
        self._offsets, self._keys = array("q"), array("Q")
        self._process = os.getpid()
        with naming(self._path):
            self._file = open(self._temporary, "xb", 0)  # noqa: SIM115 - closed by close().
        # Not the file's own buffer, which a forked process would write, too.
        self._buffer: list[bytes] = []
        self._flushed_bytes = 0
        self.size_bytes = 0
        """Size of the file so far."""

    def __repr__(self) -> str:
        return f"RecordWriter({os.fspath(self._path)!r}, format={self._codec.name!r})"

    def __len__(self) -> int:
        """Number of records so far."""
        return len(self._offsets)

    def write(self, payload: bytes) -> int:
        """Append a record.

        Returns:
            Its number, from 0.

        Raises:
            ClosedError: After ``close``.
            TypeError: ``payload`` is not bytes.
            ValueError: It is larger than the format allows.
        """
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise TypeError(f"payload must be bytes, got {type(payload).__name__}")
        if self._file.closed:
            raise ClosedError(f"the writer of {self._path} has been closed")
        if not self._is_own:
            raise ClosedError(f"the writer of {self._path} belongs to the process that made it")
        return self.write_encoded(self._codec.encode(bytes(payload)))

    def write_encoded(self, record: bytes, key: int | None = None) -> int:
        """Append a record framed by this format's ``encode``, perhaps in another thread.

        Args:
            record: The framed record.
            key: Key in MXNet's index; None for the record number. If two records share a key, all
                keys are record numbers.
        """
        try:
            self._buffer.append(record)
            if self.size_bytes + len(record) - self._flushed_bytes >= _BUFFER_BYTES:
                self._flush()
        except BaseException as error:  # Part of it may be written, so no more can follow.
            self._discard()
            with naming(self._path):
                raise error
        self._offsets.append(self.size_bytes)
        self._keys.append(len(self._keys) if key is None else key)
        self.size_bytes += len(record)
        return len(self._offsets) - 1

    def close(self) -> None:
        """Rename the file and write its index. Further calls do nothing."""
        if self._file.closed or not self._is_own:
            return
        try:
            with naming(self._path):
                self._flush()
                os.fsync(self._file.fileno())
                self._file.close()
                target = place_of_writer(self._path, self._codec)
                target.unlink(missing_ok=True)  # Before it is out of date.
                os.replace(self._temporary, self._path)
        except BaseException:
            self._discard()
            raise
        keys = self._keys if len(set(self._keys)) == len(self._keys) else None
        offsets = np.array(self._offsets)
        index = Index(offsets, np.diff(offsets, append=self.size_bytes))
        write_whole(target, text_of(index, self._codec, keys))

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._discard()

    def __del__(self) -> None:
        if not hasattr(self, "_file") or self._file.closed or not self._is_own:
            return
        warnings.warn(
            f"the writer of {self._path} was not closed: its {len(self)} records are lost",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        self._discard()

    @property
    def _is_own(self) -> bool:
        return os.getpid() == self._process

    def _flush(self) -> None:
        content = memoryview(b"".join(self._buffer))
        write_all(self._file.fileno(), content, self._flushed_bytes)
        self._buffer.clear()
        self._flushed_bytes += len(content)

    def _discard(self) -> None:
        if self._is_own:
            self._file.close()
            self._temporary.unlink(missing_ok=True)
