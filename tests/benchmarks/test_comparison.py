from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.comparison import (
    FASTER,
    SAME,
    SLOWER,
    Comparison,
    check_size,
    compare_results,
    comparison_lines,
    read_earlier,
    suspects,
)
from benchmarks.harness.results import Experiment, Run, write_json
from tests.benchmarks.made_up import MACHINE, made_up_run, sleeping_row, speeds, swept
from tests.benchmarks.rows import SLEEP_SECONDS

ROWS = ("first", "second", "third")
REPEATS = 3


def compared(
    folder: Path,
    before: list[Run],
    now: list[Run],
    machine: dict[str, Any] | None = None,
    **settings: Any,
) -> Comparison:
    """Through the file, as between two sessions."""
    earlier = Experiment("made_up", "Made up", runs=before, **settings)
    path = write_json({**earlier.content(), "machine": MACHINE}, folder / "earlier.json")
    experiment = Experiment("made_up", "Made up", runs=now, **settings)
    return compare_results(read_earlier(path), [experiment], machine or MACHINE)


def verdicts(comparison: Comparison) -> dict[str, str]:
    return {change.row.split()[-2]: change.verdict for change in comparison.changes}


def verdict(folder: Path, before: list[float], now: list[float]) -> str:
    comparison = compared(folder, speeds("loader", *before), speeds("loader", *now))
    return verdicts(comparison)["loader"]


def test_a_planted_slowdown_is_noticed_and_nothing_else(tmp_path: Path) -> None:
    """The harness runs everything: rows in processes of their own, JSON, the comparison."""
    same = [sleeping_row(name) for name in ROWS]
    planted = [
        sleeping_row(name, SLEEP_SECONDS * (1.2 if name == "second" else 1)) for name in ROWS
    ]
    swept(tmp_path / "before", same, REPEATS)
    earlier = read_earlier(tmp_path / "before" / "sleeping.json")
    unchanged = swept(tmp_path / "unchanged", same, REPEATS)
    slower = swept(tmp_path / "slower", planted, REPEATS)
    assert verdicts(compare_results(earlier, [unchanged], MACHINE)) == dict.fromkeys(ROWS, SAME)
    noticed = compare_results(earlier, [slower], MACHINE)
    assert verdicts(noticed) == {"first": SAME, "second": SLOWER, "third": SAME}
    assert [change.ratio for change in noticed.slower] == [pytest.approx(1 / 1.2, abs=0.05)]


def test_ranges_that_meet_are_noise(tmp_path: Path) -> None:
    assert verdict(tmp_path, [100, 110, 120], [60, 70, 100]) == SAME
    assert verdict(tmp_path, [100, 110, 120], [60, 70, 99]) == SLOWER
    assert verdict(tmp_path, [60, 70, 99], [100, 110, 120]) == FASTER


def test_five_percent_are_noise(tmp_path: Path) -> None:
    assert verdict(tmp_path, [100, 100, 100], [95, 95, 95]) == SAME
    assert verdict(tmp_path, [100, 100, 100], [94, 94, 94]) == SLOWER
    assert verdict(tmp_path, [100, 100, 100], [106, 106, 106]) == FASTER


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        ([100], [50, 50, 50], "1 run"),
        ([100, 100, 100], [50], "1 run"),
        ([100, 100, 100], [50, 50], "2 runs"),
    ],
)
def test_one_timing_is_never_compared(
    tmp_path: Path, before: list[float], now: list[float], reason: str
) -> None:
    assert verdict(tmp_path, before, now) == f"not compared: {reason}"


def test_a_row_without_results_now_is_not_compared(tmp_path: Path) -> None:
    now = [made_up_run("loader", failure="exit code 1") for _ in range(3)]
    comparison = compared(tmp_path, speeds("loader", 1, 1, 1), now)
    assert verdicts(comparison) == {"loader": "not compared: no samples_per_second now"}


def test_a_metric_of_which_less_is_better(tmp_path: Path) -> None:
    times = [[made_up_run("loader", ms=each) for each in ms] for ms in ([10, 10, 11], [13, 14, 15])]
    settings = {"better": "ms", "lower_is_better": True}
    assert verdicts(compared(tmp_path, times[0], times[1], **settings)) == {"loader": SLOWER}
    assert verdicts(compared(tmp_path, times[1], times[0], **settings)) == {"loader": FASTER}


def test_ratios_are_compared_by_our_own_speed(tmp_path: Path) -> None:
    before = [made_up_run("x", ours=11, ratio=2.0) for _ in range(3)]
    now = [made_up_run("x", ours=8, ratio=2.0) for _ in range(3)]
    (change,) = compared(tmp_path, before, now).changes
    assert (change.metric, change.verdict) == ("ours", SLOWER)


