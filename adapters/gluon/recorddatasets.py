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
        None where they are to become grey, where the libraries are missing, or where the file isn't
        found any more, which the data set has opened.
    """
    if data._flag != 1 or not all(map(find_spec, ("cv2", "simplejpeg"))):
        return None
    offsets = [data._record.idx[key] for key in data._record.keys]
    # Those that no file has, above 2^63 too, become -1.
    own = np.array([at if 0 <= at < 1 << 63 else -1 for at in offsets], np.int64)
    try:
        shard = Shard(data.filename, "recordio", False, Index(own, None))
    except OSError:
        return None
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
