"""Metrics of MXNet: what they have counted can be saved, whatever they count in."""

from __future__ import annotations

import json
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from adapters.gluon import metricstate
from adapters.resuming.values import from_json, to_json


class Counted(mx.metric.EvalMetric):
    """A metric with states of several kinds."""

    def __init__(self) -> None:
        self.seen, self.array, self.open = [], mx.nd.zeros(2), iter(())
        super().__init__("counted")

    def update(self, labels: Any, preds: Any) -> None:
        self.seen.append({"sum": float(labels[0].sum().asscalar())})
        self.array += 1

    def get(self) -> tuple[str, Any]:
        return self.name, (list(self.seen), self.array.asnumpy().tolist())


METRICS = {
    "F1 of all": lambda: mx.metric.F1(average="micro"),
    "F1 of batches": lambda: mx.metric.F1(average="macro"),
    "MCC": lambda: mx.metric.MCC(average="micro"),
    "PCC": mx.metric.PCC,
    "accuracy": mx.metric.Accuracy,
    "several": lambda: mx.metric.CompositeEvalMetric(
        [mx.metric.F1(average="micro"), mx.metric.TopKAccuracy(2)]
    ),
    "one's own": Counted,
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_of_a_half_epoch_goes_on_exactly(name):
    rng = np.random.default_rng(1)
    batches = [
        ([mx.nd.array(rng.integers(0, 2, 8))], [mx.nd.array(rng.dirichlet([1, 1], 8))])
        for _ in range(6)
    ]
    whole, before, after = (METRICS[name]() for _ in range(3))
    for labels, predictions in batches:
        whole.update(labels, predictions)
    for labels, predictions in batches[:3]:
        before.update(labels, predictions)
    arrays: list[Any] = []
    apart = to_json(metricstate.states_of([before]), arrays)
    states = from_json(json.loads(json.dumps(apart)), arrays)
    before.update(*batches[0])
    metricstate.restore([after], states)
    for labels, predictions in batches[3:]:
        after.update(labels, predictions)
    assert after.get() == whole.get()
    if whole._has_global_stats and name != "one's own":
        assert after.get_global() == whole.get_global()


def test_what_a_metric_has_that_cant_be_saved_is_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(metricstate, "_warned", set())
    metricstate.states_of([Counted()])
    metricstate.states_of([Counted()])
    assert caplog.text.count("Counted.open, a tuple_iterator, can't be saved") == 1


def test_other_metrics_are_refused():
    states = metricstate.states_of([mx.metric.F1()])
    with pytest.raises(ValueError, match=r"train_metrics must be \['F1'\].* got \['MAE'\]"):
        metricstate.restore([mx.metric.MAE()], states)
