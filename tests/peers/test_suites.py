"""What the peers' own tests ask of a data set or loader, ours does, but for what is listed."""

from __future__ import annotations

import faulthandler
import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

from tests.peers.comparison import DEVIATIONS, Deviation, problems
from tests.peers.outcomes import FAILED, PASSED, REPLACED, SKIPPED, UNFINISHED, Outcome, Outcomes
from tests.peers.runs import SUITES, Suite, ended, find, started

RUNS = [(suite, variant) for suite in SUITES for variant in suite.variants]
NAMES = [f"{suite.name} {variant}".strip() for suite, variant in RUNS]


@pytest.mark.full
@pytest.mark.timeout(2000)
@pytest.mark.parametrize(("suite", "variant"), RUNS, ids=NAMES)
def test_ours_passes_what_theirs_passes(suite: Suite, variant: str, tmp_path: Path):
    root = find(suite, tmp_path / "source")
    backend = suite.variants[variant].get("KERAS_BACKEND")
    if backend is not None and importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} isn't installed")
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    folders = tmp_path / "theirs", tmp_path / "ours"
    with (
        started(suite, variant, root, folders[0], ours=False) as first,
        started(suite, variant, root, folders[1], ours=True) as second,
    ):
        theirs, ours = ended(first, folders[0]), ended(second, folders[1])
    numbers = re.findall(r"\d+", importlib.metadata.version(suite.package))
    version = tuple(map(int, numbers))
    concerned = [each for each in DEVIATIONS if each.concerns(suite.name, variant, version)]
    found = problems(theirs, ours, concerned)
    assert not found, "\n".join(found)


# --- the comparison itself: one that sees nothing would pass ---

PASSES, FAILS = Outcome(PASSED), Outcome(FAILED, "no such argument")
LISTED = Deviation("suite", "test_listed*", "is meant")


def passed(*tests: str) -> Outcomes:
    return dict.fromkeys(tests, PASSES)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (passed("a"), {"a": PASSES}, []),
        (passed("a"), {"a": FAILS}, ["a: theirs passes; ours failed: no such argument"]),
        (
            passed("hangs", "skips", "is_missing", "a"),
            {"hangs": Outcome(UNFINISHED), "skips": Outcome(SKIPPED), "a": PASSES},
            [
                "hangs: theirs passes; ours unfinished: ",
                "skips: theirs passes; ours skipped: ",
                "is_missing: theirs passes; ours wasn't run: ",
            ],
        ),
        ({"a": Outcome(FAILED), "b": Outcome(SKIPPED)}, {"a": FAILS, "b": FAILS}, []),
    ],
)
def test_comparison_says_what_ours_falls_short_of(theirs, ours, expected):
    assert problems(theirs, {**ours, REPLACED: PASSES}, []) == expected
    assert problems(theirs, ours, []) == ["no test was given anything of ours", *expected]


def test_comparison_holds_the_list_of_deviations():
    tests, replaced = ("test_listed_1", "test_listed_2"), {REPLACED: PASSES}
    assert problems(passed(*tests), {**dict.fromkeys(tests, FAILS), **replaced}, [LISTED]) == []
    one = {tests[0]: FAILS, tests[1]: PASSES, **replaced}
    assert problems(passed(*tests), one, [LISTED]) == [
        f"{tests[1]}: ours passes, and the list of deviations says that it doesn't"
    ]
    assert problems(passed("a"), {"a": PASSES, **replaced}, [LISTED]) == [
        "test_listed*: in the list of deviations, and fits no test"
    ]
    deviation = Deviation("suite", "test", "is meant", variants=("jax",), since=(3, 16))
    runs = [("suite", "jax", (3, 16, 0)), ("suite", "torch", (3, 16)), ("suite", "jax", (3, 15))]
    assert [deviation.concerns(*run) for run in runs] == [True, False, False]


ENDINGS = """
import os, pytest

def test_passes(): pass

def test_fails(): assert 1 == 2, "one is not two"

def test_skips(): pytest.skip("not today")

@pytest.fixture
def broken():
    yield
    raise ValueError("in its teardown")

def test_breaks(broken): pass

def test_left_out(): assert False

def test_dies(): os._exit(1)
"""
REPLACING = """
from tests.peers.outcomes import note_replacement

def pytest_runtest_call(item):
    note_replacement()
"""


def test_run_writes_down_every_ending(tmp_path):
    """Also of a test that takes the process with it."""
    (tmp_path / "endings.py").write_text(ENDINGS)
    (tmp_path / "replacing.py").write_text(REPLACING)
    selection = "::(?!test_left_out$)"
    suite = Suite("endings", "endings", ("endings.py",), "replacing", {"": {}}, selection)
    with started(suite, "", tmp_path, tmp_path / "ours", ours=True) as process:
        found = ended(process, tmp_path / "ours")
    assert {test.split("::")[-1]: outcome.result for test, outcome in found.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_breaks": "failed",
        "test_dies": "unfinished",
        REPLACED: "passed",
    }
    assert "one is not two" in found["endings.py::test_fails"].message
    assert "not today" in found["endings.py::test_skips"].message
    assert "in its teardown" in found["endings.py::test_breaks"].message
