"""How far a process, a host and a cluster go: what they need, and what limits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from adapters import Blocks
from adapters.planning import Hosts, Link, Workload, blocks_for, reach

# 1,000 examples/s and 62.5 MiB/s for each of 8 ranks.
LOAD = Workload(100, 0.1, 64 << 10, 1_000_000, gpus=8, core_examples_per_second=500)
MIB = 2**20


def test_processes_add_up_to_hosts_and_hosts_to_the_cluster():
    far = reach(LOAD, Hosts(2, 4), files=10)
    rates = [each.examples_per_second for each in (far.process, far.host, far.cluster)]
    assert rates == pytest.approx([1000, 4000, 8000])
    assert far.cluster.bytes_per_second == pytest.approx(500 * MIB)
    assert [each.cores for each in (far.process, far.host)] == pytest.approx([2, 8])
    assert far.cluster.requests_per_second == pytest.approx(8000)
    assert far.cluster.block_requests_per_second == pytest.approx(125)


def test_each_process_holds_the_whole_index_and_none_of_the_order():
    """The arrays of 10^9 records: where they begin, their sizes, whether they were checked."""
    far = reach(replace(LOAD, examples=10**9), Hosts(2, 4), files=1)
    assert far.process.index_bytes == pytest.approx(17e9, rel=1e-5)
    assert far.host.index_bytes == 4 * far.process.index_bytes
    assert far.process.order_cores == pytest.approx(1000 * 70e-9)


def test_requests_under_way_are_rate_times_time():
    link = Link(0.03, 64 * MIB)
    far = reach(LOAD, Hosts(2, 4, link=link), files=1)
    assert far.process.under_way == pytest.approx(1000 * (0.03 + 1 / 1024))
    (limit,) = far.limits
    assert (limit.what, limit.available) == ("connections of a process", 128)


@pytest.mark.parametrize(
    ("there", "what", "used"),
    [
        ({"cores": 4}, "cores of a host", 2),
        ({"link_bytes_per_second": 1000 * MIB}, "link of a host", 0.25),
        ({"storage_bytes_per_second": 100 * MIB}, "storage, bytes/s", 5),
        ({"storage_requests_per_second": 4000}, "storage, requests/s", 2),
    ],
)
def test_what_there_is_is_compared_with_what_is_needed(there, what, used):
    far = reach(LOAD, Hosts(2, 4, **there), files=1)
    (limit,) = far.limits
    assert (limit.what, limit.used) == (what, pytest.approx(used))
    assert far.busy == pytest.approx(min(1, 1 / used))


def test_what_is_used_most_comes_first():
    hosts = Hosts(2, 4, cores=4, storage_bytes_per_second=100 * MIB)
    used = [each.used for each in reach(LOAD, hosts, files=1).limits]
    assert used == sorted(used, reverse=True)
    assert len(used) == 2


def test_too_little_memory_is_no_matter_of_speed():
    """A host that can't hold the index of its ranks doesn't train at all."""
    far = reach(replace(LOAD, examples=10**9, memory_bytes=2**30), Hosts(2, 4), files=1)
    assert far.limits[0].what == "memory of a host"
    assert far.limits[0].used > 60
    assert far.busy is None


@pytest.mark.parametrize("ranks", [1, 3, 8, 16, 24, 1024])
def test_no_two_ranks_read_the_same_block(ranks):
    """As the order has it: where their number divides the window, but for the last window."""
    load = replace(LOAD, gpus=ranks, examples=50_000_000)
    blocks = blocks_for(load, ranks)
    assert blocks.window % ranks == 0
    assert blocks.window >= 16
    assert blocks.window < 16 + ranks
    assert blocks.rank_bytes == blocks.window // ranks * blocks.block_bytes
    order = Blocks(blocks.block_bytes, blocks.window).of(load.examples, load.example_bytes, seed=1)
    read = [
        {begin for begin, *_ in order.coming(0, 0, 64, (rank, ranks))}
        for rank in range(min(ranks, 4))
    ]
    rest = order.blocks * order.block
    owned = [numbers - {rest} for numbers in read]
    assert sum(map(len, owned)) == len(set().union(*owned))


def test_blocks_are_smaller_where_there_are_too_few():
    """1,024 ranks and 61 GiB: blocks of 32 MiB; 6.1 GiB: of 4 MiB; and not less than 1 MiB."""
    sizes = [
        blocks_for(replace(LOAD, examples=examples), 1024).block_bytes // MIB
        for examples in (1_000_000, 100_000, 1000)
    ]
    assert sizes == [32, 4, 1]
    assert blocks_for(replace(LOAD, examples=1000), 1024).windows < 1


@pytest.mark.parametrize("name", ["count", "gpus", "cores"])
def test_hosts_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be >= 1, got 0"):
        Hosts(**{"count": 1, "gpus": 1, name: 0})


def test_rates_are_finite():
    with pytest.raises(ValueError, match="link_bytes_per_second must be > 0 and finite"):
        Hosts(1, 1, link_bytes_per_second=math.inf)
