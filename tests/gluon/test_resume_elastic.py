"""Gluon's ``Resume`` with other shards, within an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from adapters import gluon_loader
from adapters.gluon import Resume


def trained(
    folder: Path, shard: Any, batch_size: int, kill_at: int | None = None, samples: int = 24
) -> list[tuple[int, list[int]]]:
    """The epoch and the samples of each batch; ``kill_at`` ends it before one."""
    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    x, seen = np.arange(samples, dtype="float32").reshape(-1, 1), []
    with gluon_loader(x, batch_size, True, seed=2, shard=shard, num_workers=0) as loader:
        resume = Resume(folder, loader, "1 batch")
        for epoch in resume.epochs(2, net, trainer):
            for data in loader:
                resume._writer.wait()
                if len(seen) == kill_at:
                    return seen
                seen.append((epoch, data.asnumpy()[:, 0].astype(int).tolist()))
                resume.step()
    return seen


@pytest.mark.parametrize(("count", "batch_size"), [(1, 8), (3, 2), (1, 1), (2, 1)])
def test_other_shards_go_on_within_an_epoch_and_save_there(count, batch_size, tmp_path):
    """Of two ranks that had 3 of 6 batches of 2 each, 12 of 24 samples."""
    trained(tmp_path, (0, 2), 2, kill_at=3)
    before = {path.name for path in tmp_path.glob("*.npz")}
    seen = trained(tmp_path, (0, count), batch_size, kill_at=2)
    batches, rest = 24 // (count * batch_size), -(-12 // (count * batch_size))
    assert [epoch for epoch, _ in seen] == [0] * min(2, rest) + [1] * (2 - min(2, rest))
    after = {path.name for path in tmp_path.glob("*.npz")}
    if rest > 2:
        assert max(after) == f"000000-{batches - rest + 2:09d}.npz"
    assert after != before
    seen += trained(tmp_path, (0, count), batch_size)
    assert [epoch for epoch, _ in seen] == [0] * rest + [1] * batches
    if count == 1:
        assert len({n for epoch, numbers in seen for n in numbers if epoch == 0}) == 12
        assert sorted(n for epoch, numbers in seen for n in numbers if epoch == 1) == [*range(24)]


def test_an_epoch_of_which_nothing_is_left_for_other_shards_is_over(tmp_path):
    """Of 11 samples, two ranks had 8; four find three left, of which none gets any."""
    trained(tmp_path, (0, 2), 1, kill_at=4, samples=11)
    seen = trained(tmp_path, (0, 4), 1, samples=11)
    assert [epoch for epoch, _ in seen] == [1, 1]
