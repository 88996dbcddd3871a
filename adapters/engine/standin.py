"""Who makes the batch that is waited for, while the first process starts.

One thread computes, on a copy of the plan such as a process has: files that it opens, memory that
it fills and classes that it changes are not the user's own, which must still be sent to the next
processes. It makes nothing ahead. What has no place outside of its copy, such as an exception of a
class that a script defines, is left to a process; so are plans that draw from global generators.
"""

from __future__ import annotations

import logging
from typing import Any

from adapters.batch.key import BatchKey
from adapters.batch.plan import Allocate, Assembled, LayoutChanged
from adapters.engine.jobs import Done, Job
from adapters.engine.parcel import Address, copy_of
from adapters.engine.threads import Threads

log = logging.getLogger("adapters")

# Who asked for processes doesn't expect to wait for what hangs.
_PATIENCE_SECONDS = 1.0
_DEEPEST = 16


class StandIn:
    """The thread; called with the dispatcher's lock held, but for ``close``."""

    def __init__(self) -> None:
        self._copy = _Copy()
        self._thread: Threads | None = None
        self.busy = 0
        """Jobs that it is at: none or one."""

    def submit(self, address: Address, job: Job, done: Done) -> bool:
        """Have the thread do the job.

        Args:
            address: Of the plan.
            job: A whole batch.
            done: Called by the thread.

        Returns:
            False where only a process can do such jobs.
        """
        if self.busy or self._copy.fails:
            return False

        def back(job: Job) -> None:
            self.busy = 0
            done(job)

        if self._thread is None:
            self._thread = Threads(self._copy, 1)
        self.busy, self._copy.address = 1, address
        return self._thread.submit(job, back)

    def close(self, wait: bool) -> None:
        """End the thread; with ``wait``, return when it is gone, or hangs."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(wait, _PATIENCE_SECONDS)


class _Copy:
    """A plan that the thread opens that computes with it."""

    def __init__(self) -> None:
        self.address: Address | None = None
        self.fails = False
        self._opened: Address | None = None
        self._plan: Any = None
        self._classes: frozenset[type] = frozenset()

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch.

        Raises:
            LayoutChanged: It must be computed elsewhere.
            Exception: What its computation raised.
        """
        if self._opened is not self.address:
            self._open()
        try:
            assembled: Assembled = self._plan.batch(key, allocate)
        except BaseException as error:
            if self._classes.isdisjoint(type(error).__mro__):
                raise
            self._refuse("an exception")
        if self._classes and _holds(assembled.batch, self._classes):
            self._refuse("a batch")
        return assembled

    def wait_for(self, assembled: Assembled) -> None:
        """As a plan does."""
        self._plan.wait_for(assembled)

    def _open(self) -> None:
        assert self.address is not None
        try:
            self._plan, self._classes = copy_of(self.address)
            self._plan.stand_in()
        except Exception as error:
            self._refuse(repr(error))
        self._opened = self.address

    def _refuse(self, what: str) -> None:
        log.debug("only a process can compute the first batches: %s", what)
        self.fails = True
        raise LayoutChanged from None


def _holds(value: Any, classes: frozenset[type], depth: int = 0) -> bool:
    """Whether something of these classes is in a batch, or may be."""
    if type(value) in classes or depth > _DEEPEST:
        return True
    if isinstance(value, dict):
        return _holds([*value, *value.values()], classes, depth + 1)
    if isinstance(value, (list, tuple)):
        return any(_holds(member, classes, depth + 1) for member in value)
    if getattr(getattr(value, "dtype", None), "hasobject", False):
        return _holds(value.tolist(), classes, depth + 1)
    if type(value).__module__.split(".")[0] in ("builtins", "numpy", "mxnet"):
        return False
    return hasattr(value, "__dict__") and _holds(vars(value), classes, depth + 1)
