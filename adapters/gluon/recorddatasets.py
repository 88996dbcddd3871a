"""Record files of MXNet's own data sets, and how several threads read them at once.

``MXIndexedRecordIO.read_idx`` moves the file's one position and then reads from there; two threads
that do so get each other's records, without an error. Here the two steps are made one. The images
of an ``ImageRecordDataset`` don't even ask for that: they are read and decoded without MXNet.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from importlib.util import find_spec
from typing import Any

import numpy as np
from mxnet.recordio import MXIndexedRecordIO

from adapters.records import Index, RecordFiles, Shard
from adapters.sources import Images, RecordSource

_locks: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def source_of(data: Any) -> RecordSource | None:
    """The images of an ``ImageRecordDataset``, read as MXNet does.

    Returns:
        None where they are to become grey, or where the libraries are missing.
    """
    if data._flag != 1 or not all(map(find_spec, ("cv2", "simplejpeg"))):
        return None
    offsets = np.array([data._record.idx[key] for key in data._record.keys], np.int64)
    shard = Shard(data.filename, "recordio", False, Index(offsets, None))
    return RecordSource(RecordFiles.of([shard]), Images(None, {}))


def make_reading_atomic() -> None:
    """Have ``MXIndexedRecordIO.read_idx`` finish one record before it begins another."""
    with _guard:
        if hasattr(MXIndexedRecordIO.read_idx, "__wrapped__"):
            return
        plain = MXIndexedRecordIO.read_idx

        @functools.wraps(plain)
        def read_idx(self: Any, idx: Any) -> Any:
            with _lock_of(self):
                return plain(self, idx)

        MXIndexedRecordIO.read_idx = read_idx


def _lock_of(record: Any) -> threading.Lock:
    lock = _locks.get(record)
    if lock is None:
        with _guard:
            lock = _locks.setdefault(record, threading.Lock())
    return lock


def _forget_locks() -> None:
    """In a forked process, where whoever held them is not."""
    global _guard
    _guard = threading.Lock()
    _locks.clear()


os.register_at_fork(after_in_child=_forget_locks)
