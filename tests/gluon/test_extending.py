"""A transform of Gluon's that comes from outside: one class, and one line that registers it."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

from adapters import gluon_loader
from adapters.gluon.stages import STAGES, Stage


class Inverted(mx.gluon.nn.HybridBlock):
    """A user's own block."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return 255 - x


class InvertedStage(Stage):
    """The same for a batch at once."""

    batches = 0

    def batch(self, rows: Any, drawn: Any, allocate: Any) -> Any:
        out = allocate(rows.shape, rows.dtype)
        np.subtract(255, rows, out=out)
        InvertedStage.batches += 1
        return out


def test_a_kind_of_transform(monkeypatch, capsys):
    images = mx.nd.arange(10 * 4 * 4).reshape((10, 4, 4, 1))
    data = mx.gluon.data.ArrayDataset(images, np.arange(10)).transform_first(Inverted())
    one_by_one = [x.asnumpy() for x, _ in gluon_loader(data, 4, num_workers=0)]
    monkeypatch.setitem(STAGES, Inverted, InvertedStage)
    with gluon_loader(data, 4, num_workers=0) as loader:
        at_once = [x.asnumpy() for x, _ in loader]
        loader.explain()
    assert InvertedStage.batches == 3
    assert "Inverted: a batch at a time" in capsys.readouterr().out
    for ours, theirs in zip(at_once, one_by_one):
        np.testing.assert_array_equal(ours, theirs)
