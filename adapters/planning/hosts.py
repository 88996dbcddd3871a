"""Demand of one process, one host and a cluster, compared with the resources that limit them.

A rank is a process with its own GPU. It needs n / t examples a second, a host that times its GPUs,
and the cluster that times the hosts: processes exchange nothing about data, so nothing else grows.
The demand is compared with cores, links, connections and the storage behind all of them. The
resource that is used most is the limit.

Every process has the index of all records, as any rank may get any of them. The order takes no
memory. In blocks, each rank reads its own blocks if the number of ranks divides the window.

Sizes are in bytes, times in seconds, rates in a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adapters.planning.link import PIECE_BYTES, Link
from adapters.planning.requirement import MIB, Workload

# Computing an example's number, in blocks and in any shard: 70 ns of a core, measured on batches of
# 256 of 10^9 examples (2 cores, busy, 2026-11).
NUMBER_CORE_SECONDS = 70e-9
# For a record of a TFRecord file: its offset and size, int64 each, and whether its CRC was checked.
# RecordIO's index has no sizes: 9.
INDEX_BYTES_PER_EXAMPLE = 17
# For an open file: objects, arrays. Measured with 10^4 files of 100 records: 2.7 kB.
INDEX_BYTES_PER_FILE = 3 << 10
# Time of one core to read an index from the page cache: 0.15 us a record, 0.45 ms a file, measured
# with 10^5 files of 100 and of 1,000 records (2 busy cores, CPU time, 2026-11); 0.33 ms a file of
# 10^4 of them.
OPEN_CORE_SECONDS_PER_EXAMPLE = 0.15e-6
OPEN_CORE_SECONDS_PER_FILE = 0.45e-3
# Least number of blocks that a batch mixes; see ``Blocks``.
LEAST_WINDOW = 16
MOST_BLOCK_BYTES = 32 * MIB


@dataclass(frozen=True)
class Hosts:
    """Machines and their resources.

    Args:
        count: Number of hosts.
        gpus: GPUs of a host, with one process each.
        cores: Cores of a host that prepare examples; None if unknown, as below.
        link_bytes_per_second: Rate of a host's network.
        link: Link from a process to the storage.
        storage_bytes_per_second: Rate of the storage behind all hosts.
        storage_requests_per_second: Requests a second of that storage.

    Raises:
        ValueError: A value isn't positive and finite.
    """

    count: int
    gpus: int
    cores: int | None = None
    link_bytes_per_second: float | None = None
    link: Link | None = None
    storage_bytes_per_second: float | None = None
    storage_requests_per_second: float | None = None

    def __post_init__(self) -> None:
        for name in ("count", "gpus", "cores"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value!r}")
        for name in (
            "link_bytes_per_second",
            "storage_bytes_per_second",
            "storage_requests_per_second",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be > 0 and finite, got {value!r}")


@dataclass(frozen=True)
class Demand:
    """Demand of a process, a host or a cluster.

    Args:
        ranks: Number of processes.
        examples_per_second: Examples that they train on.
        bytes_per_second: Bytes of these, as stored.
        requests_per_second: Requests in random order, one an example, without merging near ranges.
        block_requests_per_second: Requests in blocks.
        under_way: Concurrent requests in random order; None without a link.
        cores: Cores that prepare the examples; None if the rate of a core isn't known.
        order_cores: Cores that compute the order.
        index_bytes: Memory of the index.
    """

    ranks: int
    examples_per_second: float
    bytes_per_second: float
    requests_per_second: float
    block_requests_per_second: float
    under_way: float | None
    cores: float | None
    order_cores: float
    index_bytes: int


@dataclass(frozen=True)
class Limit:
    """Limited resource.

    Args:
        what: Name of the resource.
        needed: Amount needed.
        available: Amount available.
        unit: ``"bytes"``, ``"bytes/s"``, or empty.
        formula: Formula of the amount needed.
    """

    what: str
    needed: float
    available: float
    unit: str
    formula: str

    @property
    def used(self) -> float:
        """Share that is used, above 1 if there isn't enough."""
        return self.needed / self.available


@dataclass(frozen=True)
class BlocksFor:
    """Blocks that suit a number of ranks.

    Args:
        block_bytes: See ``Blocks``.
        window: Blocks of a window, a multiple of the ranks.
        windows: Windows of an epoch.
        rank_bytes: Bytes of a rank's blocks of a window.
    """

    block_bytes: int
    window: int
    windows: float
    rank_bytes: int


@dataclass(frozen=True)
class Reach:
    """Result of ``reach``.

    Args:
        process, host, cluster: Demand of each.
        limits: Limited resources, most used first.
        opening_seconds: Time in which a process reads all indexes.
        blocks: Blocks that suit the ranks.
    """

    process: Demand
    host: Demand
    cluster: Demand
    limits: list[Limit]
    opening_seconds: float
    blocks: BlocksFor

    @property
    def busy(self) -> float | None:
        """Share of the time that the GPUs are busy; None if no limit is known.

        Memory doesn't count: it is enough, or it isn't.
        """
        rates = [each.used for each in self.limits if each.unit != "bytes"]
        return min(1.0, 1 / max(rates)) if rates else None


