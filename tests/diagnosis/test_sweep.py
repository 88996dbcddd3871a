"""The same source behind other workers, and which of them is recommended."""

from __future__ import annotations

from typing import Any

import pytest

from adapters import SafeSequence
from adapters.diagnosis import sweep as module
from adapters.diagnosis.sweep import Setting, Sweep, sweep
from adapters.engine.dispatch import Dispatcher
from adapters.keras.diagnosed import FRONT_END
from tests.diagnosis.planted import BATCH_SIZE, Numbers, Waiting

INLINE, AUTO = Setting("inline", 0), Setting("auto", 0)
TWO_THREADS, FOUR_THREADS = Setting("threads", 2), Setting("threads", 4)
TWO_PROCESSES = Setting("processes", 2)


def found(**speeds: float) -> Sweep:
    """Made-up speeds of the settings above, by name."""
    return Sweep(
        {globals()[name]: [speed] * 3 for name, speed in speeds.items()}, (), 8, FRONT_END.call
    )


class Unsendable:
    """A transform that no process can be given."""

    def __init__(self) -> None:
        self.steps = (number for number in range(3))

    def __call__(self, sample: Any) -> Any:
        return sample


def swept(data: Any, **options: Any) -> Sweep:
    options = {"transform": Unsendable(), "thread_safe": True, **options}
    with SafeSequence(data, BATCH_SIZE, **options) as sequence:
        return sweep(sequence, seconds=0.02, rounds=2)


@pytest.mark.parametrize(
    ("speeds", "recommended"),
    [
        ({"INLINE": 100, "TWO_THREADS": 200, "FOUR_THREADS": 400}, FOUR_THREADS),
        # Of those within a twentieth: auto, the fewest workers, threads.
        ({"INLINE": 10, "TWO_THREADS": 96, "FOUR_THREADS": 100}, TWO_THREADS),
        ({"TWO_THREADS": 94, "FOUR_THREADS": 100}, FOUR_THREADS),
        ({"AUTO": 96, "INLINE": 10, "FOUR_THREADS": 100}, AUTO),
        ({"TWO_PROCESSES": 100, "TWO_THREADS": 97}, TWO_THREADS),
    ],
)
def test_recommended(speeds, recommended):
    assert found(**speeds).recommended == recommended


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers are the fastest, and nothing is measured."""
    monkeypatch.setattr(
        module, "_measured", lambda plan, base, each, seconds: (8, 9 if each.workers == 2 else 1)
    )


def test_settings_have_the_loaders_own(quick):
    found = swept(Numbers(), workers=3)
    assert found.own == Setting("threads", 3)
    assert found.own in found.speeds
    assert swept(Numbers()).own == AUTO
    assert swept(Numbers(), workers=0).own == INLINE


def test_recommended_for_waiting_are_threads():
    found = swept(Waiting())
    (inline,) = (speed for each, speed in found.medians.items() if each.kind == "inline")
    assert found.recommended.kind in ("threads", "auto")
    assert found.medians[found.recommended] > 1.5 * inline


def test_settings_are_kinds_and_numbers(monkeypatch, quick):
    monkeypatch.setattr(module, "usable_cpus", lambda: 2)
    settings = swept(Numbers()).speeds
    assert {len(speeds) for speeds in settings.values()} == {2}
    assert set(settings) == {AUTO, INLINE, *(Setting("threads", n) for n in (1, 2, 4, 16, 64))}


def test_settings_say_why_processes_are_left_out(quick):
    (reason,) = swept(Numbers()).left_out
    assert reason.startswith("processes: ")
    assert "generator" in reason


def test_ctrl_c_leaves_no_engine_open(monkeypatch):
    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Dispatcher, "start_tasks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        swept(Waiting())


def test_table_has_medians_and_ranges():
    _, _, *lines = str(
        Sweep({TWO_THREADS: [1000, 3000, 2000], AUTO: [5]}, (), 8, FRONT_END.call)
    ).splitlines()
    assert lines[0].split() == ["threads", "2", "2,000", "1,000", "to", "3,000"]
    assert lines[1].split()[:2] == ["auto", "auto"]


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (AUTO, 'workers="auto", use_multiprocessing=False)'),
        (INLINE, "workers=0, use_multiprocessing=False)"),
        (TWO_PROCESSES, "workers=2, use_multiprocessing=True)"),
    ],
)
def test_line_can_be_pasted(setting, line):
    found = Sweep({setting: [1]}, (), 8, FRONT_END.call)
    assert str(found).splitlines()[-1] == f"  SafeSequence(..., {line}"
