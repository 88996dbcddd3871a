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
- *In blocks*, without a cache, the same, where N are the samples of a window. With a cache, blocks
  are fetched in pieces of 4 MiB.
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
# What is kept of files without a cache.
KEPT_BYTES = 512 << 20
# Of one core, of the client: 0.13 ms a request, 350 ms a GB; measured with obstore on ranges of 64
# KiB and of 8 MiB over loopback (2 cores, shared, 2026-11).
REQUEST_CORE_SECONDS = 0.13e-3
BYTE_CORE_SECONDS = 0.35e-9
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
    request_core_seconds: float = REQUEST_CORE_SECONDS
    byte_core_seconds: float = BYTE_CORE_SECONDS

    def __post_init__(self) -> None:
        for name in ("examples", "batch_size", "window"):
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
        first_batch_seconds: After the index.
    """

    examples_per_second: float
    limit: str
    link_per_second: float
    cores_per_second: float
    requests: float
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
    asked, size = _requests(reading)
    asked *= 1 - reading.cached
    at_once = math.inf if not asked else link.requests_per_second(size) / asked
    core_seconds = asked * (reading.request_core_seconds + size * reading.byte_core_seconds)
    prepared = 1 / (1 / reading.prepared_per_second + core_seconds / reading.cores)
    return Arrival(
        examples_per_second=min(at_once, prepared),
        limit="link" if at_once < prepared else "cores",
        link_per_second=at_once,
        cores_per_second=prepared,
        requests=asked,
        first_batch_seconds=_first(link, reading, asked, size) + reading.batch_size / prepared,
    )


def _requests(reading: Reading) -> tuple[float, float]:
    """Requests for an example, and the bytes of each."""
    size = reading.example_bytes
    if reading.block_examples is not None and reading.has_cache:
        block = reading.block_examples * size
        piece = min(PIECE_BYTES, block)
        return size / piece, piece
    if size > PIECE_BYTES:
        return size / PIECE_BYTES, PIECE_BYTES
    among = reading.examples
    if reading.block_examples is not None:
        among = min(among, reading.block_examples * reading.window)
    is_kept = (
        reading.has_cache
        or reading.block_examples is not None
        or reading.examples * size <= KEPT_BYTES
    )
    return _merged(size, among, reading.batch_size, is_kept)


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
        own = min(most, (1 - near) ** -others if near < 1 else most)  # Of the batch, in a request.
        between = (own - 1) * within / 2
        requests += missing / own
        fetched += missing * (1 + between / own)
        if is_kept:
            here = min(1.0, here + missing * (1 + between / own * (1 - here)))
    return requests, fetched / requests * size


def _first(link: Link, reading: Reading, asked: float, size: float) -> float:
    """Until the bytes of the first batch are there: in blocks, those of a window."""
    examples = reading.batch_size
    if reading.block_examples is not None and reading.has_cache:
        examples = min(reading.examples, reading.block_examples * reading.window)
    requests = math.ceil(examples * asked)
    return math.ceil(requests / link.connections) * link.seconds(size) if requests else 0.0
