"""What the peers' own tests ask of a data set or loader, ours does, but for what is listed."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import tarfile
from pathlib import Path

import pytest

from tests.peers.comparison import DEVIATIONS, Comparison, Deviation
from tests.peers.outcomes import FAILED, PASSED, SKIPPED, UNFINISHED, Outcome, Outcomes
from tests.peers.runs import SUITES, Absent, Run, Source, Suite, find

_ALL = bool(os.environ.get("ADAPTERS_PEERS_ALL"))


@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    ("suite", "variant"),
    [
        pytest.param(
            suite,
            variant,
            id=f"{suite.name} {variant}".strip(),
            marks=pytest.mark.full,
        )
        for suite in SUITES
        for variant in suite.variants
    ],
)
def test_ours_passes_what_theirs_passes(suite: Suite, variant: str, tmp_path: Path, report):
    try:
        source = find(suite.package, tmp_path)
    except Absent as absence:
        pytest.skip(str(absence))
    backend = suite.variants[variant].get("KERAS_BACKEND")
    if backend is not None and importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} isn't installed")
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    runs = []
    try:
        for ours in (False, True):
            folder = tmp_path / ("ours" if ours else "theirs")
            folder.mkdir()
            runs.append(Run(suite, variant, source, folder, ours=ours, all_of_it=_ALL))
        theirs, ours = (run.outcomes() for run in runs)
    finally:
        for run in runs:
            run.kill()
    concerned = [d for d in DEVIATIONS if d.concerns(suite.name, variant, source.version)]
    comparison = Comparison(theirs, ours, concerned)
    report(
        suite.name,
        variant,
        f"{len(comparison.passed_by_theirs)} passed, {len(comparison.failed_by_theirs)} failed",
        f"{len(comparison.passed_by_ours)} passed",
        comparison.replaced,
        len(comparison.deviating),
    )
    problems = comparison.problems()
    assert not problems, "\n".join(problems)


# --- the comparison itself: one that sees nothing would pass ---

OURS = Outcome(PASSED, replaced=1)
FAILS = Outcome(FAILED, "no such argument", replaced=1)
LISTED = Deviation("suite", "test_listed*", "is meant")


def passed(*tests: str) -> Outcomes:
    return dict.fromkeys(tests, Outcome(PASSED))


@pytest.mark.parametrize(
    ("theirs", "ours", "problems"),
    [
        (passed("a"), {"a": OURS}, []),
        (passed("a"), {"a": FAILS}, ["a: theirs passes; ours failed: no such argument"]),
        (
            passed("hangs", "skips", "is_missing", "a"),
            {"hangs": Outcome(UNFINISHED, replaced=1), "skips": Outcome(SKIPPED), "a": OURS},
            [
                "hangs: theirs passes; ours unfinished: ",
                "skips: theirs passes; ours skipped: ",
                "is_missing: theirs passes; ours wasn't run: ",
            ],
        ),
        ({"a": Outcome(FAILED), "b": Outcome(SKIPPED)}, {"a": FAILS, "b": FAILS}, []),
        (passed("a"), passed("a"), ["no test was given anything of ours"]),
    ],
)
def test_comparison_says_what_ours_falls_short_of(theirs, ours, problems):
    assert Comparison(theirs, ours, []).problems() == problems


def test_comparison_holds_the_list_of_deviations():
    tests = ("test_listed_1", "test_listed_2")
    comparison = Comparison(passed(*tests), dict.fromkeys(tests, FAILS), [LISTED])
    assert (comparison.problems(), comparison.deviating) == ([], list(tests))
    one = Comparison(passed(*tests), {tests[0]: FAILS, tests[1]: OURS}, [LISTED])
    assert one.problems() == [
        f"{tests[1]}: ours passes, and the list of deviations says that it doesn't"
    ]
    none = Comparison(passed("a"), {"a": OURS}, [LISTED])
    assert none.problems() == ["test_listed*: in the list of deviations, and fits no test"]
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

def test_long(): pass

def test_dies(): os._exit(1)
"""
REPLACEMENT = """
from tests.peers.outcomes import count_replacement

def pytest_runtest_call(item):
    if item.name == "test_passes":
        count_replacement()
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    (tmp_path / "endings.py").write_text(ENDINGS)
    (tmp_path / "replacing.py").write_text(REPLACEMENT)
    return Suite(
        "endings",
        "endings",
        ("endings.py",),
        "replacing",
        {"": {}},
        "::(?!test_left_out$)",
        long="test_long",
    )


def test_run_writes_down_every_ending(suite, tmp_path):
    """Also of a test that takes the process with it."""

    def outcomes(ours: bool) -> Outcomes:
        folder = tmp_path / f"run {ours}"
        folder.mkdir()
        source = Source(tmp_path, (), installed=False)
        begun = Run(suite, "", source, folder, ours=ours, all_of_it=False)
        return {test.split("::")[1]: outcome for test, outcome in begun.outcomes().items()}

    theirs = outcomes(False)
    assert {test: outcome.result for test, outcome in theirs.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_breaks": "failed",
        "test_dies": "unfinished",
    }
    assert "one is not two" in theirs["test_fails"].message
    assert "not today" in theirs["test_skips"].message
    assert "in its teardown" in theirs["test_breaks"].message
    assert theirs["test_passes"].replaced == 0
    assert outcomes(True)["test_passes"].replaced == 1


def test_source_is_a_tree_or_an_archive(tmp_path, monkeypatch):
    pytest.importorskip("keras", reason="Keras is in the extra keras")
    tree = tmp_path / "keras-9.8.7"
    (tree / "keras/src").mkdir(parents=True)
    (tree / "keras/src/version.py").write_text('__version__ = "9.8.7"\n')
    monkeypatch.setenv("ADAPTERS_KERAS_SOURCE", str(tree))
    found = find("keras", tmp_path / "unused")
    assert (found.root, found.version, found.installed) == (tree, (9, 8, 7), False)
    archive, folder = tmp_path / "keras.tar.gz", tmp_path / "unpacked"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tree, tree.name)
    monkeypatch.setenv("ADAPTERS_KERAS_SOURCE", str(archive))
    assert find("keras", folder).root == folder / tree.name
    monkeypatch.setenv("ADAPTERS_KERAS_SOURCE", str(folder / tree.name / "keras/src"))
    with pytest.raises(FileNotFoundError, match="ADAPTERS_KERAS_SOURCE must name a source tree"):
        find("keras", tmp_path / "unused")
    with pytest.raises(Absent, match="isn't installed"):
        find("surely_no_package", tmp_path)
