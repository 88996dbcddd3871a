"""A comparison says what falls short, what is listed and doesn't, and when nothing was compared."""

from __future__ import annotations

from tests.peers.comparison import Comparison, Deviation
from tests.peers.outcomes import FAILED, PASSED, SKIPPED, UNFINISHED, Outcome, Outcomes

OURS = Outcome(PASSED, replaced=1)
FAILS = Outcome(FAILED, "no such argument", replaced=1)
LISTED = Deviation("suite", "a.py::test_listed*", "is meant")


def problems_of(theirs: Outcomes, ours: Outcomes, *deviations: Deviation) -> list[str]:
    return Comparison(theirs, ours, deviations).problems()


def passed(*tests: str) -> Outcomes:
    return dict.fromkeys(tests, Outcome(PASSED))


def test_nothing_is_said_where_ours_passes_all():
    assert problems_of(passed("a.py::test"), {"a.py::test": OURS}) == []


def test_a_test_that_ours_fails_and_theirs_passes_is_a_problem():
    (problem,) = problems_of(passed("a.py::test"), {"a.py::test": FAILS})
    assert problem == "a.py::test: theirs passes; ours failed: no such argument"


def test_a_test_that_hangs_or_is_skipped_or_is_not_run_with_ours_is_a_problem():
    theirs = passed("a.py::hangs", "a.py::skips", "a.py::is_missing")
    ours = {"a.py::hangs": Outcome(UNFINISHED, replaced=1), "a.py::skips": Outcome(SKIPPED)}
    problems = problems_of(theirs, ours)
    assert [problem.split("; ")[1] for problem in problems] == [
        "ours unfinished: ",
        "ours skipped: ",
        "ours wasn't run: ",
    ]


def test_nothing_is_said_of_what_theirs_does_not_pass():
    theirs = {"a.py::test": Outcome(FAILED), "a.py::other": Outcome(SKIPPED)}
    assert problems_of(theirs, {"a.py::test": FAILS, "a.py::other": FAILS}) == []


def test_a_listed_test_may_fail_with_ours():
    tests = ("a.py::test_listed_1", "a.py::test_listed_2")
    comparison = Comparison(passed(*tests), dict.fromkeys(tests, FAILS), [LISTED])
    assert comparison.problems() == []
    assert comparison.deviating == list(tests)


def test_a_listed_test_that_passes_is_a_problem():
    tests = ("a.py::test_listed_1", "a.py::test_listed_2")
    (problem,) = problems_of(passed(*tests), {tests[0]: FAILS, tests[1]: OURS}, LISTED)
    assert problem == f"{tests[1]}: ours passes, and the list of deviations says that it doesn't"


def test_a_listed_test_that_does_not_exist_is_a_problem():
    (problem,) = problems_of(passed("a.py::test"), {"a.py::test": OURS}, LISTED)
    assert problem == "a.py::test_listed*: in the list of deviations, and fits no test"


def test_a_run_in_which_nothing_was_replaced_is_a_problem():
    (problem,) = problems_of(passed("a.py::test"), passed("a.py::test"))
    assert problem == "no test was given anything of ours"


def test_a_deviation_concerns_its_variants_and_versions_only():
    deviation = Deviation("suite", "test", "is meant", variants=("jax",), since=(3, 16))
    assert deviation.concerns("suite", "jax", (3, 16, 0))
    assert not deviation.concerns("suite", "torch", (3, 16, 0))
    assert not deviation.concerns("suite", "jax", (3, 15, 1))
    assert not deviation.concerns("other", "jax", (3, 16, 0))
    assert Deviation("suite", "test", "is meant").concerns("suite", "torch", (3, 6))
