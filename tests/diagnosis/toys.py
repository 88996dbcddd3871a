"""A toy framework with a front end of its own, which comes from outside.

from tests.diagnosis.toys import Feed        our loader for it
playthings.Bucket                            its own loader, in a module that scripts import
playthings.Model                             what trains with it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from adapters.batch.order import Order
from adapters.batch.sourceplan import SourcePlan
from adapters.diagnosis.ablation import Ablations, ablations_of
from adapters.diagnosis.front_end import FrontEnd, Observer
from adapters.diagnosis.timing import Timing
from adapters.engine import Engine, Settings
from adapters.sources import as_source

# The framework itself.
PLAYTHINGS = """
class Bucket:
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        yield from ([item] for item in self.data)

class Model:
    batches = 0
"""


class Feed:
    """What users hold: batches of a data set, pass by pass."""

    def __init__(self, data: Any, batch_size: int = 8, hands: int = 0) -> None:
        self.data, self.batch_size, self.hands = data, batch_size, hands
        self.plan = SourcePlan(as_source(data), Order(len(data), batch_size))
        self.engine = Engine(self.plan, Settings(hands, max_queue_size=2))

    def __iter__(self) -> Iterator[Any]:
        stream = self.engine.stream(0, 0, shuffled=False)
        try:
            for _ in range(self.plan.num_batches):
                yield stream.next()
        finally:
            stream.close()

    def close(self) -> None:
        self.engine.close()


class ModelTrainer:
    """Trains in no time, for two seconds a batch."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def whole(self, loader: Any, seconds: float) -> Timing:
        for _ in zip(range(3), loader):
            self.model.batches += 1
        return Timing(3, 6.0)

    def same(self, batch: Any, seconds: float) -> Timing:
        return Timing(3, 6.0)

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        return None


class ToyFrontEnd(FrontEnd):
    workers_keyword = "hands"

    def owns(self, loader: Any) -> bool:
        return isinstance(loader, Feed)

    def in_place_of(self, loader: Any) -> tuple[Any, str] | None:
        if type(loader).__name__ != "Bucket":
            return None
        return Feed(loader.data, 1), "Feed in the place of the Bucket"

    def twin(self, loader: Feed) -> Feed:
        return Feed(loader.data, loader.batch_size, loader.hands)

    def engine(self, loader: Feed) -> Engine:
        return loader.engine

    def ablations(self, loader: Feed) -> Ablations:
        return ablations_of(loader.plan, 0)

    def call(self, kind: str, workers: str) -> str:
        return f"Feed({kind}, {workers})"

    def trainer(self, step: Any) -> ModelTrainer | None:
        return ModelTrainer(step) if hasattr(step, "batches") else None

    @contextmanager
    def intercepted(self, observer: Observer) -> Iterator[None]:
        kind: Any = sys.modules["playthings"].Bucket
        plain = kind.__iter__
        kind.__iter__ = lambda self: observer.loop(self, lambda: plain(self))
        try:
            yield
        finally:
            kind.__iter__ = plain


FRONT_END = ToyFrontEnd()
ITEMS = [np.float32([number]) for number in range(32)]
