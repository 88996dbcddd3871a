"""Record files that several threads read at once.

``MXIndexedRecordIO.read_idx`` moves the file's one position and then reads from there; two threads
that do so get each other's records, without an error. Here the two steps are made one.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import Any

from mxnet.recordio import MXIndexedRecordIO

_locks: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_guard = threading.Lock()


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
