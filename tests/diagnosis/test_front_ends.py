"""A front end from outside, one file and one line, is diagnosed like the package's own."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import diagnose
from adapters.diagnosis.registry import FRONT_ENDS, Registered
from adapters.diagnosis.script import diagnose_script
from adapters.diagnosis.sweep import Setting, line_of, sweep
from tests.diagnosis.made_up import THREADS, made_up
from tests.diagnosis.planted import SECONDS, Numbers, Waiting, quick_step
from tests.diagnosis.toys import ITEMS, LINE, PLAYTHINGS, Feed, ToyFrontEnd


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FRONT_ENDS, "playthings", LINE)


@pytest.fixture
def playthings(registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The framework, which can be imported."""
    (tmp_path / "playthings.py").write_text(PLAYTHINGS)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: importlib.import_module("playthings")
    sys.modules.pop("playthings", None)


def of_feed(data: Any, *arguments: Any, **options: Any) -> Any:
    feed = Feed(data, **options)
    try:
        return diagnose(feed, *arguments, seconds=SECONDS)
    finally:
        feed.close()


# --- its loaders ---


def test_a_loader_of_the_front_end_is_taken_apart(registered):
    diagnosis = of_feed(Waiting(), quick_step, hands=2)
    assert diagnosis.bottleneck == "storage"
    assert (diagnosis.workers.kind, diagnosis.workers.count) == ("threads", 2)
    assert diagnosis.workers.keyword == "hands"
    assert diagnosis.hints.transforms == "play with transforms"


def test_workers_are_advised_in_the_words_of_the_front_end():
    """Of figures that are made up: those of a busy machine may be good for no number."""
    workers = dataclasses.replace(THREADS, keyword=ToyFrontEnd.workers_keyword)
    assert made_up(storage=0.038, workers=workers).advice[0].startswith("hands=8: ")


def test_without_its_line_the_loader_is_any_that_gives_batches():
    diagnosis = of_feed(Numbers())
    assert (diagnosis.bottleneck, diagnosis.workers.kind) == ("loader", "unknown")


def test_a_loader_of_the_framework_is_examined_as_the_front_ends_own(playthings):
    diagnosis = diagnose(playthings().Bucket(ITEMS), quick_step, seconds=SECONDS)
    assert diagnosis.replaced == "Feed in the place of the Bucket"
    assert diagnosis.storage is not None


def test_a_loader_of_the_front_end_is_tuned(registered, monkeypatch):
    monkeypatch.setattr("adapters.diagnosis.sweep.obstacle_to_processes", lambda plan: "slow here")
    feed = Feed(Numbers())
    found = sweep(feed, seconds=0.01, rounds=1)
    assert {each.setting.kind for each in found.found} >= {"inline", "threads"}
    assert line_of(feed, Setting("threads", 2, 4)) == "Feed(threads, 2, 4)"
    feed.close()


# --- its training ---


def test_a_model_of_the_framework_is_trained(playthings):
    model = playthings().Model()
    diagnosis = of_feed(Numbers(), model)
    assert (diagnosis.whole, diagnosis.same, diagnosis.bottleneck) == (2.0, 2.0, "step")
    assert model.batches == 9


def test_a_model_copies_for_itself(playthings):
    with pytest.raises(ValueError, match="to_device must be None unless step is a function"):
        diagnose(ITEMS, playthings().Model(), to_device=lambda batch: batch)


@pytest.mark.parametrize("imported", [False, True], ids=["in the script", "before"])
def test_a_loop_of_a_script_is_examined(playthings, monkeypatch, tmp_path, imported):
    others = {name: each for name, each in FRONT_ENDS.items() if name == "playthings"}
    monkeypatch.setattr("adapters.diagnosis.script.FRONT_ENDS", others)
    if imported:
        playthings()
    script = tmp_path / "train.py"
    script.write_text(
        "import time, playthings\n"
        "from tests.diagnosis.toys import ITEMS\n"
        "while True:\n"
        "    for batch in playthings.Bucket(ITEMS):\n"
        "        time.sleep(0.02)\n"
    )
    found = diagnose_script(str(script), (), t=None, seconds=SECONDS)
    assert found is not None
    assert (found.bottleneck, found.replaced) == ("step", "Feed in the place of the Bucket")


# --- what is told of it ---


def test_errors_name_it(registered):
    with pytest.raises(TypeError) as no_loader:
        diagnose(7, quick_step)
    assert str(no_loader.value) == (
        "loader must be a SafeSequence, what gluon_loader returns, a Feed, a PyDataset, a Bucket, "
        "or something else that gives batches when it is iterated over, got int"
    )
    with pytest.raises(TypeError) as no_step:
        diagnose(ITEMS, 7)
    assert str(no_step.value) == (
        "step must be a function of a batch or a compiled Keras model or a toy, got 7"
    )
    with pytest.raises(TypeError) as no_tune:
        sweep(ITEMS)
    assert str(no_tune.value) == (
        "loader must be a SafeSequence or what gluon_loader returns or a Feed, got list"
    )


def test_advice_names_it(registered):
    (foreign,) = made_up(storage=None, memory=None, collation=None).advice
    assert foreign.startswith("SafeSequence (Keras) or gluon_loader (Gluon) or Feed (Toys) around")
    copy = made_up(whole=0.0105, loader=0.005, alone=0.01, copy=0.0085).advice
    assert copy[1].endswith("during the step (gluon_loader: ctx=; Feed: hose=)")


# --- what is not imported ---


def test_a_front_end_is_not_imported_for_what_is_none_of_its_own(monkeypatch):
    for name in ("sys", "not_there"):
        monkeypatch.setitem(FRONT_ENDS, name, Registered(f"{name}.diagnosed", "", ""))
    diagnosis = diagnose([np.zeros((4, 2))] * 3, quick_step, seconds=0.03)
    assert diagnosis.workers.kind == "unknown"
