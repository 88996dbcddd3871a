"""Keras's own generator of images, which draws from the process's generators, with all workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adapters import SafeSequence
from tests.keras.recording import AUTO, INLINE, PROCESSES, TWO_THREADS, Options

pytestmark = [pytest.mark.one_backend, pytest.mark.usefixtures("sent_by_value")]

image = pytest.importorskip(
    "keras.src.legacy.preprocessing.image", reason="Keras 2 has it elsewhere"
)
WORKERS = [
    pytest.param(TWO_THREADS, id="threads"),
    pytest.param(PROCESSES, id="processes"),
    pytest.param(AUTO, id="auto"),
]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(12):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    return folder


def generated(folder: Path, workers: Options, **settings: Any) -> list[Any]:
    generator = image.ImageDataGenerator(**settings)
    # With a seed of its own, it would count the calls of each process.
    flow = generator.flow_from_directory(
        str(folder), target_size=(8, 8), batch_size=4, shuffle=False
    )
    with SafeSequence(flow, **workers) as sequence:
        return list(sequence)


# Keras 3.6 says it of iterators of its own.
@pytest.mark.filterwarnings("ignore:Your `PyDataset` class should call")
@pytest.mark.parametrize("workers", WORKERS)
def test_its_batches_are_the_same_for_all_workers(workers, pictures, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    settings = {"horizontal_flip": True, "channel_shift_range": 50.0}
    inline = generated(pictures, INLINE, **settings)
    assert len(inline) == 3
    for mine, other in zip(inline, generated(pictures, workers, **settings)):
        np.testing.assert_array_equal(mine[0], other[0])
        np.testing.assert_array_equal(mine[1], other[1])
