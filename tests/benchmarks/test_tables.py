from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks.harness.results import Column, Experiment
from benchmarks.harness.tables import markdown_table, text_table
from tests.benchmarks.made_up import made_up_run, speeds

SPEEDS = (Column("samples_per_second", "samples/s", ",.0f"),)
COUNTS = (Column("lost", "lost", ",.0f"), Column("repeated", "repeated", ",.0f"))


def lines_of(experiment: Experiment) -> list[list[str]]:
    """The cells of the Markdown table, without its rule."""
    table = markdown_table(experiment).split("\n\n")[-1]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in table.splitlines()]
    assert len({len(line) for line in cells}) == 1
    return [[cell.strip("| ") for cell in line] for line in [cells[0], *cells[2:]]]


def test_a_row_has_the_median_and_the_range_of_its_runs() -> None:
    experiment = Experiment("x", "X", runs=speeds("a", 1_000, 1_200, 1_500))
    assert lines_of(experiment) == [
        ["loader", "workers", "samples/s", "range"],
        ["a", "0", "1,200*", "1,000 to 1,500"],
    ]


def test_rounds_widen_the_range_and_move_no_median() -> None:
    run = made_up_run("a", samples_per_second=100, rounds=(80.0, 130.0))
    assert lines_of(Experiment("x", "X", runs=[run]))[1] == ["a", "0", "100*", "80 to 130"]


def test_only_the_terminal_leaves_out_the_ranges_of_other_figures() -> None:
    runs = [made_up_run("a", samples_per_second=100, waits=waits) for waits in (1, 2, 3)]
    experiment = Experiment("x", "X", (*SPEEDS, Column("waits", "waits", ".0f")), runs=runs)
    assert "2 (1 to 3)" in markdown_table(experiment)
    assert "(1 to 3)" not in text_table(experiment)


def test_a_range_of_nothing_is_left_out() -> None:
    assert lines_of(Experiment("x", "X", runs=speeds("a", 100)))[1] == ["a", "0", "100*"]


def test_each_framework_has_a_best_row_and_published_and_ideal_are_none() -> None:
    runs = [
        *speeds("a", 10),
        *speeds("b", 20),
        *speeds("published, V100", 900),
        *speeds("ideal", 800),
        made_up_run("c", framework="Gluon", samples_per_second=5),
    ]
    starred = [line[1] for line in lines_of(Experiment("x", "X", runs=runs)) if "*" in line[3]]
    assert starred == ["b", "c"]


def test_the_least_is_the_best_where_the_experiment_says_so() -> None:
    runs = [made_up_run("a", ms=9), made_up_run("b", ms=7), made_up_run("b", ms=8)]
    columns = (Column("ms", "ms", ".1f"),)
    experiment = Experiment("x", "X", columns, runs=runs, better="ms", lower_is_better=True)
    assert lines_of(experiment) == [
        ["loader", "workers", "ms", "range"],
        ["a", "0", "9.0", "9.0 to 9.0"],
        ["b", "0", "7.5*", "7.0 to 8.0"],
    ]


def test_an_experiment_without_a_speed_has_no_star_and_its_own_axis() -> None:
    runs = [made_up_run("a", 4, lost=0, repeated=3), made_up_run("b", 8, lost=2, repeated=0)]
    experiment = Experiment("x", "X", COUNTS, axis="processors", runs=runs)
    assert lines_of(experiment) == [
        ["loader", "processors", "lost", "repeated"],
        ["a", "4", "0", "3"],
        ["b", "8", "2", "0"],
    ]


def test_failed_rows_are_named_with_the_reason() -> None:
    runs = [*speeds("a", 10), made_up_run("b", 2, failure="killed by SIGKILL")]
    experiment = Experiment("x", "X", runs=runs)
    assert lines_of(experiment)[2] == ["b", "2", "failed"]
    assert "failed, 1 of 1: Keras b, workers 2: killed by SIGKILL" in text_table(experiment)


def test_a_table_of_failures_only() -> None:
    experiment = Experiment("x", "X", runs=[made_up_run("b", 2, failure="exit code 1")])
    assert lines_of(experiment) == [["loader", "workers"], ["b", "2"]]
    assert "exit code 1" in markdown_table(experiment)


def test_a_pipe_in_a_name_is_no_column() -> None:
    experiment = Experiment("x", "X", runs=speeds("a|b", 10))
    assert lines_of(experiment)[1][0] == "a\\|b"


def test_every_number_has_its_spread_where_it_is_known() -> None:
    run = made_up_run("a", samples_per_second=100, waited_share=0.5)
    run.rounds["waited_share"] = [0.25, 0.75]
    columns = (
        Column("samples_per_second", "samples/s", ",.0f"),
        Column("waited_share", "waited", ".0%"),
    )
    experiment = Experiment("x", "X", columns, runs=[run])
    assert lines_of(experiment)[1] == ["a", "0", "100*", "50% (25% to 75%)"]


# --- what depends on the seed ---

LEARNT = (*SPEEDS, Column("accuracy", "accuracy", ".3f", seeded=True))


def learnt(*accuracies: float, seeds: Sequence[int | None]) -> Experiment:
    runs = [
        made_up_run("a", samples_per_second=100, accuracy=accuracy, seed=seed)
        for accuracy, seed in zip(accuracies, seeds, strict=True)
    ]
    return Experiment("x", "X", LEARNT, runs=runs)


@pytest.mark.parametrize("table", [text_table, markdown_table])
@pytest.mark.parametrize(
    ("accuracies", "seeds", "shown"),
    [
        ((0.84, 0.85, 0.87), (1, 2, 3), "0.853 ± 0.015, n = 3"),
        ((0.84,), (1,), "0.840, n = 1"),
        ((0.84, 0.86), (1, 1), "0.850, n = 1"),
        ((0.84, 0.86, 0.95), (1, 1, 2), "0.900 ± 0.071, n = 2"),
    ],
    ids=["seeds", "one run", "one seed twice", "two seeds, one twice"],
)
def test_an_accuracy_has_its_spread_over_seeds(
    table: Callable[[Experiment], str],
    accuracies: tuple[float, ...],
    seeds: tuple[int, ...],
    shown: str,
) -> None:
    (line,) = (
        line for line in table(learnt(*accuracies, seeds=seeds)).splitlines() if "n =" in line
    )
    assert shown in line
    assert " to " not in line


def test_an_accuracy_of_unknown_seeds_is_a_median_without_a_deviation() -> None:
    lines = lines_of(learnt(0.98, seeds=[None]))
    assert lines[1][-1] == "0.980"


def test_the_json_has_the_spread_over_seeds_and_each_runs_seed() -> None:
    content = learnt(0.84, 0.86, seeds=[1, 2]).content()
    assert content["rows"][0]["over_seeds"] == {
        "accuracy": {"mean": 0.85, "deviation": pytest.approx(0.0141, abs=1e-4), "seeds": 2}
    }
    assert [run["seed"] for run in content["runs"]] == [1, 2]
