"""Text reports of ``reach`` and ``arrival``: each figure with its formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from adapters.planning.hosts import (
    INDEX_BYTES_PER_EXAMPLE,
    INDEX_BYTES_PER_FILE,
    LEAST_WINDOW,
    MOST_BLOCK_BYTES,
    NUMBER_CORE_SECONDS,
    OPEN_CORE_SECONDS_PER_EXAMPLE,
    OPEN_CORE_SECONDS_PER_FILE,
    BlocksFor,
    Demand,
    Hosts,
    Limit,
    Reach,
)
from adapters.planning.link import (
    BYTE_CORE_SECONDS,
    PIECE_BYTES,
    REQUEST_CORE_SECONDS,
    Link,
    Reading,
    arrival,
)
from adapters.planning.report import aligned, size_text
from adapters.planning.requirement import MIB, Workload


def reach_lines(workload: Workload, hosts: Hosts, files: int, far: Reach) -> Iterator[str]:
    """Format the demand of a process, a host and a cluster; limits; index, order and blocks.

    Args:
        workload: Workload.
        hosts: Machines and their resources.
        files: Number of record files.
        far: Result of ``reach``.
    """
    size = size_text(workload.example_bytes)
    head = ("how far", "a process", "a host", f"{hosts.count:,} hosts", "formula")
    rows = [
        _row(far, "ranks", "GPUs, times hosts", lambda of: f"{of.ranks:,}"),
        _row(far, "examples/s", "ranks x n / t", lambda of: _number(of.examples_per_second)),
        _row(far, "as stored", f"examples/s x {size}", lambda of: _rate(of.bytes_per_second)),
        _row(
            far,
            "requests/s",
            "examples/s, at random order; fewer where near ranges are merged",
            lambda of: _number(of.requests_per_second),
        ),
        _row(
            far,
            "in blocks",
            f"bytes/s / {size_text(max(PIECE_BYTES, workload.example_bytes))}",
            lambda of: _number(of.block_requests_per_second),
        ),
    ]
    if hosts.link is not None:
        formula = (
            f"requests/s x ({hosts.link.latency_seconds * 1000:g} ms + {size} / "
            f"{_rate(hosts.link.connection_bytes_per_second)})"
        )
        rows.append(_row(far, "under way", formula, lambda of: _number(of.under_way or 0.0)))
    if workload.core_examples_per_second is not None:
        formula = f"examples/s / {workload.core_examples_per_second:,.0f} of a core"
        rows.append(_row(far, "cores", formula, lambda of: _number(of.cores or 0.0)))
    formula = f"examples/s x {NUMBER_CORE_SECONDS * 1e9:.0f} ns; no memory"
    rows.append(_row(far, "cores, order", formula, lambda of: _number(of.order_cores)))
    formula = (
        f"ranks x ({workload.examples:,} x {INDEX_BYTES_PER_EXAMPLE} bytes + {files:,} files x "
        f"{size_text(INDEX_BYTES_PER_FILE)})"
    )
    rows.append(_row(far, "index", formula, lambda of: size_text(of.index_bytes)))
    yield from aligned([head, *rows])
    yield ""
    yield from aligned(
        [
            (
                "opening",
                f"{far.opening_seconds:,.3g} s of a core in each process: {files:,} files x "
                f"{OPEN_CORE_SECONDS_PER_FILE * 1000:g} ms + {workload.examples:,} x "
                f"{OPEN_CORE_SECONDS_PER_EXAMPLE * 1e6:g} us",
            ),
            ("blocks", _blocks(far.blocks, far.cluster.ranks)),
        ]
    )
    yield ""
    yield from _limit_lines(far)


def arrival_lines(workload: Workload, link: Link, cores: float, cached: float) -> Iterator[str]:
    """Format the rates that one process gets over a link, by order and cache.

    Args:
        workload: Workload, of which one rank reads.
        link: Link to the storage.
        cores: Cores of the process.
        cached: Share of the data set that a cache's limit holds, 0 to 1.
    """
    of_core = workload.core_examples_per_second
    rate = math.inf if of_core is None else of_core * cores
    size = workload.example_bytes
    plain = Reading(
        workload.examples, size, workload.batch_size, prepared_per_second=rate, cores=cores
    )
    blocks = replace(plain, block_examples=max(1, MOST_BLOCK_BYTES // size), window=LEAST_WINDOW)
    kinds = [
        ("random order", plain),
        ("in blocks", blocks),
        ("in blocks, cache", replace(blocks, has_cache=True)),
        ("second epoch", replace(plain, has_cache=True, cached=1.0)),
    ]
    if 0 < cached < 1:
        kinds.insert(3, (f"{cached:.2g} cached", replace(plain, has_cache=True, cached=cached)))
    head = ("a process gets", "examples/s", "link", "cores", "requests", "first batch", "limit")
    rows = [head]
    for name, reading in kinds:
        found = arrival(link, reading)
        rows.append(
            (
                name,
                _number(found.examples_per_second),
                _number(found.link_per_second),
                _number(found.cores_per_second),
                f"{found.requests:.3g}",
                f"{found.first_batch_seconds * 1000:,.0f} ms",
                found.limit,
            )
        )
    yield from aligned(rows)
    yield ""
    yield from aligned(
        [
            (
                "link",
                f"{link.connections:,} connections / ({link.latency_seconds * 1000:g} ms + bytes "
                f"of a request / {_rate(link.connection_bytes_per_second)}) / requests",
            ),
            (
                "cores",
                f"1 / (1 / {_number(rate)} prepared from local files + requests x "
                f"({REQUEST_CORE_SECONDS * 1000:g} ms + bytes x {BYTE_CORE_SECONDS * 1e9:g} ns) / "
                f"{cores:g} cores)",
            ),
        ]
    )


def _row(
    far: Reach, name: str, formula: str, cell: Callable[[Demand], str]
) -> tuple[str, str, str, str, str]:
    return name, cell(far.process), cell(far.host), cell(far.cluster), formula


def _blocks(blocks: BlocksFor, ranks: int) -> str:
    text = (
        f"Blocks(block_bytes={blocks.block_bytes // MIB} * 2**20, window={blocks.window:,}): "
        f"{_number(blocks.windows)} windows an epoch, of which a rank of {ranks:,} holds "
        f"{size_text(blocks.rank_bytes)}, and fetches as much of the next"
    )
    return text if blocks.windows >= 1 else f"{text}; too few for so many ranks, which share blocks"


def _limit_lines(far: Reach) -> Iterator[str]:
    if not far.limits:
        yield "give --cores, --link-gbit, --latency-ms or --storage-rate to learn what limits"
        return
    rows = [("there is", "needed", "of", "used", "formula")]
    rows += [
        (each.what, _amount(each, each.needed), _amount(each, each.available), *_used(each))
        for each in far.limits
    ]
    yield from aligned(rows)
    yield ""
    most, busy = far.limits[0], far.busy
    if most.used <= 1:
        yield f"what limits  the GPUs; next {most.what}, {most.used:.0%} used"
    elif busy is not None and busy < 1:
        rate = _number(far.cluster.examples_per_second * busy)
        names = " and ".join(each.what for each in far.limits if each.used > 1)
        yield (
            f"what limits  {names}: {rate} examples/s in all at the most, GPUs busy for "
            f"{busy:.0%} of the time"
        )
    else:
        yield f"what limits  {most.what}: there is too little of it"


def _used(limit: Limit) -> tuple[str, str]:
    return f"{limit.used:.0%}", limit.formula


def _amount(limit: Limit, value: float) -> str:
    if limit.unit == "bytes":
        return size_text(value)
    return _rate(value) if limit.unit else _number(value)


def _rate(value: float) -> str:
    return f"{size_text(value)}/s"


def _number(value: float) -> str:
    if value == math.inf:
        return "no limit"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
