from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lab.experiments.cifar import find_cifar, load_cifar

FOLDER = "cifar-10-batches-py"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def write_real(folder: Path) -> Path:
    """Four pictures in each file, as CIFAR-10 has them: planes of red, green and blue."""
    folder.mkdir(parents=True)
    for number in range(5):
        planes = np.repeat(np.uint8([[1, 2, 3]]) * 10 + number, 1024, axis=1)
        batch = {b"data": np.repeat(planes, 4, axis=0), b"labels": [number] * 4}
        (folder / f"data_batch_{number + 1}").write_bytes(pickle.dumps(batch))
    return folder


@pytest.mark.parametrize("inside", [FOLDER, f"{FOLDER}-target/{FOLDER}"])
def test_cifar_is_found_in_kerass_cache(tmp_path: Path, inside: str) -> None:
    folder = write_real(tmp_path / "keras" / "datasets" / inside)
    found = find_cifar()
    assert (found.name, found.path) == ("CIFAR-10", folder)


def test_cifar_under_data_dir_comes_first(tmp_path: Path) -> None:
    write_real(tmp_path / "keras" / "datasets" / FOLDER)
    folder = write_real(tmp_path / "data" / FOLDER)
    found = find_cifar(tmp_path / "data")
    assert (found.name, found.path) == ("CIFAR-10 under --data-dir", folder)


def test_pictures_are_height_by_width_by_colour(tmp_path: Path) -> None:
    images, labels = load_cifar(write_real(tmp_path / FOLDER), 7)
    assert (images.shape, images.dtype) == ((7, 32, 32, 3), np.uint8)
    assert (labels.tolist(), labels.dtype) == ([0, 0, 0, 0, 1, 1, 1], np.int32)
    assert (images[:4] == [10, 20, 30]).all()
    assert (images[4:] == [11, 21, 31]).all()
