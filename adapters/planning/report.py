"""Text reports of a plan, and of the published examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adapters.planning.published import STORAGE, Comparison, Step
from adapters.planning.requirement import CACHE_SHARE, MIB, Workload

# Percentage of the mini-batches that must arrive within t.
_ENOUGH_PERCENT = 99
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def plan_lines(workload: Workload, step: Step, rate_basis: str) -> Iterator[str]:
    """Format requirements, their reasons, and kinds of storage."""
    need, n, t = workload, workload.batch_size, f"{workload.batch_seconds:.4g} s"
    load = f"{_count(need.gpus, 'GPU')} x {_count(need.experiments, 'experiment')}"
    bandwidth = f"{_size(need.bytes_per_second)}/s"
    yield from _aligned(
        [
            ("t, a step of n", f"{t} for n {n:,}; {step.basis}"),
            ("n / t", f"{need.gpu_examples_per_second:,.0f} examples/s for a GPU"),
            ("in all", f"{need.examples_per_second:,.0f} examples/s for {load}"),
            ("an epoch", f"{need.epoch_seconds:,.1f} s of one experiment"),
            (
                "a file an example",
                f"{need.examples_per_second:,.0f} IOPS of {_size(need.example_bytes)}, {bandwidth}",
            ),
            (
                "packed records",
                f"{need.packed_iops:,.1f} IOPS of {_size(need.packed_read_bytes)}, {bandwidth}; "
                "in random order as with files, unless they are in the page cache",
            ),
            ("data set", _size(need.dataset_bytes) + _cached(need)),
            (
                "shards",
                f"{need.shards:,} of {_size(need.shard_bytes)}: "
                f"adapters pack --shard-bytes {need.shard_bytes // MIB}MB",
            ),
            ("workers", _workers(need, rate_basis)),
            ("requirement", f"{_ENOUGH_PERCENT}% of the mini-batches of {n:,} examples within {t}"),
        ]
    )
    yield ""
    table = [("storage", "IOPS", "large reads", "files", "packed", "source")]
    table += [
        (
            kind.title,
            _range(kind.iops, 0),
            _range([rate / MIB for rate in kind.bytes_per_second], 0) + " MiB/s",
            kind.verdict(need.examples_per_second, need.bytes_per_second),
            kind.verdict(need.packed_iops, need.bytes_per_second),
            kind.source,
        )
        for kind in STORAGE
    ]
    yield from _aligned(table)


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Format a table of computed and printed figures, and whether they agree."""
    rows = [("of", "formula", "computed", "printed", "")]
    for each in comparisons:
        computed = _range(each.computed, each.decimals)
        printed = _range(each.printed, each.decimals)
        if each.printed and computed != printed:  # One more digit shows the difference.
            computed = _range(each.computed, each.decimals + 1)
        verdict = [] if not each.printed else ["agrees" if each.agrees else "differs"]
        rows.append(
            (
                each.subject,
                each.formula,
                f"{computed} {each.unit}",
                f"{printed} {each.unit}" if printed else "not at hand",
                ": ".join([*verdict, *filter(None, [each.note])]),
            )
        )
    yield from _aligned(rows)


def _size(size: float) -> str:
    power = 0
    while size >= 1024 and power < len(_UNITS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:,.4g} {_UNITS[power]}"


def _cached(need: Workload) -> str:
    if need.memory_bytes is None:
        return "; give --memory to learn whether the page cache keeps it"
    kept = f"the {CACHE_SHARE:.0%} of {_size(need.memory_bytes)} that are counted on"
    if need.fits_memory:
        return f", fits {kept}: storage is read in the first epoch only"
    return f", doesn't fit {kept}: storage is read in every epoch"


def _workers(need: Workload, rate_basis: str) -> str:
    if need.workers is None:
        return "give --measure or --per-core to learn how many"
    rate = f"{need.core_examples_per_second:,.0f} examples/s a core, {rate_basis}"
    return f"{need.workers:,}, at {rate}"


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}" + "s" * (number != 1)


def _range(values: Sequence[float], decimals: int) -> str:
    return " to ".join(f"{value:,.{decimals}f}" for value in values)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()
