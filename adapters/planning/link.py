"""What arrives from storage behind a network: arithmetic of latency, connections and cores.

A request takes a round trip and the time of its bytes. A process has so many requests under way,
so it gets connections / (latency + bytes / rate of a connection) of them a second, and not more
than the cores make samples of: what they prepare from local files, with the CPU time of fetching
added. The smaller of the two is the rate.

How many requests an example costs depends on the order:

- *At random*, one, but that near ranges are merged. Of a batch of b out of N samples, the next one
  in the file is within the k samples that a merged gap may hold with p = 1 - (1 - (k + 1) / N) ^
  (b - 1). A request then has 1 / (1 - p) samples of the batch, and each gap k / 2 more, which need
  no request later if memory or a cache has room for the data set: so an epoch is gone through in
  steps.
- *In blocks*, those are fetched in pieces of 4 MiB, and the first batch by itself. Without a cache,
  where a window is too large to be kept, or all is hardly small enough to be, the same as at
  random, where N are a window's samples.
- *Cached* samples cost none.

Sizes are in bytes, times in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# As ``adapters.remote.fetching`` has them; a test compares.
PIECE_BYTES = 4 << 20
GAP_BYTES = 128 << 10
CONNECTIONS = 128
# What is kept of files without a cache, and two windows of an order in blocks.
KEPT_BYTES, WINDOWS_BYTES = 512 << 20, 2 << 30
# Of one core, of the reader: of 0.33 ms for a request of 56 KB, and 1.6 s for a GB in pieces of 4
# MiB, fetched by obstore into memory that appears with it (2 busy cores, CPU time, 2026-11).
REQUEST_CORE_SECONDS = 0.24e-3
BYTE_CORE_SECONDS = 1.6e-9
# Of an epoch, in which what is kept grows.
_STEPS = 200


@dataclass(frozen=True)
class Link:
    """From a process to storage.

    Args:
        latency_seconds: From a request to its first byte.
        connection_bytes_per_second: Of one connection.
        connections: Requests that are under way at a time.

    Raises:
        ValueError: Out of range.
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
        """Of one request for so many bytes."""
        return self.latency_seconds + size / self.connection_bytes_per_second

    def requests_per_second(self, size: float) -> float:
        """Of all connections, for so many bytes each."""
        return self.connections / self.seconds(size)


@dataclass(frozen=True)
class Reading:
    """What one process reads, in which order, and what it does with it.

    Args:
        examples: In the data set.
        example_bytes: As stored.
        batch_size: b.
        prepared_per_second: Examples that all its cores prepare from local files; infinite where
            only what is fetched counts.
        cores: That prepare them, and fetch.
        block_examples: Of a block; None for random order.
        window: Blocks that are mixed.
        has_cache: What is fetched is kept on a disk.
        cached: Share of the examples that a cache has, 0 to 1.
        ahead: Batches that are asked for ahead of the trainer.
        request_core_seconds: Of a core, for a request; more where the server shares the cores.
        byte_core_seconds: Likewise, for a byte.

    Raises:
        ValueError: Out of range.
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
    """What arrives.

    Args:
        examples_per_second: From the second batch on.
        limit: ``"link"`` or ``"cores"``, which of them is less.
        link_per_second: Examples that the link brings.
        cores_per_second: Examples that the cores fetch and prepare.
        requests: For an example.
        core_seconds: Of a core, that fetching an example takes.
        first_bytes_seconds: Until those of the first batch are there, after the index.
        first_batch_seconds: The same, with its preparation.
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
    """How fast examples arrive, and the first batch.

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
    """Of a core, for a request."""
    return reading.request_core_seconds + size * reading.byte_core_seconds


def _requests(reading: Reading) -> list[tuple[float, float]]:
    """Requests for an example, and the bytes of each; those of the first batch come first."""
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
    """Whether whole blocks are fetched."""
    if reading.block_examples is None:
        return False
    window_bytes = reading.block_examples * reading.window * reading.example_bytes
    total = reading.examples * reading.example_bytes
    in_windows = total > KEPT_BYTES and 2 * window_bytes <= WINDOWS_BYTES
    return reading.has_cache or in_windows or total <= KEPT_BYTES // 2


def _merged(size: float, among: int, batch_size: int, is_kept: bool) -> tuple[float, float]:
    """The same, of an epoch in random order among so many examples, near ranges merged.

    A step of the loop is a part of an epoch, and ``here`` the share of the examples that are kept.
    """
    within = int(GAP_BYTES // size)
    near, most = min(1.0, (within + 1) / among), PIECE_BYTES / size
    requests = fetched = here = 0.0
    for step in range(_STEPS):
        left = 1 - step / _STEPS
        missing = min(1.0, (1 - here) / left) / _STEPS
        others = max(0.0, batch_size * missing * _STEPS - 1)
        # Of the batch, in a request; by logarithms, as no float holds such powers of large batches.
        more = -others * math.log1p(-near) if near < 1 else math.inf
        own = math.exp(min(more, math.log(most)))
        between = (own - 1) * within / 2
        requests += missing / own
        fetched += missing * (1 + between / own)
        if is_kept:
            here = min(1.0, here + missing * (1 + between / own * (1 - here)))
    return requests, fetched / requests * size


def _first(link: Link, reading: Reading, asked: float, size: float) -> float:
    """Until the bytes of the first batch are there.

    Those requests that are under way at the same time share the cores with its own.
    """
    requests = math.ceil(reading.batch_size * min(1.0, asked))
    if _comes_in_blocks(reading):
        requests = reading.batch_size
    if not requests or not asked:
        return 0.0
    under_way = min(link.connections, reading.ahead * requests)
    rounds = math.ceil(requests / link.connections)
    return rounds * (link.seconds(size) + under_way * _core_seconds(reading, size) / reading.cores)
