"""Memory files: nameless, shared by name, gone with their last user."""

from __future__ import annotations

import mmap
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.engine import memory
from adapters.engine.memory import SharedFile, grow, map_private


@pytest.fixture(params=["memory file", "temporary file"])
def file(request, monkeypatch, tmp_path: Path) -> Iterator[SharedFile]:
    """Of Linux, and of a system that has no memory files."""
    if request.param == "temporary file":
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = SharedFile()
    yield file
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_seen_by_all_who_have_the_name(file):
    file.grow(100)
    with file.map() as written:
        written[:5] = b"hello"
    with map_private(file.name) as seen:
        assert seen[:5] == b"hello"


def test_who_maps_privately_changes_his_own_copy(file):
    file.grow(100)
    with map_private(file.name) as mine, file.map() as shared:
        mine[:5] = b"hello"
        assert shared[:5] == bytes(5)


def test_a_mapping_outlives_its_file(file):
    file.grow(100)
    with file.map() as mapped:
        mapped[:5] = b"hello"
        file.close()
        assert mapped[:5] == b"hello"


def test_a_file_only_grows(file):
    sizes = []
    for size in (100, 50, 5000):
        file.grow(size)
        sizes.append(file.size)
    assert sizes == sorted(sizes)
    assert (sizes[0] >= 100, sizes[2] >= 5000) == (True, True)


def test_closing_twice_does_no_harm(file):
    file.close()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    file.close()
    os.close(descriptor)


def test_names_differ_though_paths_come_again():
    first = SharedFile()
    path = first.name.path
    first.close()
    second = SharedFile()
    second.close()
    assert (second.name.path, second.name != first.name) == (path, True)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_is_an_error_that_says_what_to_do_and_not_a_killed_process(file):
    expected = r"shared memory for 1,073,741,824 bytes could not be had \(.*\): use a smaller batch"
    with file_size_limit(mmap.PAGESIZE), pytest.raises(MemoryError, match=expected):
        file.grow(2**30)


def test_the_room_is_there_as_soon_as_a_file_has_grown(file):
    """Not when it is written to, as that would kill the process."""
    file.grow(2**20)
    descriptor = os.open(file.name.path, os.O_RDWR)
    try:
        assert os.fstat(descriptor).st_blocks * 512 >= 2**20
        grow(descriptor, 2**21)
        assert os.fstat(descriptor).st_blocks * 512 >= 2**21
    finally:
        os.close(descriptor)


def test_there_are_memory_files_here():
    """Otherwise half of these tests test the same thing twice."""
    assert hasattr(memory.os, "memfd_create")
