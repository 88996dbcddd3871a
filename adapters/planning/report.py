"""Text reports of a plan, and of the published examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adapters.planning.examples import Comparison
from adapters.planning.requirement import (
    CACHE_SHARE,
    ENOUGH_PERCENT,
    MIB,
    Requirement,
    Workload,
)
from adapters.planning.step import Step
from adapters.planning.storage import Fit

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def plan_lines(
    workload: Workload, step: Step, need: Requirement, fits: Sequence[Fit], rate_basis: str = ""
) -> Iterator[str]:
    """Format requirements, their reasons, and kinds of storage.

    Args:
        workload: Workload.
        step: Step time t and its basis.
        need: Requirements of the workload.
        fits: Verdict on each kind of storage.
        rate_basis: Basis of a core's rate.
    """
    n, t = workload.batch_size, f"{need.batch_seconds:.4g} s"
    load = f"{_count(workload.gpus, 'GPU')} x {_count(workload.experiments, 'experiment')}"
    bandwidth = f"{size_text(need.bytes_per_second)}/s"
    rows = [
        ("t, a step of n", f"{t} for n {n:,}; {step.basis}"),
        ("n / t", f"{need.gpu_examples_per_second:,.0f} examples/s for a GPU"),
        ("in all", f"{need.examples_per_second:,.0f} examples/s for {load}"),
        ("an epoch", f"{need.epoch_seconds:,.1f} s of one experiment"),
        (
            "a file an example",
            f"{need.file_iops:,.0f} IOPS of {size_text(workload.example_bytes)}, {bandwidth}",
        ),
        (
            "packed records",
            f"{need.packed_iops:,.1f} IOPS of {size_text(need.packed_read_bytes)}, {bandwidth}; "
            "in random order as with files, unless they are in the page cache",
        ),
        ("data set", size_text(need.dataset_bytes) + _cached(workload, need)),
        (
            "shards",
            f"{need.shards:,} of {size_text(need.shard_bytes)}: "
            f"adapters pack --shard-bytes {need.shard_bytes // MIB}MB",
        ),
        ("workers", _workers(workload, need, rate_basis)),
        ("requirement", f"{ENOUGH_PERCENT}% of the mini-batches of {n:,} examples within {t}"),
    ]
    yield from aligned(rows)
    yield ""
    head = ("storage", "IOPS", "large reads", "files", "packed", "source")
    table = [
        (
            fit.storage.title,
            _range_text(fit.storage.iops, 0),
            _range_text([rate / MIB for rate in fit.storage.bytes_per_second], 0) + " MiB/s",
            fit.files.value,
            fit.packed.value,
            fit.storage.source,
        )
        for fit in fits
    ]
    yield from aligned([head, *table])


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Format a table of computed and printed figures, and whether they agree."""
    rows = [("of", "formula", "computed", "printed", "")]
    for each in comparisons:
        computed = _range_text(each.computed, each.decimals)
        printed = _range_text(each.printed, each.decimals)
        if each.printed and computed != printed:  # One more digit shows the difference.
            computed = _range_text(each.computed, each.decimals + 1)
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
    yield from aligned(rows)


def size_text(size: float) -> str:
    """Format bytes in the largest unit that leaves at least one of it."""
    power = 0
    while size >= 1024 and power < len(_UNITS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:,.4g} {_UNITS[power]}"


def _cached(workload: Workload, need: Requirement) -> str:
    if workload.memory_bytes is None:
        return "; give --memory to learn whether the page cache keeps it"
    kept = f"the {CACHE_SHARE:.0%} of {size_text(workload.memory_bytes)} that are counted on"
    if need.fits_memory:
        return f", fits {kept}: storage is read in the first epoch only"
    return f", doesn't fit {kept}: storage is read in every epoch"


def _workers(workload: Workload, need: Requirement, rate_basis: str) -> str:
    if need.workers is None:
        return "give --measure or --per-core to learn how many"
    basis = f", {rate_basis}" if rate_basis else ""
    return f"{need.workers:,}, at {workload.core_examples_per_second:,.0f} examples/s a core{basis}"


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}" + "s" * (number != 1)


def _range_text(values: Sequence[float], decimals: int) -> str:
    return " to ".join(f"{value:,.{decimals}f}" for value in values)


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Pad columns to their width, except the last one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()
