"""Packed by somebody's executor or by a Dask cluster: the bytes are those of threads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters import RecordError, open_images, open_records, pack
from adapters.cli import main
from adapters.packing import verify
from tests.cli.scripts import ended
from tests.clusters import cluster
from tests.forking import forks
from tests.packing.materials import ROOT, accounted, arrays, files_in, folder, jpeg

IMAGES = 40
OPTIONS: dict[str, Any] = {"format": "recordio", "resize": 16, "shard_bytes": 4000, "seed": None}


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    with cluster() as client:
        yield client


@pytest.fixture(scope="module", params=["processes", "dask"])
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "dask":
        yield request.getfixturevalue("dask")
        return
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        [each.result() for each in [pool.submit(os.getpid) for _ in range(8)]]
        yield pool


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = folder(tmp_path_factory.mktemp("in"), IMAGES)
    (root / "bee/017.jpg").write_bytes(b"no image")
    return root


def a_list(photos: Path) -> Path:
    """Relative to its folder."""
    names = sorted(photos.rglob("*.jpg"))
    lines = [f"{n}\t{n % 3}\t{name.relative_to(photos.parent)}\n" for n, name in enumerate(names)]
    path = photos.parent / f"{photos.name}.lst"
    path.write_text("".join(lines))
    return path


def samples(photos: Path) -> Any:
    return [(jpeg(n) if n != 9 else b"no image", n / 2) for n in range(IMAGES)]


def records(photos: Path) -> Any:
    path = photos.parent / "records.rec"
    pack(arrays(IMAGES), path, format="recordio", encoding="raw")
    return open_records(path, decode="image")


SOURCES: dict[str, Callable[[Path], Any]] = {
    "relative folder": lambda photos: os.path.relpath(photos),
    "list": a_list,
    "selected": lambda photos: open_images(photos).select(range(3, 30)),
    "arrays": lambda photos: arrays(IMAGES),
    "samples": samples,
    "records": records,
}


@pytest.mark.parametrize(
    ("executor", "kind"),
    [
        *(("processes", kind) for kind in SOURCES),
        *(("dask", kind) for kind in ("relative folder", "arrays")),
    ],
    indirect=["executor"],
)
def test_executor_writes_the_bytes_of_threads(tmp_path, photos, executor, kind):
    source = SOURCES[kind](photos)
    expected = pack(source, tmp_path / "local/x", on_error="skip", **OPTIONS)
    seen: list[tuple[int, int]] = []
    how: Any = {"executor": executor, "progress": lambda *told: seen.append(told)}
    found = pack(source, tmp_path / "x/x", on_error="skip", **how, **OPTIONS)
    assert found == expected
    assert accounted(found)
    assert seen == [(number, found.read) for number in range(found.read + 1)]
    assert files_in(tmp_path / "x") == files_in(tmp_path / "local")
    assert len(found.files) > 2


def test_executor_stops_at_an_error_and_goes_on_there(tmp_path, photos, executor):
    with pytest.raises(RecordError, match=r"017\.jpg, byte 0: expected an image"):
        pack(photos, tmp_path / "x", executor=executor, **OPTIONS)
    assert executor.submit(abs, -3).result() == 3  # It stays open.
    done = json.loads((tmp_path / ".x.packing/manifest.json").read_text())
    assert len(done["files"]) > 1
    seen: list[int] = []
    with pytest.raises(RecordError):
        pack(photos, tmp_path / "x", progress=lambda n, _: seen.append(n), **OPTIONS)
    assert seen[0] == done["read"]


class Twice(ThreadPoolExecutor):
    """Does everything twice, as a cluster may."""

    def submit(self, function: Any, *arguments: Any, **keywords: Any) -> Future[Any]:
        super().submit(function, *arguments, **keywords)
        return super().submit(function, *arguments, **keywords)


def test_task_that_runs_twice_changes_nothing(tmp_path, photos):
    expected = pack(photos, tmp_path / "local/x", on_error="skip", **OPTIONS)
    with Twice(2) as pool:
        found = pack(photos, tmp_path / "x/x", on_error="skip", executor=pool, **OPTIONS)
    assert found == expected
    assert files_in(tmp_path / "x") == files_in(tmp_path / "local")


@forks
def test_forked_workers_do_not_keep_the_folder_locked(tmp_path, photos):
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        with pytest.raises(RecordError, match="expected an image"):
            pack(photos, tmp_path / "x", executor=pool, **OPTIONS)
        assert pack(photos, tmp_path / "x", executor=pool, on_error="skip", **OPTIONS).packed


@pytest.mark.parametrize("executor", [3, "tcp://127.0.0.1:8786", object()])
def test_executor_that_is_none_is_refused(tmp_path, photos, executor):
    with pytest.raises(TypeError, match="executor must be a concurrent"):
        pack(photos, tmp_path / "x", executor=executor, **OPTIONS)
    # Who doesn't wait returns coroutines.
    client = SimpleNamespace(submit=None, scheduler_info=None, asynchronous=True)
    with pytest.raises(ValueError, match="executor must be a Dask client that waits"):
        pack(photos, tmp_path / "x", executor=client, **OPTIONS)


# --- on the command line ---


def test_dask_by_the_command_line(tmp_path, photos, dask, capsys):
    expected = pack(photos, tmp_path / "local/x", on_error="skip", **{**OPTIONS, "seed": "auto"})
    words = ["--dask", dask.scheduler.address, "--format", "recordio", "--on-error", "skip"]
    words += ["--resize", "16", "--shard-bytes", "4000"]
    assert main(["pack", str(photos), str(tmp_path / "x/x"), *words]) == 0
    assert f"{IMAGES} read, {expected.packed} packed, 1 skipped" in capsys.readouterr().out
    assert files_in(tmp_path / "x") == files_in(tmp_path / "local")


def test_dask_that_is_missing_is_named(tmp_path, photos, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["pack", str(photos), str(tmp_path / "x.rec"), "--dask", "tcp://127.0.0.1:1"]) == 1
    assert "pip install 'loader-adapters[dask]'" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["inproc://x", "tcp://host:port"])
def test_dask_address_that_is_none_ends_the_command(tmp_path, photos, address):
    """In a process of its own, which has to end, too."""
    pytest.importorskip("distributed", reason="Dask's clusters need dask.distributed")
    process = ended("pack", photos, tmp_path / "x.rec", "--dask", address)
    assert (process.returncode, process.stdout) == (1, "")
    (line,) = process.stderr.splitlines()
    rule = "the address of a Dask scheduler must be like tcp://host:8786"
    assert line.startswith(f"adapters pack: {rule}, got {address!r}: ")


# --- kills ---


# Packs on the cluster at an address, and kills itself when so many inputs are done.
CLIENT = """
import os, signal, sys
from distributed import Client
from adapters import pack
source, out, address, at = sys.argv[1:]
def progress(done, total):
    if done == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
