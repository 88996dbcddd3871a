"""A few pictures, packed at 256 pixels, take the place of the user's in the same plan."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, open_images, open_records, pack
from adapters.batch.order import Order
from adapters.batch.sourceplan import SourcePlan
from adapters.diagnosis.ablation import ablations_of
from adapters.images import size_of
from tests.packing.materials import jpeg

DECODE = ImageDecoder(64, crop="random_resized")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files lie."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def records_of(path: Path, height: int, width: int, **options: Any) -> Any:
    pictures = [(jpeg(number, height, width), number) for number in range(6)]
    pack(pictures, path / "pictures.rec", format="recordio")
    return open_records(path / "pictures.rec", **{"decode": DECODE, **options})


def packed_of(source: Any) -> Any:
    return ablations_of(SourcePlan(source, Order(len(source), 4)), 0).packed


def test_pictures_are_made_smaller_and_keep_their_labels(tmp_path, folder):
    plan = packed_of(records_of(tmp_path, 300, 400))
    labels = [plan.source.picture(number)[1] for number in range(6)]
    assert labels == list(range(6))
    assert {size_of(plan.source.picture(number)[0]) for number in range(6)} == {(256, 341)}
    assert plan.source[0][0].shape == (64, 64, 3)
    assert [len(plan.order.batch(0, index)) for index in range(3)] == [4, 2, 4]


def test_files_of_pictures_are_packed_too(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(number, 300, 400))
    plan = packed_of(open_images(sorted(tmp_path.glob("*.jpg")), decode=DECODE))
    assert size_of(plan.source.picture(5)[0]) == (256, 341)


def test_what_was_written_goes_with_its_source(tmp_path, folder):
    plan = packed_of(records_of(tmp_path, 300, 400))
    assert list(folder.iterdir())
    del plan
    gc.collect()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("size", [(200, 256), (256, 300)])
def test_pictures_that_are_small_are_left(size, tmp_path, folder):
    assert packed_of(records_of(tmp_path, *size)) is None
    assert list(folder.iterdir()) == []


def test_a_picture_that_cannot_be_packed_is_nobodys_trouble(tmp_path, folder):
    source = records_of(tmp_path, 300, 400)
    source.picture = lambda number: (b"no picture", number)
    assert packed_of(source) is None
    assert list(folder.iterdir()) == []


def test_what_is_no_picture_is_left():
    assert ablations_of(SourcePlan(_arrays(), Order(8, 4)), 0).packed is None


def _arrays() -> Any:
    from adapters.sources import as_source

    return as_source(np.zeros((8, 3)))
