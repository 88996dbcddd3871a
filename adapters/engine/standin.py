"""Who makes the batch that is waited for, while the first process starts.

One thread computes, on a copy of the plan such as a process has: files that it opens and memory
that it fills are not the user's own objects', which must still be sent to the next processes. It
makes nothing ahead. Whoever waits draws nothing meanwhile from the generators that both share, and
gives up after the time that he has set.
"""

from __future__ import annotations

import logging

from adapters.assemble import Plan
from adapters.engine.jobs import Done, Job
from adapters.engine.parcel import Address, copy_of
from adapters.engine.threads import Threads

log = logging.getLogger("adapters")


class StandIn:
    """A thread with a copy of the plan; called with the dispatcher's lock held, but ``close``."""

    def __init__(self) -> None:
        self._thread: Threads | None = None
        self._over = False
        self.busy = 0
        """Jobs that it is at: none or one."""

    def submit(self, address: Address, job: Job, done: Done) -> bool:
        """Have the thread do the job.

        Args:
            address: Of the plan.
            job: A whole batch.
            done: Called by the thread.

        Returns:
            False where it is over, or the plan can only be opened elsewhere.
        """
        if self._over or self.busy:
            return False
        if self._thread is None:
            try:
                plan: Plan = copy_of(address)
                plan.stand_in()
            except Exception as error:
                log.debug("only a process can open the plan: %r", error)
                self._over = True
                return False
            self._thread = Threads(plan, 1)

        def back(job: Job) -> None:
            self.busy = 0
            done(job)
            if self._over:
                self.close(wait=False)

        self.busy = 1
        return self._thread.submit(job, back)

    def no_more(self) -> None:
        """A process is there; what the thread is at, it ends."""
        self._over = True
        if not self.busy:
            self.close(wait=False)

    def close(self, wait: bool) -> None:
        """End the thread; with ``wait``, return when it is gone."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(wait)
