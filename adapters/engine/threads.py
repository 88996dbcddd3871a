"""Worker threads: for work that waits or that releases the GIL."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from adapters.assemble import Assembled, Plan, aligned_empty
from adapters.collate import LayoutChanged
from adapters.engine.jobs import Done, Job, Kind, Pending
from adapters.structure import unflatten


class Threads:
    """A crew of threads.

    Args:
        plan: What is computed.
        count: Threads.
    """

    name = "threads"

    def __init__(self, plan: Plan, count: int) -> None:
        self._plan = plan
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="adapters-worker")
        # All of them start here and now. TensorFlow asks for batches from a thread of its own, and
        # if that started any, Python would keep a dummy thread for it.
        started = threading.Event()
        try:
            for _ in range(count):
                self._pool.submit(started.wait)
        finally:
            started.set()

    def submit(self, job: Job, done: Done) -> None:
        """Have a thread do the job."""
        self._pool.submit(self._run, job, done)

    def allocate(self, pending: Pending) -> None:
        """Make the batch's arrays."""
        assert pending.layout is not None
        pending.memory = pending.layout.allocate(pending.samples, aligned_empty)

    def collect(self, pending: Pending) -> Assembled:
        """The batch."""
        if pending.outcome is None:
            assert pending.layout is not None
            batch = unflatten(pending.layout.skeleton, pending.memory)
            return Assembled(batch, pending.layout, pending.skipped)
        return pending.outcome

    def discard(self, pending: Pending) -> None:
        """Nothing outlives the batch's arrays."""

    def refresh(self) -> None:
        """Threads look at the source itself."""

    def restart(self) -> None:
        """Threads don't die."""

    def close(self, wait: bool) -> None:
        """Let running jobs end, and drop the others."""
        # Not current_thread(), which would leave a dummy behind for a thread of TensorFlow's.
        own = threading.get_ident() in {thread.ident for thread in self._pool._threads}
        self._pool.shutdown(wait=wait and not own, cancel_futures=True)

    def _run(self, job: Job, done: Done) -> None:
        started = time.perf_counter()
        for pending in job.batches:
            if pending.dropped:
                continue
            try:
                self._compute(job, pending)
            except LayoutChanged:
                pending.layout_changed = True
            except BaseException as error:  # Belongs to whoever asks for the batch.
                pending.error = error
        job.seconds = time.perf_counter() - started
        done(job)

    def _compute(self, job: Job, pending: Pending) -> None:
        epoch, index = pending.epoch, pending.index
        if job.kind is Kind.WHOLE:
            pending.outcome = self._plan.batch(epoch, index, aligned_empty)
            self._plan.settle(pending.outcome)
            return
        assert pending.layout is not None
        if job.kind is Kind.PART:
            rows = [column[job.start : job.stop] for column in pending.memory]
            job.skipped = self._plan.part(epoch, index, job.start, rows, pending.layout)
        else:
            batch = self._plan.finish(
                epoch, index, unflatten(pending.layout.skeleton, pending.memory)
            )
            pending.outcome = Assembled(batch, pending.layout, pending.skipped)
