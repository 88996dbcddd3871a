"""Record files of MXNet's data sets, made safe for several threads.

``MXIndexedRecordIO.read_idx`` seeks in the file and then reads. Two threads that do so at once get
each other's records, without an error. Here the two steps are made atomic. The images of an
``ImageRecordDataset`` are read and decoded without MXNet instead.
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
    """Make a source of the images of an ``ImageRecordDataset``, with the same results as MXNet.

    Returns:
        The source; None for greyscale images, or if the libraries or the file are missing.
    """
    if data._flag != 1 or not all(map(find_spec, ("cv2", "simplejpeg"))):
        return None
    offsets = [data._record.idx[key] for key in data._record.keys]
    # Offsets that no file can have, negative or from 2^63 on, become -1.
    own = np.array([at if 0 <= at < 1 << 63 else -1 for at in offsets], np.int64)
    try:
        shard = Shard(data.filename, "recordio", False, Index(own, None))
    except OSError:
        return None
    return RecordSource(RecordFiles.of([shard]), Images(None, {}))


def make_reading_atomic() -> None:
    """Make ``MXIndexedRecordIO.read_idx`` read one record at a time per file."""
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
    """Drop the locks in a forked process, where the threads that held them don't exist."""
    global _guard
    _guard = threading.Lock()
    _locks.clear()


os.register_at_fork(after_in_child=_forget_locks)
