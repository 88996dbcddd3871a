"""The file of decoded samples: who is killed, damages it or has no room harms nobody."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Cache, ImageDecoder, open_records
from adapters.generators import DECODE, Generators
from adapters.sources import slotfile
from adapters.sources.slotfile import NOT_THERE, SlotFile
from tests.forking import forks
from tests.sources.record_files import jpeg_file

COUNT = 40
HASH = "0" * 32


def cache(folder: Path, limit: Any = "1GB") -> Cache:
    return Cache(folder / "kept", limit, decoded=True)


def opened(folder: Path, limit: Any = "1GB", name: str = "one", count: int = COUNT) -> SlotFile:
    return SlotFile(cache(folder, limit), f"{HASH}-{name}", "about it", count)


def parts(number: int, size: int = 1000) -> list[bytes]:
    """Two members of a sample; no two samples have the same."""
    return [bytes([number]) * (size + number), number.to_bytes(8, "little")]


def put(file: SlotFile, number: int, size: int = 1000, stamp: int = 0) -> bool:
    return file.put(number, stamp, parts(number, size))


def found(file: SlotFile, stamps_of: Any = None) -> dict[int, list[bytes]]:
    """All samples that it has."""
    begins = file.find(np.arange(COUNT), stamps_of)
    there = np.flatnonzero(begins != NOT_THERE)
    starts, sizes = file.parts(begins[there], 2)
    view = file.view()
    return {
        int(number): [bytes(view[at : at + size]) for at, size in zip(own, length)]
        for number, own, length in zip(there, starts.tolist(), sizes.tolist())
    }


def path_of(folder: Path) -> Path:
    ((_, _, path),) = cache(folder).samples()
    return Path(path)


def test_samples_are_found_by_any_process(tmp_path):
    file = opened(tmp_path)
    assert found(file) == {}
    numbers = [7, 39, 0, 7]
    assert all(put(file, number) for number in numbers)
    assert found(file) == found(opened(tmp_path)) == {n: parts(n) for n in sorted(set(numbers))}
    assert file.are_filled(np.array([7, 8])).tolist() == [True, False]


def test_what_another_one_wrote_later_is_seen(tmp_path):
    first, second = opened(tmp_path), opened(tmp_path)
    put(first, 1, 3 << 20)  # More than is mapped.
    assert found(second) == {1: parts(1, 3 << 20)}
    put(second, 2)
    assert found(first)[2] == parts(2)


def test_a_sample_of_another_stamp_is_not_there(tmp_path):
    file = opened(tmp_path)
    put(file, 3, stamp=5)
    assert found(file, lambda numbers: [4]) == {}
    assert found(file, lambda numbers: [None]) == {}
    assert list(found(file, lambda numbers: [5])) == [3]


def test_many_threads_write_to_places_of_their_own(tmp_path):
    file = opened(tmp_path)
    threads = [
        threading.Thread(target=lambda own=own: [put(file, n) for n in range(own, COUNT, 4)])
        for own in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(file) == {number: parts(number) for number in range(COUNT)}


@forks
def test_a_forked_process_has_no_room_of_its_parent(tmp_path):
    file = opened(tmp_path)
    put(file, 0)
    child = os.fork()
    if not child:
        try:
            put(file, 1)
        finally:
            os._exit(0)
    put(file, 2)
    os.waitpid(child, 0)
    assert found(opened(tmp_path)) == {number: parts(number) for number in range(3)}


def test_every_flipped_bit_is_a_sample_that_is_not_there(tmp_path):
    """Whatever is damaged, what is found is right, and it can be filled anew."""
    file = opened(tmp_path)
    for number in (0, 5):
        put(file, number, 20)
    del file
    path = path_of(tmp_path)
    os.truncate(path, 16 << 10)  # Behind that there is nothing.
    whole = path.read_bytes()
    first = whole.index(parts(0, 20)[0]) - 8
    places = [*range(32), *range(4096, 4136), *range(first, first + 64)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        again = opened(tmp_path)
        for number, value in found(again).items():
            assert value == parts(number, 20)
        had = list(found(again))
        put(again, 0, 20)
        assert found(again) == {number: parts(number, 20) for number in {*had, 0}}
        del again


@pytest.mark.parametrize("size", [0, 1, 31, 4096, 5000])
def test_a_file_that_was_cut_is_begun_anew(tmp_path, size):
    file = opened(tmp_path)
    put(file, 4)
    del file
    os.truncate(path_of(tmp_path), size)
    again = opened(tmp_path)
    assert found(again) == {}
    put(again, 4)
    assert found(again) == {4: parts(4)}


@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_who_is_killed_between_two_writes(tmp_path, monkeypatch, write, share):
    """Header, room, slot, entry: each may be there in part, and nothing after it."""
    calls = [0]

    class Killed(BaseException):
        pass

    def written(descriptor: int, given: list[bytes], offset: int) -> None:
        calls[0] += 1
        data = b"".join(given)
        os.pwrite(
            descriptor, data[: int(len(data) * (1.0 if calls[0] <= write else share))], offset
        )
        if calls[0] > write:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(slotfile, "_write", written)
        with pytest.raises(Killed):
            put(opened(tmp_path), 6)
    again = opened(tmp_path)
    assert found(again) == {}
    assert put(again, 6)
    assert found(again) == {6: parts(6)}


def test_data_that_the_disk_lost_are_noticed(tmp_path):
    """After a power failure, entries may be there without their slots."""
    file = opened(tmp_path)
    put(file, 6)
    with path_of(tmp_path).open("r+b") as written:
        written.seek(path_of(tmp_path).read_bytes().index(parts(6)[0]))
        written.write(bytes(500))
    assert found(opened(tmp_path)) == {}


def test_room_of_the_killed_is_used_again(tmp_path):
    for number in range(30):
        file = opened(tmp_path, 8 << 20)
        assert put(file, number), "each took a 64th of the limit, or more"
        file._granted(1 << 20)
        del file
    assert len(found(opened(tmp_path))) == 30


def test_the_limit_is_said_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, "adapters")
    file = opened(tmp_path, 1 << 20)
    kept = [number for number in range(COUNT) if put(file, number, 100_000)]
    assert 5 <= len(kept) <= 10
    assert cache(tmp_path).used <= 1 << 20
    assert found(file) == {number: parts(number, 100_000) for number in kept}
    assert caplog.text.count("the limit of 1048576 bytes is reached") == 1
    assert not put(opened(tmp_path, 1 << 20), 39, 100_000)


def test_two_files_that_grow_together_stay_below_the_limit(tmp_path):
    files = [opened(tmp_path, 1 << 20, name) for name in ("one", "two")]
    kept = [put(file, number, 50_000) for number in range(COUNT) for file in files]
    assert 14 <= sum(kept) <= 21
    assert cache(tmp_path).used <= 1 << 20


def test_unused_files_make_room(tmp_path):
    """The one first that was opened longest ago; what a process has open stays."""
    for name in ("old", "new", "held"):
        put(opened(tmp_path, 1 << 20, name), 0, 300_000)
    os.utime(cache(tmp_path).samples_folder + f"/{HASH}-old.samples", ns=(1, 1))
    held = opened(tmp_path, 1 << 20, "held")
    file = opened(tmp_path, 1 << 20)
    assert put(file, 1, 300_000)
    left = {Path(path).stem.partition("-")[2] for _, _, path in cache(tmp_path).samples()}
    assert left == {"new", "held", "one"}
    assert put(file, 2, 300_000)
    assert not put(file, 3, 400_000)
    left = {Path(path).stem.partition("-")[2] for _, _, path in cache(tmp_path).samples()}
    assert left == {"held", "one"}
    assert found(held) == {0: parts(0, 300_000)}
    assert cache(tmp_path).used <= 1 << 20


def test_who_reads_from_a_removed_file_reads_on(tmp_path, caplog):
    caplog.set_level(logging.INFO, "adapters")
    file = opened(tmp_path)
    put(file, 1)
    assert cache(tmp_path).clear() > 0
    assert cache(tmp_path).samples() == []
    assert found(file) == {1: parts(1)}
    assert not put(file, 2, 5 << 20)
    assert "it was removed" in caplog.text
    other = opened(tmp_path)
    assert put(other, 3)
    assert list(found(other)) == [3]


@pytest.mark.parametrize("where", ["pwritev", "ftruncate"])
def test_a_full_disk_is_said_once(tmp_path, monkeypatch, caplog, where):
    file = opened(tmp_path)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, where, full)
    assert not any(put(file, number) for number in range(5))
    assert caplog.text.count("No space left on device") == 1
    monkeypatch.undo()
    assert found(file) == {}


def test_a_folder_that_can_not_be_written_to(tmp_path, caplog):
    (tmp_path / "kept").write_bytes(b"a file")
    path = jpeg_file(tmp_path, "recordio")
    kept = open_records(path, decode=ImageDecoder(8), cache=cache(tmp_path))
    plain = open_records(path, decode=ImageDecoder(8))
    for _ in range(2):
        np.testing.assert_array_equal(kept[1][0], plain[1][0])
    assert caplog.text.count("reading goes on without it") == 1


def test_a_file_that_is_held_by_who_makes_it_is_waited_for(tmp_path):
    opened(tmp_path)
    descriptor = os.open(path_of(tmp_path), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    waiting = threading.Thread(target=opened, args=(tmp_path,))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    os.close(descriptor)
    waiting.join(10)
    assert not waiting.is_alive()


_FILLING = """
import os, sys, numpy as np
from adapters import Cache, ImageDecoder, open_records
from adapters.generators import DECODE, Generators

