from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.harness.pairs import Bar, Pair, drawn
from benchmarks.harness.results import Column, Experiment, Run
from benchmarks.harness.summary import Figure, rounded, summary
from tests.benchmarks.made_up import made_up_run, speeds


def ours(run: Run) -> Run:
    return dataclasses.replace(run, ours=True)


def test_ours_and_the_best_of_the_others_stand_in_a_line_for_each_framework():
    runs = [*map(ours, speeds("SafeSequence", 80, 100, 120, workers=2)), *speeds("a", 40)]
    runs += [*speeds("b", 50, workers=8), *speeds("published, V100", 70), *speeds("ideal", 900)]
    runs += [ours(made_up_run("gluon_loader", framework="Gluon", samples_per_second=5))]
    keras, gluon = summary([Experiment("x", "X", runs=runs)])
    assert (keras.work, keras.unit) == ("Keras", "samples/s")
    assert keras.ours == Figure("SafeSequence, workers 2", 100)
    assert keras.peer == Figure("b, workers 8", 50)
    assert keras.published == Figure("published, V100, workers 0", 70)
    assert keras.ratio == 2
    assert (gluon.work, gluon.peer, gluon.ratio) == ("Gluon", None, None)


def test_of_times_fewer_are_better_and_the_ratio_is_turned_round():
    runs = [ours(made_up_run("SafeSequence", seconds=2.0)), made_up_run("a", seconds=3.0)]
    runs.append(made_up_run("b", seconds=9.0))
    column = Column("seconds", "s", ".1f")
    experiment = Experiment("x", "X", (column,), runs=runs, better="seconds", lower_is_better=True)
    (line,) = summary([experiment])
    assert line.peer == Figure("a, workers 0", 3)
    assert line.ratio == 1.5


def test_a_ratio_has_the_peers_best_round():
    found = {"ours": 30.0, "peer": 10.0, "ratio": 3.0}
    run = made_up_run("JPEG against tf.data", "", **found)
    words = "SafeSequence, auto against tf.data, 2 calls, samples/s (tensorflow 2.21.0)"
    run = dataclasses.replace(run, software=words, ours=True)
    (line,) = summary([Experiment("ratios", "R", (Column("ratio", "ratio", ".2f"),), runs=[run])])
    assert line.ours == Figure("SafeSequence, auto", 30)
    assert line.peer == Figure("tf.data, 2 calls", 10)
    assert (line.unit, line.ratio, line.work) == ("samples/s", 3, "Keras: JPEG against tf.data")


def test_what_was_not_measured_has_no_line():
    assert summary([Experiment("x", "X", runs=[made_up_run("a", failure="hung")])]) == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [(884_123.4, "884,100"), (8.8371, "8.837"), (530.96, "531"), (0.77654, "0.7765")],
)
def test_numbers_have_four_digits(value, shown):
    assert rounded(value) == shown


def test_the_picture_of_pairs_is_an_svg_that_knows_the_dark():
    pair = Pair("<work> & more", "2 times", Bar("ours", 10, "10/s"), Bar("theirs", 5, "5/s"))
    text = drawn("Speed", [pair], "a note")
    root = ElementTree.fromstring(text)
    bars = [each for each in root if each.get("class") in ("ours", "peer")]
    widths = [float(each.get("width")) for each in bars]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert "prefers-color-scheme: dark" in text
    assert "<work> & more" in "".join(root.itertext())
    assert root.get("aria-label") == "Speed. <work> & more: 2 times"
