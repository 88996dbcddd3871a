"""A run writes down what became of each test, also of one that takes the process with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.runs import Run
from tests.peers.sources import Source
from tests.peers.suites import Suite

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


def run(suite: Suite, folder: Path, *, ours: bool = False, all_of_it: bool = False):
    work = folder / f"{ours} {all_of_it}"
    work.mkdir()
    source = Source(folder, (), installed=False)
    begun = Run(suite, "", source, work, ours=ours, all_of_it=all_of_it)
    return {test.split("::")[1]: outcome for test, outcome in begun.outcomes().items()}


def test_each_ending_is_told(suite, tmp_path):
    outcomes = run(suite, tmp_path)
    assert {test: outcome.result for test, outcome in outcomes.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_breaks": "failed",
        "test_dies": "unfinished",
    }
    assert "one is not two" in outcomes["test_fails"].message
    assert "not today" in outcomes["test_skips"].message
    assert "in its teardown" in outcomes["test_breaks"].message


def test_the_replacement_is_there_for_ours_only(suite, tmp_path):
    assert run(suite, tmp_path, ours=True)["test_passes"].replaced == 1
    assert run(suite, tmp_path, ours=False)["test_passes"].replaced == 0


@pytest.mark.full
def test_long_tests_are_run_where_all_is_asked_for(suite, tmp_path):
    assert "test_long" in run(suite, tmp_path, all_of_it=True)
    assert "test_long" not in run(suite, tmp_path)


@pytest.mark.full
def test_options_of_this_run_are_not_for_the_suites(suite, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--full")
    assert run(suite, tmp_path)["test_passes"].result == "passed"


@pytest.mark.full
def test_a_run_without_tests_is_an_error(suite, tmp_path):
    (tmp_path / "endings.py").write_text("")
    with pytest.raises(AssertionError, match="no test was run"):
        run(suite, tmp_path)


@pytest.mark.full
def test_a_file_that_cannot_be_imported_is_a_failed_test(suite, tmp_path):
    (tmp_path / "endings.py").write_text("import nothing_of_that_name")
    source = Source(tmp_path, (), installed=False)
    folder = tmp_path / "run"
    folder.mkdir()
    (outcome,) = Run(suite, "", source, folder, ours=False, all_of_it=True).outcomes().values()
    assert outcome.failed
    assert "nothing_of_that_name" in outcome.message
