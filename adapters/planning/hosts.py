"""How far one process, one host and a cluster go: what each needs, what there is, what limits.

A rank is a process with a GPU of its own. It needs n / t examples a second, a host that times its
GPUs, and the cluster that times the hosts: processes tell each other nothing about data, so nothing
else grows. What there is, cores, links, connections and the storage behind all of them, is compared
with that, and what is used most is what limits.

Every process knows where all records lie, as any rank may get any of them. The order takes no
memory. In blocks, each rank reads blocks of its own where their number divides the window's.

Sizes are in bytes, times in seconds, rates in a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adapters.planning.link import PIECE_BYTES, Link
from adapters.planning.requirement import MIB, Workload

# An example's number, in order, in blocks and in any shard: 70 ns of a core, measured on batches of
# 256 of 10^9 examples (2 cores, busy, 2026-11).
NUMBER_CORE_SECONDS = 70e-9
# Of a TFRecord's record: where it begins and its size, int64 each, and whether its CRC was checked.
# RecordIO's index tells no sizes: 9.
INDEX_BYTES_PER_EXAMPLE = 17
# Of a file that is open: objects, arrays. Measured with 10^4 files of 100 records: 2.7 kB.
INDEX_BYTES_PER_FILE = 3 << 10
# Of one core, to read an index from the page cache: 0.15 us a record and 0.45 ms a file, measured
# with 10^5 files of 100 and of 1,000 records (2 busy cores, CPU time, 2026-11); 0.33 ms a file of
# 10^4 of them.
OPEN_CORE_SECONDS_PER_EXAMPLE = 0.15e-6
OPEN_CORE_SECONDS_PER_FILE = 0.45e-3
# Of which a batch mixes blocks at least; see ``Blocks``.
LEAST_WINDOW = 16
MOST_BLOCK_BYTES = 32 * MIB


@dataclass(frozen=True)
class Hosts:
    """What there is of machines.

    Args:
        count: Hosts.
        gpus: Of each, one process a GPU.
        cores: Of each that prepare examples; None where that isn't known, as below.
        link_bytes_per_second: Of each host's network.
        link: From a process to the storage.
        storage_bytes_per_second: Of the storage behind all hosts.
        storage_requests_per_second: Likewise.

    Raises:
        ValueError: Anything that isn't positive and finite.
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
    """What a process, a host or a cluster asks for.

    Args:
        ranks: Processes.
        examples_per_second: That they train on.
        bytes_per_second: As stored.
        requests_per_second: At random order, without near ranges: an example each.
        block_requests_per_second: In blocks.
        under_way: Requests at random order that are under way at a time; None without a link.
        cores: That prepare the examples; None where the rate of a core isn't known.
        order_cores: That compute which examples.
        index_bytes: In memory.
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
    """Something of which there is only so much.

    Args:
        what: It is.
        needed: Of it.
        available: Of it.
        unit: ``"bytes"``, ``"bytes/s"``, or none.
        formula: Of what is needed.
    """

    what: str
    needed: float
    available: float
    unit: str
    formula: str

    @property
    def used(self) -> float:
        """Share, above 1 where there isn't enough."""
        return self.needed / self.available


@dataclass(frozen=True)
class BlocksFor:
    """Which blocks suit so many ranks.

    Args:
        block_bytes: See ``Blocks``.
        window: Blocks, a multiple of the ranks.
        windows: Of an epoch.
        rank_bytes: Of a rank's blocks of a window.
    """

    block_bytes: int
    window: int
    windows: float
    rank_bytes: int


@dataclass(frozen=True)
class Reach:
    """What follows.

    Args:
        process, host, cluster: What each asks for.
        limits: What there is, most used first.
        opening_seconds: A process takes to read all indexes.
        blocks: That suit the ranks.
    """

    process: Demand
    host: Demand
    cluster: Demand
    limits: list[Limit]
    opening_seconds: float
    blocks: BlocksFor

    @property
    def busy(self) -> float | None:
        """Share of the time that the GPUs are busy; None where nothing is known to limit.

        Memory has no share in it: it is enough, or it isn't.
        """
        rates = [each.used for each in self.limits if each.unit != "bytes"]
        return min(1.0, 1 / max(rates)) if rates else None


def reach(workload: Workload, hosts: Hosts, files: int) -> Reach:
    """How far it goes.

    Args:
        workload: Whose ``gpus`` are those of all hosts.
        hosts: What there is.
        files: In which the records are.

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
    """Blocks of 32 MiB, or of half that, and so on: there must be as many as a window has.

    The window has the least multiple of the ranks that is 16 or more, so that no two ranks read the
    same block. A block has an example, and 1 MiB, at least.
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
