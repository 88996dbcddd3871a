"""What records and folders behind our loaders must be worth against everybody's, and themselves."""

from __future__ import annotations

import importlib.util
from functools import partial

import numpy as np
import pytest

from benchmarks.data.examples import (
    find_digit_examples,
    find_digit_headers,
    find_digit_shards,
    find_table_examples,
)
from benchmarks.data.photographs import (
    LARGE,
    PICTURES,
    find_digit_records,
    find_packed,
    find_photographs,
)
from benchmarks.experiments import pictures_ratios, records_ratios
from benchmarks.experiments.our_records import (
    digit_examples_for_keras,
    digits_for_keras,
    pictures_for_gluon,
    pictures_for_keras,
    table_for_keras,
)
from benchmarks.harness.ratios import hold, skip_without
from benchmarks.harness.sweeps import Session

# Rows only read; what isn't in the cache is made before.
FINDERS = (
    find_photographs,
    partial(find_photographs, LARGE),
    *(partial(find_packed, encoding) for encoding in ("jpeg", "raw", "yuv420")),
    find_digit_records,
    find_digit_examples,
    find_digit_headers,
    find_digit_shards,
    find_table_examples,
)
# By the programs that run them.
TABLES = {module.__name__: module.TABLE for module in (records_ratios, pictures_ratios)}
ROWS = {name: program for program, table in TABLES.items() for name in table}


@pytest.mark.flaky(reruns=0)  # Measuring until it is right would prove nothing.
@pytest.mark.parametrize("name", ROWS)
def test_ratio(session: Session, name: str) -> None:
    """Our median reaches the bar over the peer's best round; at parity, its middle half."""
    peer, ratio = TABLES[ROWS[name]][name]
    skip_without(session, peer, name)
    with session.uncaptured():
        for find in FINDERS:
            find()
    hold(session, peer.framework, ROWS[name], name, ratio, shares=peer.distribution)


@pytest.fixture
def smoke(session: Session) -> None:
    """Only where the ratios aren't run: Keras's backend would stay in the harness's memory."""
    if session.size != "smoke":
        pytest.skip("the ratios run these loaders, in processes of their own")


@pytest.mark.usefixtures("smoke")
def test_pictures_are_made() -> None:
    """All files are there, of ten classes."""
    photographs = find_photographs()
    assert len(photographs.paths) == PICTURES
    assert set(photographs.labels) == set(range(10))


@pytest.mark.usefixtures("smoke")
def test_keras_pictures() -> None:
    """A batch of JPEG Examples."""
    with pictures_for_keras() as sequence:
        pictures, labels = sequence[0]
    assert (pictures.shape, pictures.dtype) == ((64, 224, 224, 3), np.uint8)
    assert labels.shape == (64,)


@pytest.mark.usefixtures("smoke")
def test_keras_digits() -> None:
    """A batch of raw Examples."""
    with digits_for_keras() as sequence:
        digits, labels = sequence[0]
    assert (digits.shape, digits.dtype) == ((64, 28, 28), np.uint8)
    assert labels.shape == (64,)


@pytest.mark.usefixtures("smoke")
def test_keras_digit_examples() -> None:
    """A batch of digits in anybody's Examples."""
    with digit_examples_for_keras() as sequence:
        digits, labels = sequence[0]
    assert (digits.shape, digits.dtype) == ((64, 28, 28, 1), np.float32)
    assert 0.9 < digits.max() <= 1
    assert (labels.shape, labels.dtype) == ((64,), np.int64)


@pytest.mark.usefixtures("smoke")
def test_keras_table() -> None:
    """A batch of a table, of all its columns."""
    with table_for_keras() as sequence:
        batch = sequence[0]
    assert {each.shape for each in batch.values()} == {(1_024,)}
    assert len(batch) == 11


@pytest.mark.usefixtures("smoke")
@pytest.mark.skipif(importlib.util.find_spec("mxnet") is None, reason="no wheels for this Python")
def test_gluon_pictures() -> None:
    """A batch of RecordIO, channels first as ImageRecordIter has them."""
    with pictures_for_gluon("NCHW") as loader:
        pictures, labels = next(iter(loader))
    assert (pictures.shape, pictures.dtype) == ((64, 3, 224, 224), np.uint8)
    assert labels.shape == (64,)
