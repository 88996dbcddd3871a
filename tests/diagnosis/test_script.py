"""A training script is run up to its first loop, which is examined, and no further.

Frameworks are imported by these tests' own process already, and stay as they are: what stands in
front of ``fit`` and of loops goes with a process, so these scripts have none of both; those that do
are in ``tests/cli/test_doctor.py``.
"""

from __future__ import annotations

import py_compile
import statistics
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.diagnosis import script
from adapters.diagnosis.script import _Examined, _Observer, diagnose_script
from adapters.errors import ScriptError
from tests.diagnosis import planted
from tests.diagnosis.planted import SECONDS, slow_step


@pytest.fixture(autouse=True)
def no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "FRONT_ENDS", {})


def run(tmp_path: Path, text: str, *arguments: str) -> Any:
    path = tmp_path / "train.py"
    path.write_text(text)
    return diagnose_script(str(path), arguments, t=None, seconds=SECONDS)


def test_a_script_without_a_loop_finds_nothing(tmp_path):
    assert run(tmp_path, "") is None


def test_a_script_is_run_as_a_program_with_its_arguments(tmp_path):
    out = tmp_path / "out"
    text = (
        "import sys, pathlib\n"
        "if __name__ == '__main__':\n"
        f"    pathlib.Path({str(out)!r}).write_text(str(sys.argv))"
    )
    run(tmp_path, text, "--epochs", "3")
    assert out.read_text() == str([str(tmp_path / "train.py"), "--epochs", "3"])


def test_what_lies_beside_a_script_can_be_imported(tmp_path):
    (tmp_path / "lying_beside.py").write_text("")
    run(tmp_path, "import lying_beside")
    assert sys.modules.pop("lying_beside")


def test_the_interpreter_is_as_it_was_before(tmp_path):
    before = list(sys.argv), list(sys.path), list(sys.meta_path), sys.modules["__main__"]
    with pytest.raises(ScriptError):
        run(tmp_path, "import sys\nsys.path.append('x')\n1 / 0")
    assert (sys.argv, sys.path, sys.meta_path, sys.modules["__main__"]) == before


def test_an_exception_of_the_script_is_the_cause_of_ours(tmp_path):
    with pytest.raises(ScriptError) as caught:
        run(tmp_path, "{}['x']")
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("code", ["", "0", "'no data'"])
def test_a_script_that_exits_has_come_to_its_end(tmp_path, capsys, code):
    assert run(tmp_path, f"import sys\nsys.exit({code})") is None
    assert capsys.readouterr().err == ("no data\n" if "data" in code else "")


def test_there_must_be_a_script(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"script must be the path of a file, got 'x\.py'"):
        diagnose_script("x.py", [], t=None, seconds=SECONDS)


@pytest.mark.parametrize("kind", ["a folder", "a zip", "compiled"])
def test_whatever_python_runs_is_a_script(tmp_path, capsys, kind):
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


# --- a loop, by hand ---


def diagnosed(observer: _Observer, batches: list[Any], step: Any) -> Any:
    """What is found in a loop over these batches."""

    def loop() -> None:
        for batch in observer.loop(batches, lambda: iter(batches)):
            step(batch)

    with pytest.raises(_Examined) as end:
        loop()
    return end.value.found


def test_the_body_of_a_loop_is_the_step():
    planted.SLEPT.clear()
    found = diagnosed(_Observer(0, None, SECONDS), [np.zeros((4, 2))] * 3, slow_step)
    assert found.bottleneck == "step"
    assert found.same == pytest.approx(statistics.median(planted.SLEPT), rel=0.5)


def test_what_a_loop_reads_from_is_the_loader():
    class Slow(list):
        def __iter__(self) -> Iterator[Any]:
            for batch in list.__iter__(self):
                slow_step(batch)
                yield batch

    found = diagnosed(_Observer(0, None, SECONDS), Slow([np.zeros((4, 2))] * 3), lambda batch: None)
    assert found.bottleneck == "loader"
    assert min(found.waits_seconds) >= 0.02


def test_the_loop_is_given_the_last_batch_again_and_again():
    numbers: list[int] = []
    diagnosed(_Observer(0, None, 0.01), list(range(5)), numbers.append)
    assert numbers[:6] == [0, 1, 2, 3, 4, 0]
    assert len(set(numbers[-5:])) == 1


def test_loops_that_are_skipped_are_left_alone():
    observer, batches = _Observer(2, None, SECONDS), [1, 2, 3]
    for _ in range(2):
        assert list(observer.loop(batches, lambda: iter(batches))) == batches
    assert diagnosed(observer, [np.zeros((4, 2))], slow_step).bottleneck == "step"


def test_a_loop_that_is_too_short_is_followed_by_the_next():
    observer, batches = _Observer(0, None, SECONDS), [np.zeros((4, 2))]
    loop = observer.loop(batches, lambda: iter(batches))
    next(loop)
    loop.close()
    assert diagnosed(observer, batches, slow_step).bottleneck == "step"


def test_a_loader_that_cannot_be_examined_is_what_was_found():
    def refused() -> Any:
        raise TypeError("a generator")

    with pytest.raises(_Examined) as end:
        _Observer(0, None, SECONDS).fit(refused, lambda: None)
    assert isinstance(end.value.found, TypeError)


def test_a_fit_that_is_skipped_is_left_alone():
    observer = _Observer(1, None, SECONDS)
    assert observer.fit(lambda: 1 / 0, lambda: 1 / 0) is None
