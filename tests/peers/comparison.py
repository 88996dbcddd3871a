"""Where ours falls short of theirs, and whether the list of deviations is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.peers.outcomes import PASSED, Outcome, Outcomes


@dataclass(frozen=True)
class Deviation:
    """Tests of theirs that ours is not meant to pass."""

    suite: str
    test: str
    """``file.py::Class::test``; ``*`` stands for anything. None of those that it fits may pass."""
    reason: str
    variants: tuple[str, ...] = ()
    """Those of the suite's that it concerns; all if there are none."""
    since: tuple[int, ...] = ()
    """The peer's first version that has these tests."""

    def concerns(self, suite: str, variant: str, version: tuple[int, ...]) -> bool:
        """Whether it is about this run."""
        of_variant = not self.variants or variant in self.variants
        return self.suite == suite and of_variant and version >= self.since

    def fits(self, test: str) -> bool:
        """Whether it is about this test."""
        return fnmatchcase(test, self.test)


@dataclass(frozen=True)
class Comparison:
    """The same tests, as they are and with ours in place."""

    theirs: Outcomes
    ours: Outcomes
    deviations: Sequence[Deviation]
    """Those that concern these runs."""

    @property
    def passed_by_theirs(self) -> list[str]:
        """What ours is measured against."""
        return [test for test, outcome in self.theirs.items() if outcome.result == PASSED]

    @property
    def passed_by_ours(self) -> list[str]:
        """Of those."""
        return [test for test in self.passed_by_theirs if self._of_ours(test).result == PASSED]

    @property
    def failed_by_theirs(self) -> list[str]:
        """Nothing can be said of these."""
        return [test for test, outcome in self.theirs.items() if outcome.failed]

    @property
    def replaced(self) -> int:
        """Tests that were given something of ours."""
        return sum(outcome.replaced > 0 for outcome in self.ours.values())

    @property
    def deviating(self) -> list[str]:
        """Tests that ours is not meant to pass, and doesn't."""
        passed = set(self.passed_by_ours)
        return [
            test
            for test in self.passed_by_theirs
            if test not in passed and any(deviation.fits(test) for deviation in self.deviations)
        ]

    def problems(self) -> list[str]:
        """What has to be mended, or put into the list or taken off it."""
        passed, meant = set(self.passed_by_ours), set(self.deviating)
        found = [
            f"{test}: theirs passes; ours {outcome.result}: {outcome.message}"
            for test in self.passed_by_theirs
            if test not in passed | meant and (outcome := self._of_ours(test))
        ]
        for deviation in self.deviations:
            tests = [test for test in self.passed_by_theirs if deviation.fits(test)]
            found += [
                f"{test}: ours passes, and the list of deviations says that it doesn't"
                for test in tests
                if test in passed
            ]
            if not tests:
                found.append(f"{deviation.test}: in the list of deviations, and fits no test")
        if not self.replaced:
            found.append("no test was given anything of ours")
        return found

    def _of_ours(self, test: str) -> Outcome:
        return self.ours.get(test, Outcome("wasn't run"))
