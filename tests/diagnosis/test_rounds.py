"""What is measured takes turns, so that a slow moment of the machine falls on all of it alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from adapters.diagnosis import Diagnosis
from adapters.diagnosis.ablation import Ablations
from adapters.diagnosis.examination import MOST_ROUNDS, ROUNDS, examine
from adapters.diagnosis.registry import FRONT_ENDS
from adapters.diagnosis.timing import Timing
from tests.diagnosis.planted import SIZE
from tests.diagnosis.toys import LINE, Feed, ToyFrontEnd
from tests.plans import plan_of

ROUND = ["whole", "loader", "storage", "memory", "collation"]
# A batch that is only fetched, and one as it is, both without workers.
ROUND += ["storage", "alone", "same", "copy"]


class Notes:
    """What was measured: a name each time that something of it is done."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def noting(self, name: str) -> Callable[[Any], Any]:
        return lambda item: self.names.append(name) or item

    @property
    def order(self) -> list[str]:
        """What was measured without anything else meanwhile, once."""
        return [name for name, _ in itertools.groupby(self.names)]


class Noted:
    """A data set whose samples are noted."""

    def __init__(self, notes: Notes) -> None:
        self.fetch = notes.noting("loader")

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> Any:
        return self.fetch(np.float32([number]))


class NotedTrainer:
    """Trains in no time, for a second a batch."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def whole(self, loader: Any, seconds: float) -> Timing:
        self.notes.names.append("whole")
        return Timing(1, 1.0)

    def same(self, batch: Any, seconds: float) -> Timing:
        self.notes.names.append("same")
        return Timing(1, 1.0)

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        self.notes.names.append("copy")
        return None


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """Of a front end that takes its loaders apart into plans that are noted."""
    notes = Notes()

    def noted(name: str) -> Any:
        return plan_of(np.zeros((SIZE, 1)), 8, batch_transform=notes.noting(name))

    plans = map(noted, ("alone", "storage", "memory", "collation"))
    ablations = Ablations(*plans, decodes=False)
    monkeypatch.setitem(FRONT_ENDS, "playthings", LINE)
    monkeypatch.setattr(ToyFrontEnd, "ablations", lambda self, loader: ablations)
    return notes


@pytest.fixture
def feed(notes: Notes) -> Iterator[Feed]:
    feed = Feed(Noted(notes))
    yield feed
    feed.close()


@pytest.mark.parametrize(("certain", "rounds"), [(True, ROUNDS), (False, MOST_ROUNDS)])
def test_all_that_is_measured_takes_turns(notes, feed, certain, rounds, monkeypatch):
    monkeypatch.setattr(Diagnosis, "certain", certain)
    assert len(examine(feed, NotedTrainer(notes), None, 0.03).rounds) == rounds
    assert notes.order == ROUND * rounds
