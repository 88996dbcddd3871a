"""Whatever happens to streams and to their workers, in any order: what comes next is what must.

``ADAPTERS_FUZZ_STATES=20`` tries twenty times as much.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters.engine import Engine, Settings
from adapters.engine.autotune import Choice
from adapters.engine.stream import Stream
from adapters.errors import ClosedError
from tests.batches import exact
from tests.engine.executors import wait_until, workers
from tests.engine.workloads import Numbers, SpoiltError
from tests.forking import forks
from tests.leftovers import Leftovers
from tests.plans import batch_of, plan_of

TIMES = int(os.environ.get("ADAPTERS_FUZZ_STATES", "1"))


def run(machine: Any, examples: int, steps: int, **options: Any) -> None:
    """Try so many sequences of so many steps, or ``ADAPTERS_FUZZ_STATES`` times as many."""
    counts = {"max_examples": examples * TIMES, "stateful_step_count": steps}
    limits = settings(**counts, suppress_health_check=list(HealthCheck), **options)
    stateful.run_state_machine_as_test(machine, settings=limits)


SECONDS = 20
SIZE, BATCH, SPOILT = 44, 4, 17
PLACES = st.integers(0, 1)


def spoilt(sample: int, rng: Any) -> Any:
    """A transform that raises for one sample."""
    if sample == SPOILT:
        raise SpoiltError(sample)
    return sample, rng.random()


def slowly_spoilt(sample: int, rng: Any) -> Any:
    """The same, so that workers are met at work."""
    time.sleep(0.0003)
    return spoilt(sample, rng)


class Streaming(RuleBasedStateMachine):
    """Two streams of one engine; what comes next in each is computed without workers."""

    processes = False
    counts: tuple[Any, ...] = (1, 2, 3, "auto")

    @stateful.initialize(count=st.integers(0, 3), queue=st.integers(1, 6), finishes=st.booleans())
    def begin(self, count: int, queue: int, finishes: bool) -> None:
        self.before = Leftovers.now()
        arguments: dict[str, Any] = {
            "shuffle": True,
            "batch_transform": (lambda batch: (batch[0], batch[1] + 1)) if finishes else None,
        }
        self.model = plan_of(Numbers(SIZE), BATCH, transform=spoilt, **arguments)
        transform = slowly_spoilt if self.processes else spoilt
        self.plan = plan_of(Numbers(SIZE), BATCH, transform=transform, **arguments)
        self.settings = Settings(self.counts[count], self.processes, queue)
        self.held: list[tuple[Any, Any]] = []
        self.engine = Engine(self.plan, self.settings)
        self.streams = [self.engine.stream(0, 0, False), self.engine.stream(1, 3, False)]

    # What the model says.

    def expected(self, position: tuple[int, int]) -> Any:
        try:
            return exact(batch_of(self.model, *position))
        except SpoiltError:
            return None

    def after(self, position: tuple[int, int]) -> tuple[int, int]:
        epoch, step = position
        return (epoch, step + 1) if step + 1 < self.model.num_batches else (epoch + 1, 0)

    def following(self, position: tuple[int, int], count: int) -> list[Any]:
        found = []
        for _ in range(count):
            found.append(self.expected(position))
            position = self.after(position)
        return found

    # What readers do.

    def take(self, stream: Stream) -> Any:
        """The next batch; None where its computation raised."""
        position = stream.position
        try:
            batch = stream.next()
        except SpoiltError:
            assert stream.position == position
            return None
        assert stream.position == self.after(position)
        self.held = [*self.held[-3:], (batch, exact(batch))]
        return exact(batch)

    def open(self, place: int, position: tuple[int, int]) -> None:
        self.streams[place] = self.engine.stream(*position, False)

    @rule(place=PLACES, count=st.integers(1, 4))
    def next(self, place: int, count: int) -> None:
        for _ in range(count):
            stream = self.streams[place]
            position = stream.position
            expected = self.expected(position)
            assert self.take(stream) == expected
            if expected is None:
                assert self.take(stream) is None
                stream.close()
                self.open(place, self.after(position))

    @rule(place=PLACES, count=st.integers(1, 4))
    def peek(self, place: int, count: int) -> None:
        stream = self.streams[place]
        expected = self.following(stream.position, count)
        try:
            assert [exact(batch) for batch in stream.peek(count)] == expected
        except SpoiltError:
            assert None in expected

    @rule(place=PLACES)
    def read_ahead(self, place: int) -> None:
        self.streams[place].peek(0)

    # How a stream ends.

    @rule(place=PLACES)
    def close_stream(self, place: int) -> None:
        stream = self.streams[place]
        stream.close()
        with pytest.raises(ClosedError):
            stream.next()
        self.open(place, stream.position)

    @rule(place=PLACES)
    def forget_stream(self, place: int) -> None:
        position = self.streams[place].position
        del self.streams[place]
        self.streams.insert(place, self.engine.stream(*position, False))

    @rule(place=PLACES, goes_on=st.booleans())
    def park(self, place: int, goes_on: bool) -> None:
        stream = self.streams[place]
        position = stream.position if goes_on else (0, 5)
        same = position == stream.position
        self.engine.park(stream)
        self.open(place, position)
        assert (self.streams[place] is stream, stream.closed) == (same, not same)

    # What happens to the workers.

    @rule()
    def refresh(self) -> None:
        self.engine.refresh()

    @rule(place=PLACES, whole=st.booleans())
    def close_while_somebody_reads(self, place: int, whole: bool) -> None:
        stream = self.streams[place]
        closer = threading.Thread(target=(self.engine if whole else stream).close)
        closer.start()
        with pytest.raises(ClosedError):
            self.read_for_ever(stream)
        closer.join()
        if whole:
            self.engine = Engine(self.plan, self.settings)
            self.streams = [self.engine.stream(*s.position, False) for s in self.streams]
        else:
            self.open(place, stream.position)

    def read_for_ever(self, stream: Stream) -> None:
        while True:
            expected = self.expected(stream.position)
            assert self.take(stream) == expected

    @rule(place=PLACES, count=st.integers(1, 8))
    def fork(self, place: int, count: int) -> None:
        """The child reads on, and what it finds is right; so is what this process reads."""
        child = os.fork()
        if not child:
            code = 1
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(SECONDS)
                code = 0 if self.reads_on(self.streams[place], count) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def reads_on(self, stream: Stream, count: int) -> bool:
        if self.processes:  # Which would take a second to start.
            self.engine._choose(Choice())
        for _ in range(count):
            expected = self.expected(stream.position)
            if self.take(stream) != expected:
                return False
            if expected is None:
                break
        self.engine.close()
        return True

    @invariant()
    def what_is_held_stays(self) -> None:
        assert all(exact(batch) == before for batch, before in self.held)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for stream in self.streams:
            stream.close()
        self.engine.close()
        del stream, self.streams, self.engine, self.held
        wait_until(self.nothing_is_left)

    def nothing_is_left(self) -> bool:
        if Leftovers.now().beyond(self.before):
            gc.collect()
        return not Leftovers.now().beyond(self.before)


class Processes(Streaming):
    processes, kills = True, 0
    counts = (1, 2, 2, 2)

    @precondition(lambda self: self.kills < 2)
    @rule()
    def kill(self) -> None:
        """Twice in an example: a batch that has killed its worker three times is given up."""
        self.kills += 1
        if victims := workers():
            os.kill(victims[0].pid, signal.SIGKILL)


@forks
@pytest.mark.timeout(120 * TIMES)
def test_streams_of_threads():
    run(Streaming, 12, 25)


@forks
@pytest.mark.timeout(120 * TIMES)
def test_streams_of_processes():
    run(Processes, 4, 25, phases=[Phase.reuse, Phase.generate])
