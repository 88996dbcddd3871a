"""Indexes in the user's cache folder: how much of them is kept, and which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.records import indexcache
from tests.records.materials import forbid_scan, read, written


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where indexes are kept; each time, it is looked how much there is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(indexcache, "_LOOK_FILES", 1)
    return tmp_path / "cache" / "loader-adapters" / "indexes"


def test_an_index_that_was_kept_saves_the_search(folder, tmp_path, monkeypatch):
    path = written(tmp_path, "recordio", [b"one", b"two"])
    assert read(path) == [b"one", b"two"]
    forbid_scan(monkeypatch, "recordio")
    assert read(path) == [b"one", b"two"]


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_BYTES"])
def test_what_was_used_last_is_kept(limit, folder, tmp_path, monkeypatch):
    paths = [written(tmp_path, "recordio", [b"one", b"two"], f"file{place}") for place in range(5)]
    names = []
    for place, path in enumerate(paths):
        before = set(os.listdir(folder)) if folder.is_dir() else set()
        if place == 4:
            size = (folder / names[0]).stat().st_size
            monkeypatch.setattr(indexcache, limit, 3 if limit == "_MOST_FILES" else 3 * size)
        read(path)
        (name,) = set(os.listdir(folder)) - before
        os.utime(folder / name, (place + 1, place + 1))
        names.append(name)
        read(paths[0])  # It is used again, and so isn't the oldest.
    assert sorted(os.listdir(folder)) == sorted([names[0], names[3], names[4]])


def test_what_is_larger_than_all_that_is_kept_is_not(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(indexcache, "_MOST_BYTES", 16)
    assert read(written(tmp_path, "recordio", [b"one", b"two"])) == [b"one", b"two"]
    assert not folder.exists()


@pytest.mark.parametrize("failing", ["replace", "mkdir"])
def test_an_index_that_cannot_be_written_whole_is_not_there(failing, folder, tmp_path, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, failing, refused)
    assert read(written(tmp_path, "recordio", [b"one", b"two"])) == [b"one", b"two"]
    assert not folder.exists() or os.listdir(folder) == []
