"""``report`` is for what the comparisons found out; its rows are printed when all is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_HEADINGS = ("suite", "variant", "theirs", "ours", "replaced", "deviations")
_rows = pytest.StashKey[list[tuple[str, ...]]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print a row when all tests are done."""

    def add(*row: object) -> None:
        request.config.stash.setdefault(_rows, []).append(tuple(map(str, row)))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    rows = terminalreporter.config.stash.get(_rows, [])
    if not rows:
        return
    terminalreporter.section("The peers' own tests")
    table = [_HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        terminalreporter.write_line("  ".join(map(str.ljust, row, widths)).rstrip())
