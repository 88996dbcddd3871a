"""Killed or interrupted at any moment: nothing half is seen, and the next run goes on there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters import pack
from adapters.packing import Manifest, verify
from tests.packing import materials
from tests.packing.materials import FORMATS, SUFFIXES, arrays, files_in, finished, folder, jpeg

IMAGES = 9
ENDINGS = set(SUFFIXES.values())
OPTIONS: dict[str, Any] = {"resize": 16, "shard_bytes": 2000, "workers": 2}
# Packs in a process that gets a signal when so many inputs are done.
AT_INPUT = """
import os, signal, sys
from adapters import pack
source, out, format, at, name = sys.argv[1:]
def progress(done, total):
    if done == int(at):
        os.kill(os.getpid(), getattr(signal, name))
pack(source, out, format=format, progress=progress, resize=16, shard_bytes=2000, workers=2)
"""
# Packs in a process of its own for each renaming or removal, and kills it just before.
AT_STEP = """
import os, shutil, signal, sys, traceback
from pathlib import Path
from adapters import pack
source, root, format, again = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
options = dict(format=format, resize=16, shard_bytes=2000, workers=1)
def killing(function):
    def step(*arguments, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return step
for at in range(1, 1000):
    place = root / f"{at:03d}"
    place.mkdir()
    if again == "again":
        pack(source, place / "x", **{**options, "shard_bytes": 4000})
    pid = os.fork()
    if not pid:
        try:
            left = at
            os.replace, os.unlink = killing(os.replace), killing(os.unlink)
            shutil.rmtree = killing(shutil.rmtree)
            pack(source, place / "x", **options)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not status:
        shutil.rmtree(place)
        sys.exit(0)
    assert os.WIFSIGNALED(status), status
sys.exit("never ended")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("in"), IMAGES)


@pytest.fixture(scope="module", params=FORMATS)
def whole(
    request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, bytes]]:
    """A format, and all that an undisturbed run writes."""
    out = tmp_path_factory.mktemp("whole")
    manifest = pack(source, out / "x", format=request.param, **OPTIONS)
    assert [each.records for each in manifest.files] == [4, 4, 1] or len(manifest.files) > 2
    return request.param, files_in(out)


