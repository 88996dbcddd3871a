"""Another order is never taken for the one that was saved: ``fingerprint``, ``check_order``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters import mix
from adapters.batch.arranging import order_of
from adapters.resuming import check_order

SIZE = 1000
LENGTHS = np.arange(SIZE) % 50 + 1
IN_A_BATCH = {"epoch": 0, "batch": 3}
AT_A_SAMPLE = {"epoch": 0, "samples": 24}


def order(batch_size: int = 10, shard: tuple[int, int] = (0, 1), **options: Any) -> Any:
    return order_of(SIZE, batch_size, True, seed=1, shard=shard, **options)


def swapped(values: np.ndarray, first: int, second: int) -> np.ndarray:
    other = values.copy()
    other[[first, second]] = values[[second, first]]
    return other


@pytest.mark.parametrize("places", [(0, 7), (512, 730), (480, 999)])
@pytest.mark.parametrize("name", ["bucket_by", "weights"])
def test_two_that_changed_places_are_noticed(name, places):
    """Wherever they are: in an order of 1000 samples few are at the positions that are compared."""
    saved = order(**{name: LENGTHS}).fingerprint()
    check_order(saved, order(**{name: LENGTHS.copy()}).fingerprint(), IN_A_BATCH, "run")
    other = order(**{name: swapped(LENGTHS, *places)}).fingerprint()
    with pytest.raises(ValueError, match=r"order of samples must|checksum of weights, lengths or"):
        check_order(saved, other, IN_A_BATCH, "run")


def test_sources_of_other_lengths_are_noticed_in_a_mix():
    """Of which the first epoch is the same, and the second isn't."""
    sources = [mix([np.zeros(30), np.zeros(length)], [1, 1]) for length in (40, 50)]
    one, other = (order_of(len(each), 10, False, source=each).fingerprint() for each in sources)
    with pytest.raises(ValueError, match="the checksum of weights, lengths or sources must be"):
        check_order(one, other, IN_A_BATCH, "run")


@pytest.mark.parametrize("shard", [(0, 2), (1, 2), (2, 3)])
def test_what_counts_samples_goes_on_in_batches_of_any_size(shard):
    saved = order(4, (0, 2)).fingerprint()
    check_order(saved, order(8, shard).fingerprint(), AT_A_SAMPLE, "run")


def test_what_counts_batches_goes_on_in_as_large_ones():
    saved = order(4, (0, 2)).fingerprint()
    check_order(saved, order(8, (0, 1)).fingerprint(), IN_A_BATCH, "run")
    with pytest.raises(ValueError, match=r"batch_size must be 4, .* got 8"):
        check_order(saved, order(8, (0, 2)).fingerprint(), IN_A_BATCH, "run")
    with pytest.raises(ValueError, match="batch_size times the number of shards must be 8"):
        check_order(saved, order(4, (0, 3)).fingerprint(), IN_A_BATCH, "run")