def fill(seed):
    decoder = ImageDecoder(32, crop="random_resized")
    cache = Cache(sys.argv[2], "1GB", decoded=True)
    source = open_records(sys.argv[1], decode=decoder, cache=cache)
    for turn in range(seed, 10**9):
        numbers = np.random.default_rng(turn).permutation(len(source))[:8]
        rows = [np.empty((8, *shape), dtype) for shape, dtype in source.leaves]
        assert source.fill(numbers, Generators(0, 0, DECODE, numbers), rows) == []

for line in sys.stdin:
    running = []
    for each in range(2):
        child = os.fork()
        if not child:
            try:
                fill(2 * int(line) + each)
            finally:
                os._exit(1)
        running.append(child)
    print(*running, flush=True)
    print(*(os.waitpid(child, 0)[1] for child in running), flush=True)
"""


@pytest.mark.parametrize("kills", [20, pytest.param(1000, marks=pytest.mark.full)])
def test_kill_9_while_two_processes_fill(tmp_path, kills):
    """Killed at any moment, they leave a file in which whatever is found is right."""
    path = jpeg_file(tmp_path, "tfrecord", COUNT)
    decoder = ImageDecoder(32, crop="random_resized")
    folder = str(tmp_path / "kept")
    plain = open_records(path, decode=ImageDecoder())[:]
    rng, counts, longest = np.random.default_rng(0), [], 0.02
    command = [sys.executable, "-c", _FILLING, str(path), folder]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for turn in range(kills // 2):
            print(turn, file=parent.stdin, flush=True)
            for child in map(int, parent.stdout.readline().split()):
                time.sleep(rng.random() * longest)
                os.kill(child, signal.SIGKILL)
            assert parent.stdout.readline().split() == [str(int(signal.SIGKILL))] * 2
            kept = open_records(path, decode=decoder, cache=cache(tmp_path))
            file, members = kept._kept._file(), kept._kept._members
            begins = file.find(np.arange(COUNT))
            there = np.flatnonzero(begins != NOT_THERE)
            starts, sizes = file.parts(begins[there], 2)
            for number, own, length in zip(there.tolist(), starts.tolist(), sizes.tolist()):
                values = [
                    member.part.unpacked(file.view()[at : at + size])
                    for member, at, size in zip(members, own, length)
                ]
                np.testing.assert_array_equal(values[0], plain[number][0])
                assert values[1] == plain[number][1]
            counts.append(len(there))
            if not any(counts):
                longest *= 1.6  # A busy machine.
            if len(there) == COUNT:
                cache(tmp_path).clear()
        parent.stdin.close()
    assert max(counts) > 0
    numbers = np.arange(COUNT)
    whole = open_records(path, decode=decoder, cache=cache(tmp_path))
    rows = [np.empty((COUNT, *shape), dtype) for shape, dtype in whole.leaves]
    assert whole.fill(numbers, Generators(0, 0, DECODE, numbers), rows) == []
    assert not whole._kept.missing(numbers).any()
