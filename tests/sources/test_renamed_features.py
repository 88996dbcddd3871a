"""Several names of one stored feature: a batch is what its samples are one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordError, open_records
from tests.images.pictures import encoded as picture_file
from tests.images.pictures import picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.example_files import encoded, file_of, outcome

SIZE, BATCH = 40, 8
pytestmark = pytest.mark.usefixtures("gatherer")


def stored(number: int) -> bytes:
    """In two orders; one record in eight lacks the feature that has two names."""
    features: dict[str, Any] = {"a": [200 + number], "b": [bytes([number, 1, 0, 128])]}
    if number % 8 == 5:
        features = {"b": features["b"]}
    return encoded(dict(reversed(features.items())) if number % 3 else features)


def twice(folder: Path, payloads: Any, key: str, first: Any, second: Any) -> Any:
    """A source whose x and y are both called ``key`` in its records."""
    decode, fields = {"x": first, "y": second}, {"x": key, "y": key}
    return open_records(file_of(folder, payloads), decode=decode, fields=fields)


def assert_the_same(source: Any) -> None:
    """What batches hold in two epochs is what samples are."""
    plan = plan_of(source, BATCH, shuffle=True)
    for epoch in range(2):
        for index, batch in enumerate(epoch_of(plan, epoch)):
            for row, number in enumerate(plan.order.batch(epoch, index).tolist()):
                for name, value in source[number].items():
                    np.testing.assert_array_equal(batch[name][row], value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Feature("int64", default=-1), Feature("int64", default=-2)),
        (Feature("int64", default=-1), Feature("int16", default=7)),
        (Feature("int64", default=-1), Feature("int64", (1,), default=3)),
    ],
)
def test_two_names_of_one_feature_have_its_values_in_a_batch(tmp_path, first, second):
    source = twice(tmp_path, map(stored, range(SIZE)), "a", first, second)
    assert source[2] == {"x": 202, "y": 202}
    assert_the_same(source)


@pytest.mark.parametrize(("first", "second"), [("uint8", "uint8"), ("uint8", "<u2")])
def test_two_names_of_the_same_bytes(tmp_path, first, second):
    one = Feature(first, 4 // np.dtype(first).itemsize, stored="raw")
    other = Feature(second, 4 // np.dtype(second).itemsize, stored="raw", default=1)
    source = twice(tmp_path, map(stored, range(SIZE)), "b", one, other)
    assert_the_same(source)


def test_a_name_of_another_kind_is_an_error_in_a_batch_too(tmp_path):
    """Whatever the other one is, and whether it has a default or not."""
    features = Feature("int64", default=-1), Feature("float32", default=0.5)
    for place, (first, second) in enumerate([features, features[::-1]]):
        (tmp_path / str(place)).mkdir()
        source = twice(tmp_path / str(place), [encoded({"a": [7]})] * 3, "a", first, second)
        expected = outcome(source, 0)
        assert "with an int64_list" in expected or "with a float_list" in expected
        with pytest.raises(RecordError) as raised:
            batch_of(plan_of(source, 3))
        assert str(raised.value) == expected


def test_a_name_of_another_length_is_an_error_in_a_batch_too(tmp_path):
    features = Feature("int64", default=-1), Feature("int64", 2, default=(1, 2))
    source = twice(tmp_path, [encoded({"a": [7]})] * 3, "a", *features)
    with pytest.raises(RecordError, match="2 values"):
        batch_of(plan_of(source, 3))


def test_two_names_of_one_image(tmp_path):
    payloads = [
        encoded({"a": [picture_file(picture(20 + number, 30), "PNG")], "b": [number]})
        for number in range(9)
    ]
    decoders = ImageDecoder(8), ImageDecoder(12)
    assert_the_same(twice(tmp_path, payloads, "a", *decoders))
