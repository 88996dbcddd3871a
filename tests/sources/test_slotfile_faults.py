"""The file of decoded samples: numbers in it that are wrong, and who interferes."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from adapters.sources import slotfile
from adapters.sources.slotfile import _ENTRY
from tests.forking import forks
from tests.sources.test_slotfile import cache, found, opened, parts, path_of, put


@forks
def test_threads_of_a_forked_process_have_rooms_of_their_own(tmp_path):
    """Whichever of them is first, and whoever held the lock when it was forked."""
    file = opened(tmp_path)
    put(file, 0)
    room = file._room
    with file._lock:
        child = os.fork()
        if not child:
            try:
                is_free = file._lock.acquire(blocking=False)
                os._exit(0 if is_free and file._room == (0, 0) else 1)
            finally:
                os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert file._room == room


@pytest.mark.parametrize("bit", [1, 2, 1 << 25])
def test_a_flipped_bit_of_the_last_size_harms_no_sample_that_comes_after(tmp_path, bit):
    """Where the file was told to end, by an entry that isn't right, nobody begins."""
    file = opened(tmp_path)
    for number in (0, 1):
        put(file, number, 20)
    del file
    size = 4096 + _ENTRY.itemsize + _ENTRY.fields["size"][1]
    with path_of(tmp_path).open("r+b") as written:
        written.seek(size)
        was = int.from_bytes(written.read(8), "little")
        written.seek(size)
        written.write((was ^ bit).to_bytes(8, "little"))
    again = opened(tmp_path)
    for number in (1, 2, 3):
        assert put(again, number, 20)
    assert int.from_bytes(path_of(tmp_path).read_bytes()[8:16], "little") < 8 << 20
    assert found(again) == found(opened(tmp_path)) == {n: parts(n, 20) for n in range(4)}


def test_a_slot_that_begins_nowhere_is_not_there(tmp_path):
    """Its entry is right, and no number of it can be read in one go."""
    file = opened(tmp_path)
    put(file, 0)
    file._room = (file._room[0] + 3, file._room[1])
    put(file, 1)
    assert found(opened(tmp_path)) == {0: parts(0)}


def test_a_sample_for_which_there_is_no_room_leaves_it_to_smaller_ones(tmp_path, monkeypatch):
    """What was too large once isn't tried again; that the limit is reached is said once."""
    file = opened(tmp_path, 1 << 20)
    assert not put(file, 1, 2 << 20)
    assert put(file, 2, 1000)
    assert not put(file, 3, 1 << 20)
    assert put(file, 4, 100_000)
    assert set(found(file)) == {2, 4}
    monkeypatch.setattr(slotfile.SlotFile, "_granted", None)  # Nobody asks.
    assert not put(file, 5, 1 << 20)
    assert not put(file, 6, 3 << 20)


def test_a_table_that_is_larger_than_the_limit_is_not_made(tmp_path, caplog):
    """40 bytes for each sample; other files go for it, if nobody has them open."""
    with pytest.raises(OSError, match=r"27,000 samples.*limit of 1,048,576 bytes"):
        opened(tmp_path, 1 << 20, count=27_000)
    assert cache(tmp_path).samples() == []
    put(opened(tmp_path, 1 << 20, "old"), 0, 300_000)
    file = opened(tmp_path, 1 << 20, count=20_000)
    assert [Path(path).stem.partition("-")[2] for _, _, path in cache(tmp_path).samples()] == [
        "one"
    ]
    with pytest.raises(OSError, match="20,000 samples"):
        opened(tmp_path, 1 << 20, "other", count=20_000)
    assert put(file, 0)
    assert cache(tmp_path).used <= 1 << 20
    assert not caplog.text


@pytest.mark.parametrize("before", ["open", "makedirs"])
def test_who_clears_while_it_is_opened_makes_no_difference(tmp_path, monkeypatch, before):
    real, calls = getattr(os, before), [0]

    def after_clearing(*given: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1 and before == "makedirs":
            raise FileExistsError(errno.EEXIST, "It was there, and is not")
        if calls[0] == 1:
            cache(tmp_path).clear()
        return real(*given, **options)

    monkeypatch.setattr(slotfile.os, before, after_clearing)
    file = opened(tmp_path)
    assert calls[0] > 1
    assert put(file, 1)
    assert found(file) == {1: parts(1)}
