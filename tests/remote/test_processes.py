"""Remote files in other processes: sent to workers, and after a fork."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np

from adapters import Cache, open_records
from adapters.batch.key import BatchKey
from tests.forking import forks
from tests.plans import plan_of
from tests.remote.conftest import SIZE, payloads, serve, written


def in_child(source, numbers):
    """What a forked child says of records: how many are right, or the error."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            expected = payloads()
            found = source.__getitems__(numbers)
            told = str(sum(each == expected[number] for each, number in zip(found, numbers)))
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read().decode()
    os.waitpid(child, 0)
    return told


@forks
def test_what_is_cached_can_be_read_after_a_fork(server, tmp_path):
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    with open_records(server.url(path.name), cache=Cache(tmp_path / "cache")) as source:
        numbers = list(range(0, SIZE, 3))
        source.__getitems__(numbers)
        assert in_child(source, numbers) == str(len(numbers))


@forks
def test_a_forked_process_fetches_or_says_what_to_do(server, tmp_path):
    """obstore's threads don't survive a fork; fsspec's file system is taken, where there is one."""
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source:
        source[0]
        told = in_child(source, [5, SIZE - 1])
        assert told == "2" or 'spawn"' in told


def test_a_spawned_process_opens_the_file_for_itself(server, tmp_path):
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    source = open_records(server.url(path.name))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(source.__getitems__, ([3, 200],))
        pool.close()
        pool.join()
    assert found == [payloads()[3], payloads()[200]]


def test_a_plan_tells_its_source_what_comes(server, tmp_path):
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    source = open_records(server.url(path.name))
    plan = plan_of(source, 10, shuffle=True)
    told = []
    source.expect = lambda numbers, elsewhere: told.append(numbers)
    plan.prefetch(BatchKey(0, 2), elsewhere=False)
    np.testing.assert_array_equal(told[0], plan.order.batch(0, 2))
