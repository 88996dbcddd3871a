"""Whether threads may run a user's functions at once: until one is seen to use its memory again.

A function that fills one buffer and returns it is right on one thread, where what it returned is
copied before it is called again. Two threads that call it at once mix their data. So the first
batches are computed one after the other; a later one that was computed while another one was, and
that shows such a function, is computed again; and from then on one thread at a time computes a
batch. Nothing changes for functions that return new memory.

``Turns`` may be used from any thread. ``compute`` blocks while another thread computes a batch, if
they must take turns; a batch that is computed within another one does not.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from adapters.structure import flatten, to_array

log = logging.getLogger("adapters")
T = TypeVar("T")

# Samples that are looked at, and how many bytes of them are kept meanwhile: a ring of buffers that
# is longer than that is rarely run through while a batch is computed.
_WATCHED_SAMPLES = 64
_WATCHED_BYTES = 32 << 20
# They are computed one after the other, which shows a function that fills one buffer for sure.
_FIRST_BATCHES = 2


class Mixed(Exception):
    """Two threads were in a function that uses its memory again."""


class Turns:
    """Who computes batches of one plan at a time."""

    def __init__(self) -> None:
        self.one_at_a_time = False
        """Whether a function was seen to use its memory again."""
        self.watching = True
        """Whether ``watch`` wants to see samples."""
        self._first = _FIRST_BATCHES
        self._left = _WATCHED_SAMPLES
        self._seen: dict[int, tuple[Any, int]] = {}
        self._shared: set[int] = set()
        """Addresses that one thread alone saw to hold the same for several samples."""
        self._kept: list[Any] = []
        self._kept_bytes = 0
        self._warned = False
        self.renew_locks()
        _all.add(self)

    def renew_locks(self) -> None:
        """In a forked process, where whoever held them is not."""
        self._firsts = threading.Lock()
        self._turn = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._inside: dict[int, list[bool]] = {}
        """Threads, and whether each has met another one."""

    def __reduce__(self) -> Any:
        return Turns, ()

    def compute(self, batch: Callable[..., T], *arguments: Any) -> T:
        """What ``batch(*arguments)`` returns, which runs the user's functions, perhaps twice."""
        try:
            return self.compute_once(batch, *arguments)
        except Mixed:
            pass  # An error of the second time has nothing to do with it.
        return self.compute_once(batch, *arguments)

    def compute_once(self, batch: Callable[..., T], *arguments: Any) -> T:
        """The same, if it may not be called twice.

        Raises:
            Mixed: It would have to be. From now on one thread at a time computes.
        """
        me = threading.get_ident()
        if me in self._inside:
            return batch(*arguments)
        if self._first:
            with self._firsts:
                if self._first:
                    self._first -= 1
                    return self._computed(me, batch, *arguments)
        return self._computed(me, batch, *arguments)

    def _computed(self, me: int, batch: Callable[..., T], *arguments: Any) -> T:
        inside = self._inside
        # Without a lock, which costs 2 us of 30 (digits by 64): whoever comes second sees both.
        met = inside[me] = [False]
        try:
            if len(inside) > 1:
                for other in list(inside.values()):
                    other[0] = True
            if not self.one_at_a_time:
                result = batch(*arguments)
                if met[0] and self.one_at_a_time:
                    raise Mixed
                return result
        finally:
            del inside[me]
            if self.one_at_a_time:  # Nobody waits before that.
                self._wake()
        if not self._turn.acquire(blocking=False):
            self._warn()
            self._turn.acquire()
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._inside)
                self._inside[me] = [False]
            try:
                return batch(*arguments)
            finally:
                del self._inside[me]
                self._wake()
        finally:
            self._turn.release()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "the data set or a transform returns memory that it fills again, so that one "
                "thread at a time computes a batch: return new arrays (and constant ones "
                "read-only), or use processes"
            )

    def watch(self, number: Any, sample: Any) -> None:
        """Look at one of the first samples: is its memory that of another one?

        While a sample is kept here, nobody but its owner can put another one into its memory.
        """
        with self._changed:
            if self.watching:
                self._look(number, sample)

    def _look(self, number: Any, sample: Any) -> None:
        for leaf in flatten(sample)[0]:
            if hasattr(leaf, "asnumpy") or not hasattr(leaf, "__array__"):
                continue
            array = to_array(leaf)
            if not array.nbytes or array.dtype.hasobject or isinstance(leaf, np.generic):
                continue
            address = array.__array_interface__["data"][0]
            now = number, zlib.crc32(array.tobytes())
            before = self._seen.setdefault(address, now)
            # What stays the same, such as a mask, or what a list holds twice, is not filled
            # again; but two threads that fill it at once may find the same in it, too.
            met = self._inside.get(threading.get_ident(), (False,))[0]
            if before[0] != number:
                same = before[1] == now[1]
                if same and not met:
                    self._shared.add(address)
                if not same or (array.flags.writeable and met and address not in self._shared):
                    self.one_at_a_time = True
            self._kept += [leaf, array]
            self._kept_bytes += array.nbytes
        self._left -= 1
        several = self._left < _WATCHED_SAMPLES - 1
        full = self._left <= 0 or (several and self._kept_bytes > _WATCHED_BYTES)
        if self.one_at_a_time or full:
            self.watching = False
            self._seen, self._kept = {}, []


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _renew_locks() -> None:
    for turns in list(_all):
        turns.renew_locks()


os.register_at_fork(after_in_child=_renew_locks)
