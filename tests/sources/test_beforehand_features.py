"""Parsed features from a cache: the same samples as without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, ImageDecoder, open_records
from tests.images.pictures import encoded, picture
from tests.plans import batch_of, plan_of
from tests.sources.every_kind import all_samples
from tests.sources.example_files import assembled, entry, listed
from tests.sources.record_files import write
from tests.sources.test_beforehand import ROWS, batch, cache, same, unreadable


def table(path: Path, count: int = 11) -> Path:
    """Examples of everything that a feature may be."""
    rng = np.random.default_rng(1)
    records = []
    for number in range(count):
        features = {
            "image": [encoded(picture(20 + number, 30), "JPEG")],
            "other": [encoded(picture(20 + number, 30), "JPEG", quality=60)],
            "raw": [rng.integers(0, 256, 600, np.uint8).tobytes()],
            "label": [number],
            "weights": rng.random(3).tolist(),
            "steps": list(range(number % 4)),
            "name": [f"é{number}".encode()],
            "words": [b"a" * n for n in range(number % 3)],
        }
        records.append(assembled(entry(key, listed(value)) for key, value in features.items()))
    return write(path, "tfrecord", records)


FIXED = {
    "raw": Feature("uint8", (20, 30), stored="raw"),
    "label": Feature("int64"),
    "weights": Feature("float32", (3,)),
    "absent": Feature("float16", (2,), default=1.5),
}
PICTURES = {
    **FIXED,
    "image": ImageDecoder(16, crop="random_resized", flip=True),
    "other": ImageDecoder(16, crop="random_resized", flip=True),
}
VARIED = {
    **PICTURES,
    "steps": Feature("int32", (None,), default=-1),
    "name": Feature(str),
    "words": Feature(bytes, (None,), default=b""),
}


def leaves(sample: Any) -> list[Any]:
    return list(sample) if isinstance(sample, tuple) else [sample[key] for key in sorted(sample)]


@pytest.mark.parametrize("decode", [FIXED, PICTURES, VARIED], ids=["fixed", "pictures", "varied"])
@pytest.mark.parametrize("outputs", [None, ("label", "raw", "absent")])
def test_features(tmp_path, decode, outputs):
    path = table(tmp_path / "a.tfrecord")
    plain = open_records(path, decode=decode, outputs=outputs)
    kept = open_records(path, decode=decode, outputs=outputs, cache=cache(tmp_path))
    again = open_records(path, decode=decode, outputs=outputs, cache=cache(tmp_path))
    expected = list(map(leaves, all_samples(plain)))
    batches = [batch(plain, epoch) for epoch in (0, 1)] if plain.leaves else []
    for source in (kept, kept, again):
        for one, other in zip(all_samples(source), expected, strict=True):
            same(leaves(one), other)
            assert [type(value) for value in leaves(one)] == [type(value) for value in other]
    unreadable(path)
    for epoch, rows in enumerate(batches):
        same(batch(again, epoch), rows)
    if not plain.leaves:
        assert batch_of(plan_of(again, 4))["steps"].shape == (4, 3)


def test_a_batch_of_features_fills_it(tmp_path):
    path = table(tmp_path / "a.tfrecord")
    for decode in (FIXED, PICTURES):
        kept = open_records(path, decode=decode, cache=cache(tmp_path))
        expected = batch(open_records(path, decode=decode))
        same(batch(kept), expected)
        assert not kept._kept.missing(ROWS).any()
        same(batch(kept), expected)
