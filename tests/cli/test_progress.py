"""Each command that takes its time says on a terminal what goes on, and how long it will take."""

from __future__ import annotations

import io
import re
import sys

import pytest

from adapters.cli import main
from adapters.cli.progress import bar
from tests.packing.materials import folder


class Terminal(io.StringIO):
    """Standard error, as if somebody looked at it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch):
    """Put a terminal into the place of standard error, in the test: pytest sets it before that."""

    def watch() -> Terminal:
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        return made

    return watch


SCRIPT = """
import numpy as np
from adapters import SafeSequence
import keras
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(SafeSequence((np.zeros((640, 4)), np.zeros((640, 1))), 64), verbose=0)
"""


def test_a_bar_says_what_is_done_of_how_much(watched):
    terminal = watched()
    with bar("verify", "record") as progress:
        progress(3, 10)
        first = terminal.getvalue()
        progress(1, 20)  # The next file
    assert re.search(r"verify: .*3/10 \[.*<.*record", first)  # So long, and so long still
    assert re.search(r"verify: .*1/20 \[.*record", terminal.getvalue())


def test_without_a_terminal_nothing_is_shown(capsys):
    with bar("verify") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")


def test_pack_and_verify_show_theirs(watched, tmp_path, capsys):
    terminal = watched()
    folder(tmp_path / "photos")
    out = str(tmp_path / "train")
    assert main(["pack", str(tmp_path / "photos"), out, "--format", "recordio"]) == 0
    written = str(next(tmp_path.glob("train*.rec")))
    assert main(["verify", written]) == 0
    for name, unit in (("pack", "picture"), ("verify", "record")):
        assert re.search(rf"{name}: .*{unit}", terminal.getvalue()), name


@pytest.mark.full  # It tries processes, too.
def test_tune_shows_its_own(watched, tmp_path, capsys):
    terminal = watched()
    pytest.importorskip("keras", reason="Keras is an extra")
    program = tmp_path / "data.py"
    program.write_text(
        "import numpy as np\nfrom adapters import SafeSequence\n"
        "train = SafeSequence(np.zeros((100, 4)), 10)\n"
    )
    assert main(["doctor", "--tune", f"{program}:train", "--seconds", "0.01", "--rounds", "1"]) == 0
    assert re.search(r"tune: .*measurement", terminal.getvalue())


def test_the_doctor_shows_its_rounds(watched, tmp_path, capsys):
    terminal = watched()
    pytest.importorskip("keras", reason="Keras is an extra")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert main(["doctor", "--seconds", "0.05", str(script)]) == 0
    assert re.search(r"doctor: .*/3 \[.*round", terminal.getvalue())
