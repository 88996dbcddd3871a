"""Figures that can't all be true are noticed, and nothing is advised on the strength of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from adapters.diagnosis import Diagnosis
from adapters.diagnosis.contention import Contention
from adapters.diagnosis.verdict import Figures, Workers
from tests.diagnosis.made_up import THREADS, made_up

INLINE = Workers("inline", 0, 4)
BUSY = Contention(others=0.6, idle=0.05)
# A loader whose transforms are the bottleneck, of two threads, and nothing wrong with it.
SOUND = made_up(memory=0.038)


def rounds_of(diagnosis: Diagnosis, **changes: list[Any]) -> tuple[Figures, ...]:
    """Rounds that found what the diagnosis says, but for these."""
    names = [field.name for field in dataclasses.fields(Figures)]
    same = {name: getattr(diagnosis, name) for name in names}
    count = len(next(iter(changes.values())))
    return tuple(
        Figures(**{**same, **{name: values[place] for name, values in changes.items()}})
        for place in range(count)
    )


# --- contradictions ---


def test_sound_figures_do_not_contradict_each_other():
    assert (SOUND.contradictions, SOUND.noise, SOUND.certain) == ((), (), True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"workers": INLINE, "loader": 0.016, "whole": 0.02, "memory": 0.015},
            "the loader alone takes 16 ms, with no workers, and one batch, made by one thread "
            "takes 80 ms",
        ),
        (
            {"workers": INLINE, "alone": 0.016},
            "the loader alone takes 40 ms, with no workers, and one batch, made by one thread "
            "takes 16 ms",
        ),
        (
            {"alone": 0.2},
            "the loader alone takes 40 ms, with 2 threads, and one batch, made by one thread "
            "takes 200 ms",
        ),
        (
            {"storage": 0.08},
            "fetching alone takes 80 ms, and the loader alone takes 40 ms, of which that is a part",
        ),
        (
            {"memory": 0.08},
            "without fetching: samples in memory takes 80 ms, and the loader alone takes 40 ms, of "
            "which that is a part",
        ),
        (
            {"collation": 0.08},
            "collation alone takes 80 ms, and the loader alone takes 40 ms, of which that is a "
            "part",
        ),
        (
            {"copy": 0.03},
            "its copy to the device takes 30 ms, and the step, with the same batch again and again "
            "takes 10 ms, of which that is a part",
        ),
        (
            {"same": 0.07},
            "the step, with the same batch again and again takes 70 ms, and the whole, loader and "
            "step takes 40 ms, of which that is a part",
        ),
        (
            {"whole": 0.012},
            "the loader alone takes 40 ms, and the whole, loader and step takes 12 ms, of which "
            "that is a part",
        ),
        (
            {"whole": 0.15},
            "the whole, loader and step takes 150 ms, the loader alone takes 40 ms, and the step, "
            "with the same batch again and again takes 10 ms",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_contradiction_is_said_and_nothing_advised(changes, said):
    diagnosis = made_up(**{"memory": 0.038, **changes})
    assert diagnosis.contradictions == (said,)
    assert not diagnosis.certain
    lines = str(diagnosis).splitlines()
    assert lines[0] == "bottleneck: can't be told, figures contradict each other"
    assert f"contradiction: {said}" in lines
    (advice,) = diagnosis.advice
    assert advice.startswith("nothing, on the strength of these figures")


def test_no_number_of_cpus_is_advised_from_figures_that_contradict_each_other():
    changes = {"loader": 0.016, "whole": 0.017, "memory": 0.015, "same": 0.006}
    diagnosis = made_up(workers=INLINE, **changes)
    assert "CPUs would keep up" not in str(diagnosis)
    assert "times as fast" not in str(diagnosis)


@pytest.mark.parametrize(
    "changes",
    [
        {"alone": 0.0802 * 1.5},
        {"storage": 0.06},
        {"whole": 0.09},
        {"loader": 0.0001, "storage": 0.0005, "memory": 0.0005, "alone": 0.0006, "whole": 0.01},
    ],
    ids=["less than a full wave of workers", "storage", "taking turns", "a fraction of a ms"],
)
def test_what_may_well_be_is_no_contradiction(changes):
    assert made_up(**{"collation": 0.0, **changes}).contradictions == ()


def test_what_was_examined_in_the_place_of_a_loader_may_differ_from_it():
    assert made_up(replaced="SafeSequence", whole=0.012).contradictions == ()
    assert made_up(replaced="SafeSequence", whole=1.0).contradictions == ()


def test_gathering_rows_into_new_memory_may_take_longer_than_the_loader():
    assert made_up(gathers=True, storage=0.1).contradictions == ()


def test_workers_of_a_foreign_loader_are_not_known():
    assert made_up(workers=Workers("unknown", 0, 4), alone=9.0).contradictions == ()


# --- noise ---


@pytest.mark.parametrize(
    ("contention", "disturbs"),
    [
        (Contention(0.6, 0.05), True),
        (Contention(0.1, 0.0), False),
        (Contention(0.6, 0.35), False),
        (Contention(), False),
    ],
    ids=["both are busy", "others do little", "CPUs are left", "nothing is known"],
)
def test_others_disturb_where_they_take_cpus_that_are_all_taken(contention, disturbs):
    assert contention.disturbs is disturbs


def test_other_programs_are_named_with_what_they_took():
    noisy = made_up(contention=BUSY)
    said = "other programs took 60% of the CPU time meanwhile, and 5% was left"
    assert noisy.noise == (said,)
    assert f"noise: {said}" in str(noisy).splitlines()


def test_rounds_that_differ_are_named_with_their_range():
    noisy = made_up(rounds=rounds_of(SOUND, loader=[0.016, 0.04, 0.08]))
    assert noisy.noise == ("the loader alone took 16 to 80 ms, from round to round",)


@pytest.mark.parametrize("loader", [[0.032, 0.04, 0.05], [0.0001, 0.0002, 0.0004]])
def test_rounds_that_differ_by_little_are_no_noise(loader):
    assert made_up(rounds=rounds_of(SOUND, loader=loader)).noise == ()


def test_a_step_that_is_a_small_part_may_differ_from_round_to_round():
    assert made_up(whole=0.04, rounds=rounds_of(SOUND, same=[0.001, 0.002, 0.009])).noise == ()
    (said,) = made_up(whole=0.02, rounds=rounds_of(SOUND, same=[0.001, 0.002, 0.009])).noise
    assert said.endswith(" took 1 to 9 ms, from round to round")


def test_on_a_noisy_machine_a_bottleneck_that_all_rounds_name_stands():
    rounds = rounds_of(SOUND, loader=[0.04, 0.1, 0.04], whole=[0.05, 0.11, 0.05])
    diagnosis = dataclasses.replace(SOUND, rounds=rounds, contention=BUSY)
    assert diagnosis.noise
    assert diagnosis.certain
    assert diagnosis.bottleneck == "transforms"


def test_on_a_noisy_machine_a_bottleneck_that_rounds_disagree_on_is_none():
    rounds = rounds_of(SOUND, memory=[0.038, 0.002, 0.038], storage=[0.002, 0.038, 0.002])
    diagnosis = dataclasses.replace(SOUND, rounds=rounds, contention=BUSY)
    assert not diagnosis.certain
    assert str(diagnosis).startswith("bottleneck: can't be told, the machine is too noisy")
    assert diagnosis.advice[0].startswith("nothing, on the strength of these figures")


def test_two_parts_that_take_the_same_on_a_quiet_machine_are_either():
    rounds = rounds_of(SOUND, memory=[0.021, 0.019, 0.021], storage=[0.02, 0.02, 0.02])
    assert dataclasses.replace(SOUND, rounds=rounds).certain


@pytest.mark.parametrize("part", ["storage", "memory"])
def test_no_numbers_are_advised_from_a_noisy_machine(part):
    quiet = made_up(**{part: 0.038})
    noisy = dataclasses.replace(quiet, contention=BUSY)
    assert noisy.certain
    assert any("workers=" in advice for advice in quiet.advice)
    assert not any("workers=" in advice for advice in noisy.advice)
    assert "these figures are too uncertain to say" in noisy.advice[-1]
    assert "times as fast" not in str(noisy)


def test_the_loader_of_one_cpu_is_not_told_how_many_it_takes():
    noisy = made_up(memory=0.038, workers=Workers("threads", 4, 4), contention=BUSY)
    assert "CPUs would keep up" not in str(noisy)


# --- for people ---


def test_each_figure_has_its_range():
    diagnosis = made_up(rounds=rounds_of(SOUND, loader=[0.038, 0.04, 0.044]), workers=THREADS)
    lines = {line[:50].strip(): line[50:].split() for line in str(diagnosis).splitlines()}
    assert lines["the loader alone"] == ["40", "1,600", "38", "to", "44", "ms"]
    assert lines["a batch of 64"][-3:] == ["in", "3", "rounds"]
