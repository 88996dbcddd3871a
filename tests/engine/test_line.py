"""The trainer's end of a worker's socket waits for nobody, whatever is sent and however slowly."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest

from adapters.engine import pool, process
from adapters.engine import process as module
from adapters.engine.process import Line
from adapters.engine.worker import FORGET
from tests.engine.executors import end_idle_workers, opened, read, wait_until
from tests.engine.workloads import Numbers
from tests.plans import batch_of, plan_of

LARGE = 3_000_000


@pytest.fixture
def ends() -> Any:
    here, there = multiprocessing.Pipe()
    line = Line(here)
    yield line, there
    line.close()
    there.close()


def test_what_the_socket_does_not_take_goes_later(ends):
    line, there = ends
    messages = [bytes([number]) * size for number, size in enumerate([0, 1, LARGE, 5, LARGE])]
    for message in messages:
        line.put(message)
    assert line.is_full
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.extend(there.recv_bytes() for _ in messages))
    reader.start()
    while line.is_full:
        line.flush()
    reader.join()
    assert heard == messages


def test_what_was_sent_is_counted_when_ctrl_c_comes_right_behind(ends, monkeypatch):
    """Python looks for signals as a call of its own returns; nothing may be left to note then."""
    line, there = ends

    class Interrupted(module._Unsent):
        def send(self, descriptor: int) -> None:
            super().send(descriptor)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_Unsent", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            line.put(b"once")
    line.put(b"end")
    assert [there.recv_bytes() for _ in range(2)] == [b"once", b"end"]
    assert not there.poll()


def test_messages_that_come_in_pieces_are_taken_whole(ends):
    line, there = ends
    messages = [b"", b"x" * LARGE, b"y", b"z" * LARGE]
    writer = threading.Thread(target=lambda: [there.send_bytes(each) for each in messages])
    writer.start()
    taken: list[bytes] = []
    while len(taken) < len(messages):
        taken += line.take()
    writer.join()
    assert taken == messages
    assert line.take() == []


def test_the_end_comes_after_the_last_message(ends):
    line, there = ends
    there.send_bytes(b"last")
    there.close()
    assert line.take() == [b"last"]
    with pytest.raises(EOFError):
        line.take()
    with pytest.raises(BrokenPipeError):
        line.put(b"x" * LARGE)
    assert not line.is_full


# --- of workers ---


class Keys:
    """Samples are known by long names, and are as long."""

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, key: str) -> str:
        return key + " words"


def test_long_jobs_and_long_answers_do_not_wait_for_each_other():
    gluon = pytest.importorskip("adapters.gluon", exc_type=ImportError)
    keys = ["d" * 150 + f"{number:06d}" for number in range(60_000)]
    batches = [keys[start : start + 4_000] for start in range(0, len(keys), 4_000)]
    with gluon.gluon_loader(
        Keys(),
        batch_sampler=batches,
        batchify_fn=list,
        num_workers=1,
        thread_pool=False,
        prefetch=6,
        timeout=30,
    ) as loader:
        assert [list(batch) for batch in loader] == [[k + " words" for k in b] for b in batches]


def test_a_worker_is_told_to_forget_only_what_it_knows(monkeypatch):
    """Else the socket of one that is at a long job would fill up."""
    own, told = process.Worker.send, []

    def send(worker: Any, call: Any, *message: Any) -> bool:
        if message[0] == FORGET:
            told.append((worker.pid, message[1]))
        return own(worker, call, *message)

    monkeypatch.setattr(process.Worker, "send", send)
    with opened(Numbers(8), "processes-1") as held:
        read(held, 1)
        with opened(Numbers(8), "processes-1") as engine:
            read(engine, 1)
            (worker,) = engine._dispatcher._executor._workers
            serial = engine._dispatcher._executor._serialized.plan_number
        wait_until(lambda: serial in [forgotten for _, forgotten in told])
    assert [pid for pid, forgotten in told if forgotten == serial] == [worker.pid]


def test_what_is_needed_no_longer_is_said_from_within_a_sending_too():
    """The garbage collector may come there."""
    with opened(Numbers(8), "processes-1") as engine:
        read(engine, 1)
        executor = engine._dispatcher._executor
        (worker,) = executor._workers
        with worker._lock:
            forgetting = threading.Thread(
                target=pool.shared_pool().forget, args=(executor._serialized.plan_number,)
            )
            forgetting.start()
            forgetting.join(20)
            assert not forgetting.is_alive()


@pytest.mark.parametrize("sent", [False, True])
def test_after_ctrl_c_while_a_job_was_sent_all_batches_come(sent, monkeypatch):
    """Twice, where one worker has two jobs at most; before the sending, or after it."""
    own, calls, main = process.Worker.send, [], threading.main_thread()

    def send(worker: Any, call: Any, *message: Any) -> bool:
        if call is not None and call.job and threading.current_thread() is main:
            calls.append(call)
            if len(calls) in (2, 3):
                if sent:
                    own(worker, call, *message)
                raise KeyboardInterrupt
        return own(worker, call, *message)

    with opened(Numbers(200), "processes-1", 4, queue=6) as engine:
        read(engine, 3)
        monkeypatch.setattr(process.Worker, "send", send)
        interrupted = 0
        while interrupted < 2:  # The pool's thread may have sent all of a pass.
            try:
                read(engine, 40)
            except KeyboardInterrupt:
                interrupted += 1
        expected = batch_of(plan_of(Numbers(200), 4), 0, 49)
        np.testing.assert_array_equal(read(engine, 50)[49], expected)
    # CPython 3.11 may crash when a method is put back while a thread, here the pool's, is in it.
    end_idle_workers()