def run(script: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        cwd=materials.ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def first_done(source: Any, out: Path, format: str, **options: Any) -> int:
    seen: list[int] = []
    progress = lambda done, total: seen.append(done)  # noqa: E731
    pack(source, out, format=format, progress=progress, **{**OPTIONS, **options})
    return seen[0] if seen else IMAGES


# What is renamed when is the same for all formats.
one_format = pytest.mark.parametrize("whole", FORMATS[:1], indirect=True)


class Stop(Exception):
    """Ends a run as an interrupt would, in this process."""


def interrupted(source: Any, out: Path, at: int, format: str = "recordio", **options: Any) -> None:
    def progress(done: int, total: int) -> None:
        if done == at:
            raise Stop

    with pytest.raises(Stop):
        pack(source, out, format=format, progress=progress, **{**OPTIONS, **options})


# --- signals ---


@pytest.mark.parametrize(
    ("whole", "name", "at"),
    [("tfrecord", "SIGKILL", 5), ("recordio", "SIGINT", IMAGES)],
    indirect=["whole"],
)
def test_signal_is_followed_by_the_same_bytes(tmp_path, source, whole, name, at):
    format, expected = whole
    ended = run(AT_INPUT, source, tmp_path / "x", format, at, name)
    assert ended.returncode == -getattr(signal, name), ended.stderr
    assert {Path(file).parts[0] for file in files_in(tmp_path)} == {".x.packing"}
    pack(source, tmp_path / "x", format=format, **OPTIONS)
    assert files_in(tmp_path) == expected


@pytest.fixture(scope="module", params=["first", pytest.param("again", marks=pytest.mark.full)])
def killed(
    request: pytest.FixtureRequest,
    source: Path,
    whole: tuple[str, dict[str, bytes]],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Path]:
    """A folder for each moment at which a run was killed: the first, or one after another."""
    root = tmp_path_factory.mktemp("killed")
    ended = run(AT_STEP, source, root, whole[0], request.param)
    assert ended.returncode == 0, ended.stderr
    assert len(list(root.iterdir())) > 15
    return sorted(root.iterdir())


@one_format
def test_kill_at_any_renaming_leaves_whole_files(whole, killed):
    """None has its final name before the end, and no manifest is ahead of its files."""
    _, expected = whole
    files = [path for place in killed for path in place.glob("x-*") if path.suffix in ENDINGS]
    assert files
    assert [problem for path in files for problem in verify(path)[1]] == []
    ended = [place for place in killed if files_in(place).get("x.json") == expected["x.json"]]
    assert ended
    assert [verify(place / "x.json") for place in ended] == [(IMAGES, [])] * len(ended)
    for place in killed:
        named = any("x-0" in each.read_text() for each in place.glob(".x.packing/manifest.json"))
        if place not in ended and not named:
            assert not (expected.keys() & files_in(place).keys()) - {"x.json"}


@one_format
def test_kill_at_any_renaming_is_followed_by_the_same_bytes(tmp_path, source, whole, killed):
    format, expected = whole
    for place in killed:
        copy = shutil.copytree(place, tmp_path / place.name)
        pack(source, copy / "x", format=format, **OPTIONS)
        assert files_in(copy) == expected, place.name


# --- where the next run goes on ---


@pytest.mark.parametrize(
    ("whole", "at"), [("tfrecord", 0), ("tfrecord", 5), ("recordio", IMAGES)], indirect=["whole"]
)
def test_finished_files_are_not_written_again(tmp_path, source, whole, at):
    format, expected = whole
    interrupted(source, tmp_path / "x", at, format)
    folder = tmp_path / ".x.packing"
    inodes = {path.stat().st_ino for path in finished(folder)}
    count = sum(Manifest.load(each).packed for each in folder.glob("manifest.json"))
    assert count > IMAGES // 2 or at < IMAGES
    assert first_done(source, tmp_path / "x", format) == count
    assert inodes <= {path.stat().st_ino for path in tmp_path.iterdir()}
    assert files_in(tmp_path) == expected


@pytest.mark.parametrize("kind", ["a folder, with other workers", "arrays"])
def test_next_run_goes_on(tmp_path, source, kind):
    given = arrays(IMAGES) if kind == "arrays" else source
    interrupted(given, tmp_path / "x", IMAGES)
    assert first_done(given, tmp_path / "x", "recordio", workers=1) > 0


def test_next_run_of_a_source_begins_anew(tmp_path):
    samples = [(jpeg(number), number) for number in range(IMAGES)]
    interrupted(samples, tmp_path / "x", IMAGES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda source: (source / "ant/000.jpg").write_bytes(jpeg(99)),
        lambda source: os.utime(source / "ant/000.jpg", ns=(0, 0)),
        lambda source: (source / "ant/more.jpg").write_bytes(jpeg(99)),
        lambda source: (source / "bee/001.jpg").unlink(),
        lambda source: (source / "aphid").mkdir(),  # The classes after it get other labels.
    ],
    ids=["changed", "touched", "added", "removed", "a class without images"],
)
def test_next_run_of_another_input_begins_anew(tmp_path, change):
    source = folder(tmp_path / "in", IMAGES)
    interrupted(source, tmp_path / "out/x", IMAGES)
    change(source)
    assert first_done(source, tmp_path / "out/x", "recordio") == 0
    pack(source, tmp_path / "new/x", format="recordio", **OPTIONS)
    assert files_in(tmp_path / "out") == files_in(tmp_path / "new")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x", {"resize": None}),
        ("x", {"shard_bytes": 2001}),
        ("x", {"quality": 80}),
        ("x", {"encoding": "raw"}),
        ("x", {"on_error": "skip"}),
        ("x", {"format": "tfrecord"}),
        ("x", {"seed": 2}),
        ("x.rec", {}),
    ],
)
def test_next_run_with_other_settings_begins_anew(tmp_path, source, name, change):
    interrupted(source, tmp_path / "out/x", IMAGES)
    options = {"format": "recordio", **change}
    assert first_done(source, tmp_path / "out" / name, **options) == 0
    pack(source, tmp_path / "new" / name, **{**OPTIONS, **options})
    assert files_in(tmp_path / "out") == files_in(tmp_path / "new")


@one_format
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"cut")])
def test_next_run_without_a_finished_file_begins_anew(tmp_path, source, whole, damage):
    format, expected = whole
    interrupted(source, tmp_path / "x", IMAGES, format)
    damage(finished(tmp_path / ".x.packing")[0])
    assert first_done(source, tmp_path / "x", format) == 0
    assert files_in(tmp_path) == expected


def test_next_run_knows_what_was_skipped(tmp_path):
    source = folder(tmp_path / "in", IMAGES)
    (source / "ant/000.jpg").write_bytes(b"no image")
    interrupted(source, tmp_path / "x", IMAGES, on_error="skip")
    manifest = pack(source, tmp_path / "x", format="recordio", on_error="skip", **OPTIONS)
    assert (manifest.read, manifest.packed) == (IMAGES, IMAGES - 1)
    assert [Path(each.name).name for each in manifest.skipped] == ["000.jpg"]


def test_stopped_while_renaming_then_packed_otherwise(source, tmp_path, monkeypatch):
    rename = os.replace

    def replace(file: Any, name: Any) -> None:
        if "x-00001-of" in str(name):
            raise Stop
        rename(file, name)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(Stop):
        pack(source, tmp_path / "x", format="recordio", **OPTIONS)
    pack(source, tmp_path / "x", format="recordio", **{**OPTIONS, "shard_bytes": 10**6})
    assert verify(tmp_path / "x-*.rec") == (IMAGES, [])
