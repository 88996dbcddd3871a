"""``statistics``: the figures are those of all samples, whoever counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters import open_images, statistics
from tests.packing.materials import folder

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (300, 6, 5, 3), np.uint8)
LABELS = RNG.integers(0, 4, 300)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16"])
def test_means_and_deviations_are_those_of_all_pixels(dtype):
    images = IMAGES.astype(dtype)
    found = statistics((images, LABELS), progress=False)
    assert found.mean == pytest.approx(images.mean(axis=(0, 1, 2)), rel=1e-6)
    assert found.std == pytest.approx(images.std(axis=(0, 1, 2), dtype="f8"), rel=1e-6)
    assert found.labels == {n: int((n == LABELS).sum()) for n in range(4)}
    assert list(found.labels) == [0, 1, 2, 3]
    assert found.sizes == {(6, 5, 3): 300}
    assert (found.samples, found.corrupt) == (300, ())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_may_come_first(channels):
    images = RNG.integers(0, 256, (20, channels, 6, 5), np.uint8)
    found = statistics((images, LABELS[:20]), progress=False)
    assert found.mean == pytest.approx(images.mean(axis=(0, 2, 3)))
    assert found.std == pytest.approx(images.std(axis=(0, 2, 3)))
    assert found.fields[0].kind == "image"


def test_least_and_greatest_are_of_numbers():
    x = np.array([[np.nan, 2.0, 3.0], [np.nan] * 3], "float32")
    found = statistics(x, progress=False)
    assert (found.fields[0].low, found.fields[0].high) == (2.0, 3.0)
    assert "inf" not in str(statistics(x[1:], progress=False))


def test_any_number_of_threads_counts_the_same_to_the_bit():
    images = RNG.random((300, 6, 5, 3))
    assert len({str(vars(statistics(images, n, progress=False))) for n in (1, 2, 5)}) == 1


class Broken:
    """Samples of several sizes, some of which can't be read."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, number: int) -> Any:
        if number in (3, 150):
            raise OSError(f"no {number}")
        return {"image": IMAGES[0, : 2 + number % 4], "name": f"n{number % 3}", "x": number / 2}


def test_what_cannot_be_read_is_listed_and_the_rest_counted(capsys):
    found = statistics(Broken(), 2)
    assert found.corrupt == ((3, "OSError: no 3"), (150, "OSError: no 150"))
    assert sum(found.sizes.values()) == sum(found.labels.values()) == 198
    assert set(found.labels) == {"n0", "n1", "n2"}
    numbers = [each for each in found.fields if each.name == "x"]
    assert (numbers[0].kind, numbers[0].low, numbers[0].high) == ("number", 0, 99.5)
    text = str(found)
    for part in (
        "200 samples",
        "4 shapes, 2 x 5 x 3 to 5 x 5 x 3",
        "2 can't be read",
        "3: OSError",
    ):
        assert part in text
    assert capsys.readouterr().out == ""


def test_a_folder_of_images_and_what_is_damaged_in_it(tmp_path):
    folder(tmp_path / "photos")
    with open_images(tmp_path / "photos") as source:
        whole = statistics(source, progress=False)
        path = source.files[0]
    assert (len(whole.mean), sum(whole.labels.values())) == (3, whole.samples)
    with open(path, "wb") as file:
        file.write(b"no image")
    damaged = statistics(tmp_path / "photos", progress=False)
    assert [number for number, _ in damaged.corrupt] == [0]
    assert path in damaged.corrupt[0][1]


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match='workers must be >= 1 or "auto", got 0'):
        statistics(IMAGES, 0)
    with pytest.raises(TypeError, match="source must be an array"):
        statistics(3)
