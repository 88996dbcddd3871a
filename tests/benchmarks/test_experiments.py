"""The experiments: the devices that they are paced by, and who imports whom."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import benchmarks
from benchmarks.harness.gpu_utilisation import GpuUtilisation
from benchmarks.harness.paced_consumer import Steps, consume
from tests.test_package import imported, tree_of

# --- the paced consumer ---


STEP = 0.5  # seconds; a power of two, so that sums are exact


class FakeTime:
    """A clock that only a fetch or a sleep moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def fetches(self, *seconds: float) -> Iterator[int]:
        """Batches, each of which takes so long from when it is asked for."""
        for number, each in enumerate(seconds):
            self.now += each
            yield number


def steps_of(*seconds: float, batches: int = 1_000, limit: float = 1_000) -> Steps:
    fake = FakeTime()
    limits = {"most_batches": batches, "most_seconds": limit}
    return consume(fake.fetches(*seconds), STEP, **limits, clock=fake, sleep=fake.sleep)


@pytest.mark.parametrize("fetch", [0.0, STEP / 2, STEP])
def test_consumer_of_a_loader_that_keeps_up(fetch: float) -> None:
    steps = steps_of(*[fetch] * 8)
    assert steps.waits_seconds == [0.0] * 8
    assert (steps.utilisation, steps.on_time_share) == (1.0, 1.0)
    assert steps.total_seconds == 8 * STEP


def test_consumer_makes_up_for_nothing() -> None:
    steps = steps_of(0, 0, 4 * STEP, 0, 0, 0)
    assert steps.waits_seconds == [0, 0, 3 * STEP, 0, 0, 0]
    assert steps.on_time_share == 5 / 6
    # Six steps from the end of the one before the first, and the wait.
    assert [start - 100 for start in steps.starts] == [0.5, 1.0, 3.0, 3.5, 4.0, 4.5]
    assert steps.total_seconds == 4.5


def test_consumer_ends() -> None:
    """The fetches begin 0, 1 and 2 seconds after the call; the third ends at 3."""
    assert len(steps_of(*[0.0] * 8, batches=3).starts) == 3
    assert len(steps_of(*[2 * STEP] * 8, limit=2.5).starts) == 3


def test_gpu_share_is_the_mean() -> None:
    enough, percents = threading.Event(), iter([50.0, None, 100.0])

    def read() -> float | None:
        percent = next(percents, None)
        if percent == 100:
            enough.set()
        return percent

    with GpuUtilisation(read) as gpu:
        assert enough.wait(20)
    assert (gpu.samples, gpu.share) == ([50.0, 100.0], 0.75)
    with GpuUtilisation(lambda: None) as gpu:
        pass
    assert gpu.share is None


PACKAGE = Path(benchmarks.__file__).parent
# Without those of results, which anything may lie in.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "results" not in path.parts)
# Which rooms a room may look into, besides itself. What lies in none of them, the tests and their
# conftest, may look into all; and so may the lab, which none of them may look into.
ALLOWED = {
    "harness": set(),
    "data": set(),
    "peers": {"data", "harness"},
    "experiments": {"data", "harness", "peers"},
}
MODULE = re.compile(r"benchmarks(\.\w+)+")


def wrong_imports(path: Path) -> list[str]:
    """What a file imports that its room should not."""
    room = path.relative_to(PACKAGE).parts[0]
    names = [name.split(".") for name in imported(tree_of(path))]
    allowed = ALLOWED[room] | {room}
    ours = [name for name in names if name[0] in ("benchmarks", "tests")]
    return [".".join(name) for name in ours if name[0] == "tests" or name[1] not in allowed]


def missing_modules(path: Path) -> list[str]:
    """Modules that strings name, as those of programs do, and that aren't there."""
    values = [node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant)]
    strings = [value for value in values if isinstance(value, str)]
    return [
        text
        for text in strings
        if MODULE.fullmatch(text)
        and not PACKAGE.parent.joinpath(*text.split(".")).with_suffix(".py").is_file()
    ]


def test_imports():
    files = [path for path in FILES if path.relative_to(PACKAGE).parts[0] in ALLOWED]
    assert {path: found for path in files if (found := wrong_imports(path))} == {}


def test_modules_that_strings_name_are_there():
    assert {path: found for path in FILES if (found := missing_modules(path))} == {}
