"""What an order in blocks announces reaches the files, once for each block."""

from __future__ import annotations

import os

import numpy as np
import pytest

from adapters import Blocks, RecordWriter, open_images, open_records, split
from adapters.batch.arranging import order_of
from adapters.batch.sourceplan import SourcePlan
from tests.packing.materials import folder
from tests.plans import epoch_of

SIZE, BATCH = 200, 8


@pytest.fixture
def told(monkeypatch):
    """What the system is told: (first byte, bytes)."""
    calls = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, offset, size, advice: calls.append((offset, size))
    )
    return calls


def records_of(path):
    with RecordWriter(path, format="recordio") as writer:
        for number in range(SIZE):
            writer.write(bytes([number]) * 100)
    return open_records(path, decode=lambda payload: np.frombuffer(payload, np.uint8))


def test_each_block_of_a_file_is_told_once(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        blocks = Blocks(int(10 * source.sample_bytes), 4)
        order = order_of(SIZE, BATCH, blocks, source=source)
        plan = SourcePlan(source, order)
        read = np.concatenate(epoch_of(plan))
    assert sorted(read[:, 0].tolist()) == list(range(SIZE))
    arrangement = order.arrangement
    stride = os.path.getsize(tmp_path / "x.rec") // SIZE
    first_epoch = {(n * arrangement.block * stride) for n in range(arrangement.blocks)}
    begins = [offset for offset, _ in told]
    # And the first window of the next epoch.
    assert first_epoch <= set(begins)
    assert len(begins) <= len(first_epoch) + 1 + arrangement.window
    assert all(size <= arrangement.block * stride for _, size in told)


def test_parts_and_files_are_told_too(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        half, _ = split(source, [0.5, 0.5])
        half.will_read(10, 20)
        assert len(told) == 1
        source.select(np.array([0, 199, 5])).will_read(0, 3)
        assert len(told) == 1
    images = open_images(folder(tmp_path / "in", 6))
    images.will_read(1, 4)
    assert told[1:] == [(0, 0)] * 3


def test_a_file_that_is_gone_is_no_error_here(tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        os.remove(tmp_path / "x.rec")
        source.will_read(0, 5)