def reach(workload: Workload, hosts: Hosts, files: int) -> Reach:
    """Compute demand and limits.

    Args:
        workload: Workload; its ``gpus`` are those of all hosts.
        hosts: Machines and their resources.
        files: Number of record files.

    Example:
        >>> from adapters.planning import Hosts, Workload, reach
        >>> load = Workload(128, 0.18, 64 << 10, 10**9, gpus=1024, core_examples_per_second=1500)
        >>> far = reach(load, Hosts(128, 8, cores=4, link_bytes_per_second=1.25e9), 10**5)
        >>> most = far.limits[0]
        >>> round(far.cluster.examples_per_second), most.what, round(most.used, 2)
        (728178, 'cores of a host', 0.95)
    """
    process, host, cluster = (
        _demand(workload, hosts.link, ranks, files)
        for ranks in (1, hosts.gpus, hosts.gpus * hosts.count)
    )
    opening = files * OPEN_CORE_SECONDS_PER_FILE + workload.examples * OPEN_CORE_SECONDS_PER_EXAMPLE
    blocks = blocks_for(workload, cluster.ranks)
    limits = _limits(hosts, process, host, cluster)
    if workload.memory_bytes is not None:
        needed = host.index_bytes + hosts.gpus * 2 * blocks.rank_bytes
        formula = "index, and blocks of two windows, of all processes"
        limits.append(Limit("memory of a host", needed, workload.memory_bytes, "bytes", formula))
    limits.sort(key=lambda each: each.used, reverse=True)
    return Reach(process, host, cluster, limits, opening, blocks)


def blocks_for(workload: Workload, ranks: int) -> BlocksFor:
    """Choose blocks of 32 MiB, or half that, and so on, so that the data set fills a window.

    The window is the least multiple of the ranks that is 16 or more, so that no two ranks read the
    same block. A block has at least an example, and 1 MiB.
    """
    dataset_bytes = workload.examples * workload.example_bytes
    window = ranks * -(-LEAST_WINDOW // ranks)
    block_bytes, least = MOST_BLOCK_BYTES, max(MIB, workload.example_bytes)
    while block_bytes // 2 >= least and block_bytes * window > dataset_bytes:
        block_bytes //= 2
    block_bytes = max(block_bytes, workload.example_bytes)
    windows = dataset_bytes / block_bytes / window
    return BlocksFor(block_bytes, window, windows, window // ranks * block_bytes)


def _demand(workload: Workload, link: Link | None, ranks: int, files: int) -> Demand:
    rate = ranks * workload.batch_size / workload.batch_seconds
    size, of_core = workload.example_bytes, workload.core_examples_per_second
    index = workload.examples * INDEX_BYTES_PER_EXAMPLE + files * INDEX_BYTES_PER_FILE
    return Demand(
        ranks=ranks,
        examples_per_second=rate,
        bytes_per_second=rate * size,
        requests_per_second=rate,
        block_requests_per_second=rate * size / max(PIECE_BYTES, size),
        under_way=None if link is None else rate * link.seconds(size),
        cores=None if of_core is None else rate / of_core,
        order_cores=rate * NUMBER_CORE_SECONDS,
        index_bytes=ranks * index,
    )


def _limits(hosts: Hosts, process: Demand, host: Demand, cluster: Demand) -> list[Limit]:
    found = []
    if hosts.cores is not None and host.cores is not None:
        formula = "examples/s of a host / those of a core"
        found.append(Limit("cores of a host", host.cores, hosts.cores, "", formula))
    if hosts.link_bytes_per_second is not None:
        formula = "examples/s of a host x bytes of an example"
        there = hosts.link_bytes_per_second
        found.append(Limit("link of a host", host.bytes_per_second, there, "bytes/s", formula))
    if hosts.link is not None and process.under_way is not None:
        formula = "requests/s x (latency + bytes / rate of a connection)"
        there = hosts.link.connections
        found.append(Limit("connections of a process", process.under_way, there, "", formula))
    if hosts.storage_bytes_per_second is not None:
        formula = "examples/s of all x bytes of an example"
        there = hosts.storage_bytes_per_second
        found.append(Limit("storage, bytes/s", cluster.bytes_per_second, there, "bytes/s", formula))
    if hosts.storage_requests_per_second is not None:
        formula = "examples/s of all, at random order; less in blocks"
        there = hosts.storage_requests_per_second
        found.append(Limit("storage, requests/s", cluster.requests_per_second, there, "", formula))
    return found
