"""Rate of examples from storage behind a network: arithmetic of latency, connections and cores.

A request takes a round trip and the time of its bytes. With one request in flight on each
connection, a process gets connections / (latency + bytes / rate of a connection) of them a second.
The cores limit the rate, too: they prepare samples as from local files, and spend CPU time on
fetching. The smaller of the two is the rate.

The number of requests for an example depends on the order:

- *Random order*: one, except that near ranges are merged. In a batch of b out of N samples, the
  next one in the file is within the k samples that a merged gap may hold with p = 1 - (1 - (k + 1)
  / N) ^ (b - 1). A request then has 1 / (1 - p) samples of the batch. Each gap has k / 2 more; they
  need no later request if memory or a cache has room for the data set, so an epoch is computed in
  steps.
- *Blocks*: they are fetched in pieces of 4 MiB, and the first batch separately. Without a cache, if
  a window is too large to be kept, or the data set barely fits, the same as in random order, with
  N a window's samples.
- *Cached* samples: none.

Sizes are in bytes, times in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# As in ``adapters.remote.fetching``; a test compares.
PIECE_BYTES = 4 << 20
GAP_BYTES = 128 << 10
CONNECTIONS = 128
# Memory for files without a cache, and for two windows of an order in blocks.
KEPT_BYTES, WINDOWS_BYTES = 512 << 20, 2 << 30
# CPU time of the reader, from 0.33 ms for a request of 56 KB, and 1.6 s for a GB in pieces of 4
# MiB, fetched by obstore into new memory (2 busy cores, CPU time, 2026-11).
REQUEST_CORE_SECONDS = 0.24e-3
BYTE_CORE_SECONDS = 1.6e-9
# Steps of an epoch, during which the kept share grows.
_STEPS = 200


@dataclass(frozen=True)
class Link:
    """Network link from a process to storage.

    Args:
        latency_seconds: Time from a request to its first byte.
        connection_bytes_per_second: Rate of one connection.
        connections: Number of concurrent requests.

    Raises:
        ValueError: A value is out of range.
    """

    latency_seconds: float
    connection_bytes_per_second: float
    connections: int = CONNECTIONS

    def __post_init__(self) -> None:
        if not 0 <= self.latency_seconds < math.inf:
            raise ValueError(f"latency_seconds must be >= 0, got {self.latency_seconds!r}")
        if not 0 < self.connection_bytes_per_second < math.inf:
            raise ValueError(
                "connection_bytes_per_second must be > 0 and finite, got "
                f"{self.connection_bytes_per_second!r}"
            )
        if self.connections < 1:
            raise ValueError(f"connections must be >= 1, got {self.connections!r}")

    def seconds(self, size: float) -> float:
        """Return the time of one request for so many bytes."""
        return self.latency_seconds + size / self.connection_bytes_per_second

    def requests_per_second(self, size: float) -> float:
        """Return the rate of all connections, for so many bytes a request."""
        return self.connections / self.seconds(size)


@dataclass(frozen=True)
class Reading:
    """Data, order and speed of one process that reads.

    Args:
        examples: Number of examples in the data set.
        example_bytes: Bytes of an example, as stored.
        batch_size: b.
        prepared_per_second: Examples that all its cores prepare from local files; infinite to count
            only the fetching.
        cores: Cores that prepare and fetch examples.
        block_examples: Examples of a block; None for random order.
        window: Blocks that are mixed.
        has_cache: True if fetched data is kept on a disk.
        cached: Share of the examples that a cache has, 0 to 1.
        ahead: Batches requested ahead of the trainer.
        request_core_seconds: CPU time of a request; more if the server shares the cores.
        byte_core_seconds: CPU time of a byte, likewise.

    Raises:
        ValueError: A value is out of range.
    """

    examples: int
    example_bytes: float
    batch_size: int
    prepared_per_second: float = math.inf
    cores: float = 1
    block_examples: int | None = None
    window: int = 16
    has_cache: bool = False
    cached: float = 0.0
    ahead: int = 10
    request_core_seconds: float = REQUEST_CORE_SECONDS
    byte_core_seconds: float = BYTE_CORE_SECONDS

    def __post_init__(self) -> None:
        for name in ("examples", "batch_size", "window", "ahead"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")
        for name in ("example_bytes", "prepared_per_second", "cores"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)!r}")
        if not 0 <= self.cached <= 1:
            raise ValueError(f"cached must be >= 0 and <= 1, got {self.cached!r}")


@dataclass(frozen=True)
class Arrival:
    """Result of ``arrival``.

    Args:
        examples_per_second: Rate from the second batch on.
        limit: ``"link"`` or ``"cores"``, the slower one.
        link_per_second: Examples that the link delivers.
        cores_per_second: Examples that the cores fetch and prepare.
        requests: Number of requests for an example.
        core_seconds: CPU time of fetching an example.
        first_bytes_seconds: Time until the first batch's bytes arrive, after the index.
        first_batch_seconds: Time until the first batch is prepared, after the index.
    """

    examples_per_second: float
    limit: str
    link_per_second: float
    cores_per_second: float
    requests: float
    core_seconds: float
    first_bytes_seconds: float
    first_batch_seconds: float


def arrival(link: Link, reading: Reading) -> Arrival:
    """Compute the rate of examples, and the time of the first batch.

    Example:
        >>> from adapters.planning import Link, Reading, arrival
        >>> link = Link(latency_seconds=0.03, connection_bytes_per_second=100e6)
        >>> found = arrival(link, Reading(1_281_167, 47_000, 64, prepared_per_second=3000, cores=2))
        >>> round(found.link_per_second), found.limit, round(found.first_batch_seconds, 3)
        (4206, 'cores', 0.056)
    """
    asked = [(count * (1 - reading.cached), size) for count, size in _requests(reading)]
    busy = sum(count * link.seconds(size) for count, size in asked)
    at_once = link.connections / busy if busy else math.inf
    core_seconds = sum(count * _core_seconds(reading, size) for count, size in asked)
    preparing = 1 / reading.prepared_per_second + core_seconds / reading.cores
    prepared = 1 / preparing if preparing else math.inf
    first = _first(link, reading, *asked[0])
    return Arrival(
        examples_per_second=min(at_once, prepared),
        limit="link" if at_once < prepared else "cores",
        link_per_second=at_once,
        cores_per_second=prepared,
        requests=sum(count for count, _ in asked),
        core_seconds=core_seconds,
        first_bytes_seconds=first,
        first_batch_seconds=first + reading.batch_size / reading.prepared_per_second,
    )


def _core_seconds(reading: Reading, size: float) -> float:
    """Return the CPU time of a request."""
    return reading.request_core_seconds + size * reading.byte_core_seconds


def _requests(reading: Reading) -> list[tuple[float, float]]:
    """Return requests for an example, and bytes of each; those of the first batch come first."""
    size = reading.example_bytes
    if size > PIECE_BYTES:
        return [(size / PIECE_BYTES, PIECE_BYTES)]
    among = reading.examples
    if reading.block_examples is not None:
        among = min(among, reading.block_examples * reading.window)
    is_kept = (
        reading.has_cache
        or reading.block_examples is not None
        or reading.examples * size <= KEPT_BYTES
    )
    requests, requested = _merged(size, among, reading.batch_size, is_kept)
    if not _comes_in_blocks(reading):
        return [(requests, requested)]
    assert reading.block_examples is not None
    alone = min(1.0, reading.batch_size / reading.examples)
    piece = min(PIECE_BYTES, reading.block_examples * size)
    return [(requests * alone, requested), (size / piece, piece)]


def _comes_in_blocks(reading: Reading) -> bool:
    """True if whole blocks are fetched."""
    if reading.block_examples is None:
        return False
    window_bytes = reading.block_examples * reading.window * reading.example_bytes
    total = reading.examples * reading.example_bytes
    in_windows = total > KEPT_BYTES and 2 * window_bytes <= WINDOWS_BYTES
    return reading.has_cache or in_windows or total <= KEPT_BYTES // 2


def _merged(size: float, among: int, batch_size: int, is_kept: bool) -> tuple[float, float]:
    """Return requests for an example, and bytes of each, in random order with near ranges merged.

    A step of the loop is a part of an epoch, and ``here`` the share of the examples that are kept.
    """
    within = int(GAP_BYTES // size)
    near, most = min(1.0, (within + 1) / among), PIECE_BYTES / size
    requests = fetched = here = 0.0
    for step in range(_STEPS):
        left = 1 - step / _STEPS
        missing = min(1.0, (1 - here) / left) / _STEPS
        others = max(0.0, batch_size * missing * _STEPS - 1)
        # Samples of the batch in a request; by logarithms, as powers of large batches overflow.
        more = -others * math.log1p(-near) if near < 1 else math.inf
        own = math.exp(min(more, math.log(most)))
        between = (own - 1) * within / 2
        requests += missing / own
        fetched += missing * (1 + between / own)
        if is_kept:
            here = min(1.0, here + missing * (1 + between / own * (1 - here)))
    return requests, fetched / requests * size


def _first(link: Link, reading: Reading, asked: float, size: float) -> float:
    """Return the time until the bytes of the first batch arrive.

    Other requests in flight at the same time share the cores with its own.
    """
    requests = math.ceil(reading.batch_size * min(1.0, asked))
    if _comes_in_blocks(reading):
        requests = reading.batch_size
    if not requests or not asked:
        return 0.0
    under_way = min(link.connections, reading.ahead * requests)
    rounds = math.ceil(requests / link.connections)
    return rounds * (link.seconds(size) + under_way * _core_seconds(reading, size) / reading.cores)
