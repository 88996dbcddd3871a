"""Killed or interrupted at any moment: nothing half is seen, and the next run goes on there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, pack
from adapters.packing import verify
from tests.packing.materials import FORMATS, SUFFIXES, files_in, finished, folder, image, jpeg

ROOT = Path(__file__).parent.parent.parent
IMAGES = 9
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
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def first_done(source: Any, out: Path, format: str, **options: Any) -> int:
    """Pack to the end: how many inputs were done already."""
    seen: list[int] = []
    progress = lambda done, total: seen.append(done)  # noqa: E731
    pack(source, out, format=format, progress=progress, **{**OPTIONS, **options})
    return seen[0] if seen else IMAGES


class Stop(Exception):
    """Ends a run as an interrupt would, in this process."""


def interrupted(source: Any, out: Path, at: int, format: str = "recordio", **options: Any) -> None:
    """Pack, up to so many inputs."""

    def progress(done: int, total: int) -> None:
        if done == at:
            raise Stop

    with pytest.raises(Stop):
        pack(source, out, format=format, progress=progress, **{**OPTIONS, **options})


# --- signals ---


@pytest.mark.parametrize("at", [0, 5, IMAGES])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_after_a_signal_the_next_run_writes_the_same_bytes(tmp_path, source, whole, at, name):
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
) -> Path:
    """A folder for each moment at which a run was killed: the first, or one after another."""
    root = tmp_path_factory.mktemp("killed")
    ended = run(AT_STEP, source, root, whole[0], request.param)
    assert ended.returncode == 0, ended.stderr
    assert len(list(root.iterdir())) > 15
    return root


def test_after_a_kill_at_any_renaming_the_next_run_writes_the_same_bytes(
    tmp_path, source, whole, killed
):
    format, expected = whole
    for place in sorted(killed.iterdir()):
        copy = shutil.copytree(place, tmp_path / place.name)
        pack(source, copy / "x", format=format, **OPTIONS)
        assert files_in(copy) == expected, place.name


def test_a_file_with_its_final_name_is_always_whole(killed):
    files = [path for path in killed.glob("*/x-*") if path.suffix in SUFFIXES.values()]
    assert files
    assert [problem for path in files for problem in verify(path)[1]] == []


def test_before_the_end_no_file_has_its_final_name(whole, killed):
    """But for those of the run before."""
    _, expected = whole
    for place in killed.iterdir():
        now = files_in(place)
        written = (place / ".x.packing/manifest.json").exists()
        ended = now.get("x.json") == expected["x.json"]
        assert written or ended or not (expected.keys() & now.keys()) - {"x.json"}


def test_a_new_manifest_is_never_ahead_of_its_files(whole, killed):
    _, expected = whole
    places = [path.parent for path in killed.glob("*/x.json")]
    new = [place for place in places if (place / "x.json").read_bytes() == expected["x.json"]]
    assert new
    assert [verify(place / "x.json") for place in new] == [(IMAGES, [])] * len(new)


# --- where the next run goes on ---


@pytest.mark.parametrize("at", range(IMAGES + 1))
def test_files_that_are_finished_are_not_written_again(tmp_path, source, whole, at):
    format, expected = whole
    interrupted(source, tmp_path / "x", at, format)
    inodes = {path.stat().st_ino for path in finished(tmp_path / ".x.packing", format)}
    count = sum(records_of(path) for path in (tmp_path / ".x.packing").glob("0*.json"))
    assert first_done(source, tmp_path / "x", format) == count
    assert inodes <= {path.stat().st_ino for path in tmp_path.iterdir()}
    assert files_in(tmp_path) == expected


def records_of(note: Path) -> int:
    return int(json.loads(note.read_text())["file"]["records"])


def test_most_of_a_run_is_kept(tmp_path, source):
    """A test that finishes nothing would prove nothing."""
    interrupted(source, tmp_path / "x", IMAGES)
    assert first_done(source, tmp_path / "x", "recordio") > IMAGES // 2


def test_a_list_goes_on(tmp_path, source):
    names = sorted(source.rglob("*.jpg"))
    lines = [f"{number}\t{number % 3}\t{name}\n" for number, name in enumerate(names)]
    (tmp_path / "x.lst").write_text("".join(lines))
    interrupted(tmp_path / "x.lst", tmp_path / "x", IMAGES)
    assert first_done(tmp_path / "x.lst", tmp_path / "x", "recordio") > 0


@pytest.mark.parametrize("labels", [list(range(IMAGES)), range(IMAGES), np.arange(IMAGES)])
def test_arrays_go_on(tmp_path, labels):
    images = np.stack([image(number) for number in range(IMAGES)])
    interrupted((images, labels), tmp_path / "x", IMAGES)
    assert first_done((images.copy(), labels), tmp_path / "x", "recordio") > 0


def test_a_source_begins_anew(tmp_path):
    samples = [(jpeg(number), number) for number in range(IMAGES)]
    interrupted(samples, tmp_path / "x", IMAGES)
    assert list(tmp_path.iterdir()) == []


def test_what_was_skipped_is_remembered(tmp_path):
    source = folder(tmp_path / "in", IMAGES)
    (source / "ant/000.jpg").write_bytes(b"no image")
    interrupted(source, tmp_path / "x", IMAGES, on_error="skip")
    manifest = pack(source, tmp_path / "x", format="recordio", on_error="skip", **OPTIONS)
    assert (manifest.read, manifest.packed) == (IMAGES, IMAGES - 1)
    assert [Path(each.name).name for each in manifest.skipped] == ["000.jpg"]


def change_a_file(source: Path) -> None:
    (source / "ant/000.jpg").write_bytes(jpeg(99))


def touch_a_file(source: Path) -> None:
    os.utime(source / "ant/000.jpg", ns=(0, 0))


def add_a_file(source: Path) -> None:
    (source / "ant/more.jpg").write_bytes(jpeg(99))


def remove_a_file(source: Path) -> None:
    (source / "bee/001.jpg").unlink()


def add_a_class(source: Path) -> None:
    """Without images; the classes after it get other labels."""
    (source / "aphid").mkdir()


@pytest.mark.parametrize(
    "change", [change_a_file, touch_a_file, add_a_file, remove_a_file, add_a_class]
)
def test_another_input_begins_anew(tmp_path, change):
    source = folder(tmp_path / "in", IMAGES)
    interrupted(source, tmp_path / "out/x", IMAGES)
    change(source)
    assert first_done(source, tmp_path / "out/x", "recordio") == 0
    pack(source, tmp_path / "new/x", format="recordio", **OPTIONS)
    assert files_in(tmp_path / "out") == files_in(tmp_path / "new")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("x", {"resize": 12}),
        ("x", {"resize": None}),
        ("x", {"shard_bytes": 2001}),
        ("x", {"quality": 80}),
        ("x", {"encoding": "raw"}),
        ("x", {"on_error": "skip"}),
        ("x", {"format": "tfrecord"}),
        ("x.rec", {}),
    ],
)
def test_other_settings_begin_anew(tmp_path, source, name, change):
    interrupted(source, tmp_path / "out/x", IMAGES)
    options = {"format": "recordio", **change}
    assert first_done(source, tmp_path / "out" / name, **options) == 0
    pack(source, tmp_path / "new" / name, **{**OPTIONS, **options})
    assert files_in(tmp_path / "out") == files_in(tmp_path / "new")


def test_another_number_of_workers_goes_on(tmp_path, source):
    interrupted(source, tmp_path / "x", IMAGES)
    assert first_done(source, tmp_path / "x", "recordio", workers=1) > 0


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"cut")])
def test_a_finished_file_that_is_gone_begins_anew(tmp_path, source, whole, damage):
    format, expected = whole
    interrupted(source, tmp_path / "x", IMAGES, format)
    damage(finished(tmp_path / ".x.packing", format)[0])
    assert first_done(source, tmp_path / "x", format) == 0
    assert files_in(tmp_path) == expected


def test_after_an_error_the_next_run_goes_on(tmp_path):
    source = folder(tmp_path / "in", IMAGES)
    good = (source / "bee/007.jpg").read_bytes()
    stamp = os.stat(source / "bee/007.jpg").st_mtime_ns
    (source / "bee/007.jpg").write_bytes(bytes(len(good)))
    os.utime(source / "bee/007.jpg", ns=(stamp, stamp))
    with pytest.raises(RecordError, match=r"007\.jpg"):
        pack(source, tmp_path / "x", format="recordio", **OPTIONS)
    (source / "bee/007.jpg").write_bytes(good)
    os.utime(source / "bee/007.jpg", ns=(stamp, stamp))
    assert first_done(source, tmp_path / "x", "recordio") > 0
