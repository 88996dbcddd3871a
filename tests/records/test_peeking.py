"""A few bytes here and there of a large file, and what takes their place where that can't be."""

from __future__ import annotations

import os
from typing import Any

import pytest

from adapters.records import peeking
from adapters.records.peeking import mapped_lightly, will_peek
from adapters.records.storage import MappedFile

SIZE, PLACES = 5 << 20, [0, 4097, (5 << 20) - 8, 6 << 20, -1]


@pytest.fixture
def content():
    return os.urandom(SIZE)


@pytest.fixture
def file(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    return MappedFile(tmp_path / "x")


def read(file: MappedFile, content: bytes) -> Any:
    will_peek(file, PLACES)
    with mapped_lightly(file) as some:
        assert (some.name, some.size) == (file.name, file.size)
        for place in PLACES[:-1]:
            assert bytes(some.read(place, 16)) == content[place : place + 16]
        return some


def test_bytes_are_those_of_the_file(file, content):
    assert read(file, content) is not file


def test_a_small_file_is_read_as_usual(content, tmp_path):
    (tmp_path / "small").write_bytes(content[:1000])
    small = MappedFile(tmp_path / "small")
    assert read(small, content[:1000]) is small


def test_without_advice_it_is_read_all_the_same(file, content, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError("not here")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    assert read(file, content) is not file


@pytest.mark.parametrize("how", ["is gone", "is another"])
def test_a_file_that_is_mapped_is_read_there(how, file, content):
    """Its name may be another file's by now."""
    assert bytes(file.read(0, 16)) == content[:16]
    os.remove(file.path)
    if how == "is another":
        with open(file.path, "wb") as other:
            other.write(bytes(SIZE))
        os.utime(file.path, ns=(1, 1))
    assert read(file, content) is file


def test_there_may_be_no_descriptor_left(file, content, monkeypatch):
    file.read(0, 16)

    def refuse(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(peeking.os, "open", refuse)
    assert read(file, content) is file
