"""What crossed the wire of a cluster, and whether that or the work is the limit.

Written by the client's event loop and the threads that receive; read from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import loky

from adapters.engine.shipment import Made

# The first ones have the worker import things and open the plan.
_LEFT_OUT, _ENOUGH = 2, 8


class Traffic:
    """Sums over the batches of a crew."""

    def __init__(self) -> None:
        self.workers = 1
        """Threads that compute."""
        self.batches = 0
        self.bytes = 0
        self.made_seconds = 0.0
        """On the workers, added up over all of them."""
        self.brought_seconds = 0.0
        """In which something was on the wire."""
        self._lock = threading.Lock()
        self._under_way = 0
        self._since = 0.0
        self._left_out = _LEFT_OUT

    def begin(self) -> None:
        """An answer is on the wire from here to ``end``; several at a time share it."""
        with self._lock:
            if not self._under_way:
                self._since = time.perf_counter()
            self._under_way += 1

    def end(self) -> None:
        """It has come."""
        with self._lock:
            self._under_way -= 1
            if not self._under_way:
                self.brought_seconds += time.perf_counter() - self._since

    @contextmanager
    def bringing(self) -> Iterator[None]:
        """While an answer is on the wire."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def note(self, answers: list[Any]) -> None:
        """An answer has come."""
        made = [each for each in answers if isinstance(each, Made)]
        with self._lock:
            if self._left_out:
                self._left_out -= 1
                self.brought_seconds = 0.0
                return
            self.batches += len(made)
            self.bytes += sum(each.size_bytes for each in made)
            self.made_seconds += sum(each.spent.own_seconds for each in made)

    @property
    def batch_seconds(self) -> float:
        """What a batch takes to make; 0 before enough has come."""
        return self.made_seconds / self.batches if self.batches else 0.0

    @property
    def finding(self) -> str:
        """For people; nothing before enough has come."""
        if self.batches < _ENOUGH or not self.brought_seconds:
            return ""
        made, brought = self.made_seconds / self.batches, self.brought_seconds / self.batches
        here, cpus = made / max(1, int(loky.cpu_count())), int(loky.cpu_count())
        limit = "the network" if brought > made / self.workers else "the work"
        told = (
            f"a batch of {self.bytes / self.batches / 1e6:.3g} MB takes {1000 * made:.3g} ms to "
            f"make there and {1000 * brought:.3g} ms to bring here: {limit} is the limit"
        )
        if max(brought, made / self.workers) >= here:
            told += (
                f", and it isn't worth it: the {cpus} CPUs here would make one in "
                f"{1000 * here:.3g} ms"
            )
        return told
