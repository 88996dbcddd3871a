"""``CheckpointDir``: what is saved is whole and on the disk before what was there goes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.resuming import CheckpointDir, Lock


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of the disk, in its order: the call, and the path that it is about."""
    seen: list[tuple[str, str]] = []

    def watched(owner: Any, name: str, of: Any) -> None:
        plain = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            seen.append((name, of(arguments)))
            return plain(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    watched(os, "fsync", lambda given: os.readlink(f"/proc/self/fd/{given[0]}"))
    watched(os, "replace", lambda given: str(given[1]))
    watched(Path, "unlink", lambda given: str(given[0]))
    return seen


def test_each_file_is_on_the_disk_before_it_has_its_name_and_an_old_one_goes(calls, tmp_path):
    folder = CheckpointDir(tmp_path / "deeper" / "run", keep=1)
    first, second = (str(folder.path / f"{name}.npz") for name in "12")
    half = str(folder.path / f".{{}}.{os.getpid()}.tmp")
    folder.save("1", {"weights": np.zeros(3)})
    made = [("fsync", str(tmp_path / "deeper")), ("fsync", str(tmp_path))]
    saved = ("fsync", half.format(1)), ("replace", first), ("fsync", str(folder.path))
    assert calls == [*made, *saved]
    calls.clear()
    folder.save("2", {"weights": np.ones(3)})
    saved = ("fsync", half.format(2)), ("replace", second), ("fsync", str(folder.path))
    assert calls == [*saved, ("unlink", first)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_knows_no_fsync_of_folders(number, tmp_path, monkeypatch):
    """What was saved there is saved, what is too old goes, and the folder is locked."""
    plain = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, "of a folder")
        plain(file)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = CheckpointDir(tmp_path / "run", keep=1)
    if number == errno.EIO:
        with pytest.raises(OSError, match="of a folder"):
            folder.save("1", {})
        return
    for name in "123":
        folder.save(name, {"saved": name})
    assert [path.name for path in folder.path.iterdir()] == ["3.npz"]
    lock = Lock(tmp_path / "new")
    lock.take(0)
    with pytest.raises(RuntimeError, match="one training at a time"):
        Lock(tmp_path / "new").take(0)
    lock.release()


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_what_cant_be_saved_leaves_what_was_there(fails, tmp_path, monkeypatch):
    folder = CheckpointDir(tmp_path, keep=1)
    folder.save("1", {"weights": np.zeros(3)})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    where = "adapters.resuming.checkpoint_dir._write" if fails == "write" else f"os.{fails}"
    monkeypatch.setattr(where, full)
    with pytest.raises(OSError, match="No space"):
        folder.save("2", {"weights": np.ones(3)})
    assert [path.name for path in tmp_path.iterdir()] == ["1.npz"]
    assert folder.newest()["weights"].tolist() == [0, 0, 0]


def test_arrays_of_other_libraries_dtypes_have_their_shape_again(tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    saved = [np.array(1.5, bfloat16), np.ones((2, 3), bfloat16), np.float32(2.5)]
    folder = CheckpointDir(tmp_path, keep=1)
    folder.save("1", {"values": saved})
    found = folder.newest()["values"]
    assert [(each.shape, each.dtype) for each in found] == [(e.shape, e.dtype) for e in saved]
    assert all((one == other).all() for one, other in zip(found, saved))


def test_an_array_of_records_is_refused(tmp_path):
    with pytest.raises(TypeError, match="an array of records can't be saved"):
        CheckpointDir(tmp_path, keep=1).save(
            "1", {"values": np.zeros(3, [("a", "i4"), ("b", "f8")])}
        )
