from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from adapters import open_records
from benchmarks.data.caltech_pictures import draw_size, files_in, find_pictures

CLASSES = ("001.ak47", "002.american-flag", "257.clutter")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def write_real(folder: Path) -> Path:
    """Two pictures of each of three classes, and what else lies in the real archive."""
    for label, name in enumerate(CLASSES):
        (folder / name / "greg").mkdir(parents=True)
        for number in (1, 2):
            picture = np.full((300 + 10 * number, 400, 3), 60 * label, np.uint8)
            cv2.imwrite(str(folder / name / f"{label + 1:03}_{number:04}.jpg"), picture)
    (folder / CLASSES[2] / "RENAME2").write_text("no picture")
    return folder


@pytest.mark.parametrize("inside", [".", "256_ObjectCategories", "caltech256/256_ObjectCategories"])
def test_the_real_folder_is_found_under_data_dir(tmp_path: Path, inside: str) -> None:
    folder = write_real(tmp_path / "data" / inside)
    pictures = find_pictures(tmp_path / "data")
    assert pictures.folder.samefile(folder)
    assert pictures.name == "Caltech-256 under --data-dir"


def test_the_real_folder_is_found_in_kerass_cache(tmp_path: Path) -> None:
    folder = write_real(tmp_path / "keras" / "datasets" / "256_ObjectCategories")
    pictures = find_pictures()
    assert (pictures.folder, pictures.name) == (folder, "Caltech-256")


def test_classes_are_numbered_by_name(tmp_path: Path) -> None:
    files = files_in(write_real(tmp_path / "256_ObjectCategories"))
    assert [(Path(path).name, label) for path, label in files] == [
        ("001_0001.jpg", 0),
        ("001_0002.jpg", 0),
        ("002_0001.jpg", 1),
        ("002_0002.jpg", 1),
        ("003_0001.jpg", 2),
        ("003_0002.jpg", 2),
    ]


def test_packed_pictures_are_the_same_but_smaller(tmp_path: Path) -> None:
    write_real(tmp_path / "256_ObjectCategories")
    with open_records(find_pictures(tmp_path).packed, decode="image") as packed:
        samples = [packed[number] for number in range(len(packed))]
    assert [label for _, label in samples] == [0, 0, 1, 1, 2, 2]
    assert {min(image.shape[:2]) for image, _ in samples} == {256}
    assert [round(float(image.mean())) for image, _ in samples] == [0, 0, 60, 60, 120, 120]


def test_another_folder_is_packed_anew(tmp_path: Path) -> None:
    write_real(tmp_path / "one")
    write_real(tmp_path / "two")
    assert find_pictures(tmp_path / "one").packed != find_pictures(tmp_path / "two").packed


def test_sizes_are_spread_as_the_model_says() -> None:
    rng = np.random.default_rng(0)
    widths, heights = np.transpose([draw_size(rng) for _ in range(20_000)])
    assert np.median(widths) == pytest.approx(370, rel=0.03)
    assert np.median(heights) == pytest.approx(325, rel=0.03)
    assert np.mean(widths > 700) == pytest.approx(0.1, abs=0.02)
    assert min(widths.min(), heights.min()) >= 100
