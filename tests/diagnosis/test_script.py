"""A training script is run up to its first loop, which is examined; front ends come from outside.

Frameworks are imported by these tests' own process already, and stay as they are: what stands in
front of ``fit`` and of loops goes with a process. So scripts loop over a toy's batches here; those
of real frameworks are in ``tests/cli/test_doctor.py``.
"""

from __future__ import annotations

import importlib
import py_compile
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import diagnose
from adapters.diagnosis import script
from adapters.diagnosis.front_end import FRONT_ENDS
from adapters.diagnosis.script import diagnose_script
from adapters.diagnosis.sweep import sweep
from adapters.errors import ScriptError
from tests.diagnosis.planted import SECONDS, SHORT_SECONDS, Numbers, Waiting, quick_step
from tests.diagnosis.toys import ITEMS, PLAYTHINGS, Feed


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FRONT_ENDS, "playthings", "tests.diagnosis.toys")


@pytest.fixture
def playthings(registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The framework, which can be imported."""
    (tmp_path / "playthings.py").write_text(PLAYTHINGS)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: importlib.import_module("playthings")
    sys.modules.pop("playthings", None)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Examines a script of this text; the toy is the only framework."""
    toy = {name: each for name, each in FRONT_ENDS.items() if name == "playthings"}
    monkeypatch.setattr(script, "FRONT_ENDS", toy)

    def ran(text: str, *arguments: str, **options: Any) -> Any:
        path = tmp_path / "train.py"
        path.write_text(text)
        return diagnose_script(str(path), arguments, t=None, **{"seconds": SECONDS, **options})

    return ran


def test_script_leaves_the_interpreter_as_it_was(run):
    before = list(sys.argv), list(sys.path), list(sys.meta_path), sys.modules["__main__"]
    with pytest.raises(ScriptError) as caught:
        run("import sys\nsys.path.append('x')\n{}['x']")
    assert isinstance(caught.value.__cause__, KeyError)
    assert (sys.argv, sys.path, sys.meta_path, sys.modules["__main__"]) == before


@pytest.mark.parametrize("code", ["", "0"])
def test_script_that_exits_has_come_to_its_end(run, code):
    assert run(f"import sys\nsys.exit({code})") is None


@pytest.mark.parametrize(("code", "status"), [("'no data'", 1), ("2", 2)])
def test_script_that_exits_with_a_status(run, capsys, code, status):
    said = rf"exited with status {status} before .* own arguments follow after --, got \['3'\]"
    with pytest.raises(ValueError, match=said):
        run(f"import sys\nsys.exit({code})", "3")
    assert capsys.readouterr().err == ("no data\n" if "data" in code else "")


def test_module_of_a_package(tmp_path, capsys, monkeypatch):
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "names.py").write_text("mine = 'mine'")
    text = "import sys\nfrom .names import mine\nprint(__name__, mine, sys.argv[1:])"
    (tmp_path / "a_package" / "train.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert diagnose_script("a_package.train", ["3"], t=None, seconds=SECONDS) is None
    assert capsys.readouterr().out == "__main__ mine ['3']\n"
    sys.modules.pop("a_package.names"), sys.modules.pop("a_package")


@pytest.mark.parametrize("kind", ["a folder", "a zip", "compiled"])
def test_script_is_whatever_python_runs(tmp_path, capsys, kind):
    text, path = "print('ran')", tmp_path / "program"
    (tmp_path / "train.py").write_text(text)
    if kind == "compiled":
        py_compile.compile(str(tmp_path / "train.py"), str(path))
    elif kind == "a zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("__main__.py", text)
    else:
        path.mkdir()
        (path / "__main__.py").write_text(text)
    assert diagnose_script(str(path), [], t=None, seconds=SECONDS) is None
    assert capsys.readouterr().out == "ran\n"


LOOP = """
import time, playthings
from tests.diagnosis.toys import ITEMS
def note(number):
    with open({seen!r}, "a") as file:
        print(int(number), file=file)
{before}
while True:
    for batch in playthings.Bucket({data}):
        {step}
"""


@pytest.fixture
def looped(playthings: Any, run: Any, tmp_path: Path) -> Any:
    """What is found in a loop, and the numbers of the batches that its body has seen."""

    def found(step="time.sleep(0.06)", data="ITEMS", before="", **options: Any) -> Any:
        seen = tmp_path / "seen"
        step = f"note(batch[0][0]); {step}"
        text = LOOP.format(seen=str(seen), step=step, data=data, before=before)
        diagnosis = run(text, **options)
        return diagnosis, list(map(int, seen.read_text().split()))

    return found


@pytest.mark.parametrize("imported", [False, True], ids=["in the script", "before"])
def test_loop_has_its_body_for_a_step(looped, playthings, imported):
    if imported:
        playthings()
    found, _ = looped()
    assert (found.bottleneck, found.replaced) == ("step", "Feed in the place of the Bucket")
    assert found.same >= 0.06


SLOW = """
class Slow(list):
    def __iter__(self):
        for item in list.__iter__(self):
            time.sleep(0.02)
            yield item
"""


def test_loop_reads_from_its_loader(looped):
    found, _ = looped("pass", "Slow(ITEMS)", SLOW)
    assert found.bottleneck != "step"
    assert min(found.waits_seconds) >= 0.02


def test_loop_is_given_the_last_batch_again_and_again(looped):
    _, seen = looped("pass", "ITEMS[:5]", seconds=0.01)
    again = next(place for place, number in enumerate(seen) if number != place % 5)
    assert again >= 3
    assert seen[again] == seen[again - 1]


@pytest.mark.parametrize(
    ("before", "skip"),
    [
        ("for batch in playthings.Bucket(ITEMS):\n    pass\nnote(99)", 1),
        # Too short to be examined: the next one is.
        ("for batch in playthings.Bucket(ITEMS):\n    break\nnote(99)", 0),
    ],
    ids=["skipped", "too short"],
)
def test_loop_is_the_first_that_counts(looped, before, skip):
    found, seen = looped(before=before, skip=skip, seconds=SHORT_SECONDS)
    assert found.bottleneck == "step"
    assert seen[:3] == [99, 0, 1]


def test_progress_is_of_rounds(looped):
    calls: list[tuple[int, int]] = []
    looped("pass", seconds=0.01, progress=lambda *call: calls.append(call))
    assert calls[:3] == [(1, 3), (2, 3), (3, 3)]


# --- a front end from outside: one file and one line ---


def of_feed(data: Any, *arguments: Any, **options: Any) -> Any:
    feed = Feed(data, **options)
    try:
        return diagnose(feed, *arguments, seconds=SECONDS)
    finally:
        feed.close()


def test_front_ends_loader_is_taken_apart(registered):
    diagnosis = of_feed(Waiting(), quick_step, hands=2)
    assert diagnosis.bottleneck == "storage"
    assert (diagnosis.workers.kind, diagnosis.workers.count) == ("threads", 2)
    assert diagnosis.workers.keyword == "hands"


def test_front_end_without_its_line_has_foreign_loaders():
    diagnosis = of_feed(Numbers())
    assert (diagnosis.bottleneck, diagnosis.workers.kind) == ("loader", "unknown")


def test_front_ends_loader_is_tuned(registered, monkeypatch):
    monkeypatch.setattr("adapters.diagnosis.sweep.obstacle_to_processes", lambda plan: "slow here")
    feed = Feed(Numbers())
    found = sweep(feed, seconds=0.01, rounds=1)
    assert {each.kind for each in found.speeds} >= {"inline", "threads"}
    assert found.call("threads", "2") == "Feed(threads, 2)"
    feed.close()


def test_frameworks_model_is_trained(playthings):
    model = playthings().Model()
    diagnosis = of_feed(Numbers(), model)
    assert (diagnosis.whole, diagnosis.same, diagnosis.bottleneck) == (2.0, 2.0, "step")
    assert model.batches == 3 * len(diagnosis.rounds) >= 9
    with pytest.raises(ValueError, match="to_device must be None unless step is a function"):
        diagnose(ITEMS, model, to_device=lambda batch: batch)


def test_loaders_that_are_not_ours_cannot_be_swept():
    with pytest.raises(TypeError, match=r"loader must be a SafeSequence or .* got list"):
        sweep(ITEMS)


def test_front_end_is_not_imported_for_what_is_none_of_its_own(monkeypatch):
    for name in ("sys", "not_there"):
        monkeypatch.setitem(FRONT_ENDS, name, f"{name}.diagnosed")
    diagnosis = diagnose([np.zeros((4, 2))] * 3, quick_step, seconds=0.03)
    assert diagnosis.workers.kind == "unknown"