def test_rows_in_one_of_both_are_listed(tmp_path: Path) -> None:
    before = speeds("old", 1, 1, 1) + speeds("both", 1, 1, 1) + speeds("published, V100", 1)
    now = speeds("new", 1, 1, 1) + speeds("both", 1, 1, 1) + speeds("published, V100", 1)
    comparison = compared(tmp_path, before, now)
    assert comparison.only_before == ("made_up: Keras old 0",)
    assert comparison.only_now == ("made_up: Keras new 0",)
    assert verdicts(comparison) == {"both": SAME}
    text = "\n".join(comparison_lines(comparison))
    assert "Keras old 0" in text
    assert "Keras new 0" in text
    assert "nothing got slower, of 1 rows compared" in text


def test_the_text_says_how_to_repeat_what_got_slower(tmp_path: Path) -> None:
    now = speeds("loader", 5, 5, 5)
    lines = comparison_lines(compared(tmp_path, speeds("loader", 9, 9, 9), now))
    assert "slower: 1 of 1 rows, so the session fails" in lines
    assert lines[-1].endswith(f"0.56 of before; again: {now[0].command}")


def test_another_machine_and_device_are_said(tmp_path: Path) -> None:
    before, now = speeds("x", 1, 1, 1), [made_up_run("x", device="a GPU", samples_per_second=1)]
    other = {**MACHINE, "usable_cpus": 64, "libraries": {"numpy": "2.3"}}
    heads = compared(tmp_path, before, now, other).heads
    assert heads == (
        "ANOTHER MACHINE: what follows may be its doing",
        "usable_cpus: 2 before, 64 now",
        "numpy: 1.26.4 before, 2.3 now",
        "made_up, Keras: on the CPU before, on a GPU now",
    )
    assert compared(tmp_path, before, before).heads == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "can't be read: No such file"),
        ("{", "is no JSON"),
        ("[]", "neither a run.json nor"),
        ('{"machine": {}}', "KeyError: 'experiment'"),
        ('{"machine": {}, "experiment": "x", "runs": [{"loader": "x"}]}', "TypeError"),
    ],
)
def test_a_file_of_something_else_is_refused(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "earlier.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=reason):
        read_earlier(path)


def test_metrics_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    experiment = Experiment("x", "X", runs=speeds("loader", 1))
    content = {**experiment.content(), "machine": MACHINE}
    content["runs"][0]["metrics"]["samples_per_second"] = "fast"
    with pytest.raises(ValueError, match="samples_per_second must be a number, got 'fast'"):
        read_earlier(write_json(content, tmp_path / "earlier.json"))


def test_a_file_of_before_commands_were_kept_is_read(tmp_path: Path) -> None:
    content = {**Experiment("x", "X", runs=speeds("loader", 1)).content(), "machine": MACHINE}
    for key in ("size", "better", "lower_is_better"):
        del content[key]
    del content["runs"][0]["command"]
    earlier = read_earlier(write_json(content, tmp_path / "earlier.json"))
    assert [run.metrics for run in earlier.runs["x"]] == [{"samples_per_second": 1}]
    check_size(earlier, "full")


def test_another_size_is_refused(tmp_path: Path) -> None:
    experiment = Experiment("x", "X", runs=speeds("loader", 1), size="smoke")
    content = {"machine": MACHINE, "experiments": [experiment.content()]}
    path = write_json(content, tmp_path / "run.json")
    assert json.loads(path.read_text())["experiments"][0]["size"] == "smoke"
    check_size(read_earlier(path), "smoke")
    with pytest.raises(
        ValueError, match="is of the size smoke, this run would be of the size full"
    ):
        check_size(read_earlier(path), "full")


def test_rows_that_look_slower_are_suspects_until_a_run_is_as_fast(tmp_path: Path) -> None:
    before = [*speeds("steady", 100, 101, 102), *speeds("unlucky", 100, 101, 102)]
    earlier = Experiment("made_up", "Made up", runs=before)
    path = write_json({**earlier.content(), "machine": MACHINE}, tmp_path / "earlier.json")
    now = Experiment("made_up", "Made up", runs=[*speeds("steady", 99, 100, 101)])
    now.runs += speeds("unlucky", 80, 81, 82)
    assert {loader for _, loader, _ in suspects(read_earlier(path), now)} == {"unlucky"}
    now.runs += speeds("unlucky", 100, 101, 102)
    assert suspects(read_earlier(path), now) == set()
