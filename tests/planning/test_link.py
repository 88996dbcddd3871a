"""What arrives over a link, by arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from adapters.planning import Link, Reading, arrival
from adapters.planning import link as planned
from adapters.records import held, kept
from adapters.remote import fetching

LINK = Link(0.03, 100e6)
# 2,000,000 pictures: far from each other, and more than is kept in memory.
FAR = Reading(2_000_000, 47_000, 64)


def test_the_constants_are_those_of_who_fetches():
    assert planned.PIECE_BYTES == fetching.PIECE_BYTES
    assert planned.GAP_BYTES == fetching.GAP_BYTES
    assert planned.CONNECTIONS == fetching.MOST_THREADS
    assert planned.KEPT_BYTES == 2 * kept.HALF_BYTES
    assert planned.WINDOWS_BYTES == held.MOST_BYTES


def test_connections_bring_what_latency_and_bandwidth_allow():
    found = arrival(LINK, replace(FAR, prepared_per_second=1e9, cores=1e9))
    assert found.link_per_second == pytest.approx(128 / (0.03 + 47_000 / 100e6), rel=1e-3)
    assert (found.limit, found.examples_per_second) == ("link", found.link_per_second)


def test_cores_fetch_and_prepare():
    reading = replace(FAR, prepared_per_second=1000, request_core_seconds=1e-3, cores=2)
    found = arrival(LINK, replace(reading, byte_core_seconds=0))
    assert found.cores_per_second == pytest.approx(1 / (1e-3 + 0.5e-3), rel=1e-3)
    assert found.limit == "cores"


def test_a_cache_spares_requests_by_its_share():
    whole, part = (arrival(LINK, replace(FAR, cached=cached)) for cached in (0, 0.2))
    assert part.requests == pytest.approx(0.8 * whole.requests)
    assert part.link_per_second == pytest.approx(whole.link_per_second / 0.8)
    filled = arrival(LINK, replace(FAR, cached=1, prepared_per_second=1000))
    assert (filled.requests, filled.examples_per_second) == (0, 1000)
    assert filled.first_batch_seconds == pytest.approx(0.064)


def test_a_cache_that_has_all_sets_no_limit():
    found = arrival(LINK, replace(FAR, cached=1.0))
    assert found.examples_per_second == found.link_per_second == math.inf


def test_a_batch_far_above_the_data_set_is_fetched_in_pieces():
    found = arrival(LINK, Reading(64, 47_000, 10**6))
    assert 0 < found.requests <= 47_000 / planned.PIECE_BYTES


def test_the_first_batch_waits_for_a_round_trip_of_each_round_of_connections():
    decoded = replace(FAR, prepared_per_second=math.inf, cores=1e9)
    one = 0.03 + 47_000 / 100e6
    assert arrival(LINK, decoded).first_batch_seconds == pytest.approx(one, rel=0.01)
    few = replace(LINK, connections=32)
    assert arrival(few, decoded).first_batch_seconds == pytest.approx(2 * one, rel=0.01)


@pytest.mark.parametrize(("examples", "batch"), [(2000, 64), (1000, 128), (1000, 16), (20_000, 64)])
def test_near_ranges_are_merged_as_often_as_the_fetching_does(examples, batch):
    """An epoch at random order, with what was fetched kept: by the code that merges."""
    size, unit = 48 * 1024, 1024
    here, requests = np.zeros(examples * size // unit, bool), 0
    order = np.random.default_rng(0).permutation(examples)
    for at in range(0, examples, batch):
        numbers = np.sort(order[at : at + batch])
        units = (numbers[:, None] * (size // unit) + np.arange(size // unit)).ravel()
        found = fetching.runs(
            units[~here[units]], fetching.GAP_BYTES // unit, fetching.PIECE_BYTES // unit
        )
        requests += len(found)
        for begin, end in found:
            here[begin:end] = True
    predicted = arrival(LINK, Reading(examples, size, batch)).requests * examples
    assert predicted == pytest.approx(requests, rel=0.1)


@pytest.mark.parametrize("has_cache", [False, True])
def test_blocks_are_fetched_in_pieces(has_cache):
    """But for the first batch."""
    blocks = replace(FAR, block_examples=700, has_cache=has_cache)
    in_pieces = 47_000 / (4 << 20)
    assert in_pieces < arrival(LINK, blocks).requests < 1.1 * in_pieces


def test_windows_that_are_too_large_are_fetched_sample_by_sample():
    large = replace(FAR, block_examples=40_000)
    assert arrival(LINK, large).requests > 0.9
    assert arrival(LINK, replace(large, has_cache=True)).requests < 0.1


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Link(-1, 1), "latency_seconds must be >= 0"),
        (lambda: Link(0, 0), "connection_bytes_per_second must be > 0"),
        (lambda: Link(0, 1, 0), "connections must be >= 1"),
        (lambda: replace(FAR, batch_size=0), "batch_size must be >= 1"),
        (lambda: replace(FAR, cores=0), "cores must be > 0"),
        (lambda: replace(FAR, cached=1.1), "cached must be >= 0 and <= 1"),
    ],
)
def test_a_wrong_number_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made()