with Client(address) as client:
    pack(source, out, format="recordio", resize=16, shard_bytes=4000, on_error="skip",
         seed=None, executor=client, progress=progress)
"""


def test_dask_client_that_is_killed_is_followed_by_another(tmp_path, photos, dask):
    expected = pack(photos, tmp_path / "local/x", on_error="skip", **OPTIONS)
    command = [sys.executable, "-c", CLIENT, photos, tmp_path / "x/x", dask.scheduler.address, "30"]
    killed = subprocess.run([*map(str, command)], cwd=ROOT, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    seen: list[int] = []
    progress = lambda done, _: seen.append(done)  # noqa: E731
    how = {"on_error": "skip", "executor": dask, "progress": progress, **OPTIONS}
    assert pack(photos, tmp_path / "x/x", **how) == expected
    assert 0 < seen[0] <= 30
    assert files_in(tmp_path / "x") == files_in(tmp_path / "local")
    assert verify(tmp_path / "x/x.json") == (IMAGES - 1, [])


@pytest.mark.full
def test_dask_workers_that_are_killed_cost_time_only(tmp_path, photos):
    expected = pack(photos, tmp_path / "local/x", on_error="skip", **OPTIONS)
    with cluster(2, "nannies") as client:

        def kill(done: int, total: int) -> None:
            if done in (3, 20):
                os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)

        how = {"on_error": "skip", "executor": client, "progress": kill, **OPTIONS}
        assert pack(photos, tmp_path / "x/x", **how) == expected
    assert files_in(tmp_path / "x") == files_in(tmp_path / "local")
