"""A pytest plugin that puts our writer, or our reader, in the place of one of ``mx.recordio``.

The other one stays MXNet's, so that what one writes is read by the other.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from adapters import RecordWriter, open_records
from adapters.gluon import import_mxnet
from adapters.records import index_paths, irheader
from tests.peers.outcomes import count_replacement
from tests.peers.runs import WRITER_OR_READER

mx = import_mxnet()
_stock = mx.recordio


class _Writer:
    """Ends when it is let go, as theirs does."""

    def __init__(self, path: str, index: str | None = None) -> None:
        count_replacement()
        self._path, self._index = path, index
        self._writer = RecordWriter(path, format="recordio")
        self.write = self._writer.write

    def write_idx(self, key: int, payload: bytes) -> None:
        """Ours numbers the records from 0."""
        assert self.write(payload) == key

    def __del__(self) -> None:
        self._writer.close()
        if self._index is not None:
            os.replace(next(filter(os.path.exists, index_paths(self._path))), self._index)


class _Reader:
    """Record after record, or by number."""

    def __init__(self, path: str, index: str | None = None) -> None:
        count_replacement()
        self._records = open_records(path, format="recordio")
        self._rest = iter(range(len(self._records)))
        self.keys = list(range(len(self._records)))

    def read(self) -> bytes:
        """The next one."""
        return bytes(self._records.read(next(self._rest)))

    def read_idx(self, key: int) -> bytes:
        """That one."""
        return bytes(self._records.read(key))


def _pack(header: Any, content: bytes) -> bytes:
    count_replacement()
    _, label, number, _ = header
    return irheader.pack(label, number, content)


def _unpack(payload: bytes) -> tuple[Any, bytes]:
    count_replacement()
    label, number, content = irheader.unpack(memoryview(payload))
    return _stock.IRHeader(0, label, number, 0), bytes(content)


def _chosen(mode: str, ours: Any) -> dict[str, Any]:
    def plain(path: str, flag: str) -> Any:
        return ours(path) if flag == mode else _stock.MXRecordIO(path, flag)

    def indexed(index: str, path: str, flag: str) -> Any:
        return ours(path, index) if flag == mode else _stock.MXIndexedRecordIO(index, path, flag)

    return {"MXRecordIO": plain, "MXIndexedRecordIO": indexed}


# MXNet's own classes look for each other in their module, which therefore stays as it is.
if os.environ[WRITER_OR_READER] == "writer":
    mx.recordio = SimpleNamespace(**_chosen("w", _Writer), pack=_pack, unpack=_stock.unpack)
else:
    mx.recordio = SimpleNamespace(**_chosen("r", _Reader), pack=_stock.pack, unpack=_unpack)
