"""``adapters plan``: measure the rate of a core, and print the plan or the published examples."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from adapters import ImageDecoder, open_images, open_records
from adapters.arguments import counted
from adapters.cli import arguments
from adapters.planning import (
    DEVICES,
    MIB,
    MODELS,
    STORAGE,
    Comparison,
    published_examples,
    shard_bytes,
    step_of,
)
from adapters.sources.folders import names_images
from adapters.viewing.peek import aligned

# One read of many examples: the most that network file systems take, and enough for a disk.
_READ_BYTES = MIB
# Fraction of memory that the page cache can be counted on to keep; a rule of thumb. The rest is for
# the program, its batches and the system.
_CACHE_SHARE = 0.75
# A smaller excess over a whole number of workers is the rounding of n / t, not another worker.
_ROUNDING = 1e-9
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add ``plan`` to the command line."""
    plan = subparsers.add_parser(
        "plan",
        help="what training asks of storage and workers",
        description="IOPS, bandwidth, storage, shard size and workers that keep GPUs busy. "
        "KB, MB and GB are powers of 1,024.",
    )
    add = plan.add_argument
    add("--published", action="store_true", help="the published examples, computed and as printed")
    add("--model", help=", ".join(MODELS))
    add("--device", help=", ".join(DEVICES))
    add("--batch-size", type=arguments.positive, metavar="N", help="batch size of one GPU")
    add("--gpus", type=arguments.positive, default=1, help="GPUs of one experiment")
    add("--experiments", type=arguments.positive, default=1, help="concurrent experiments")
    add(
        "--example-bytes",
        type=arguments.size,
        metavar="SIZE",
        help="stored bytes of an example, such as 64KB",
    )
    add("--examples", type=arguments.positive, metavar="COUNT", help="in the data set")
    add("--step-ms", type=arguments.above_zero, metavar="MS", help="measured time of a step")
    rate = plan.add_mutually_exclusive_group()
    rate.add_argument(
        "--per-core",
        type=arguments.above_zero,
        metavar="RATE",
        help="examples/s that one core prepares",
    )
    rate.add_argument(
        "--measure",
        metavar="PATH",
        help="measure that on these record files, or on a folder with a folder per class",
    )
    add("--memory", type=arguments.size, metavar="SIZE", help="of the machine: 64GB")
    plan.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> None:
    """Run ``adapters plan``."""
    for line in _comparison_lines(published_examples()) if options.published else _plan(options):
        print(line)


def measured_rate(path: str, seconds: float = 1.0) -> float:
    """Measure how many images/s one core reads, decodes, crops at random and resizes to 224x224.

    Records are read in order, starting over after the last. The time that counts is the larger of
    wall time, which includes waiting for reads, and CPU time, which includes decoder threads.
    """
    decode = ImageDecoder(224, crop="random_resized", flip=True)
    with (open_images if names_images(path) else open_records)(path, decode=decode) as source:
        if not len(source):
            raise ValueError(f"--measure must name files with records, got {path!r} without any")
        source[0]  # The first sample imports libraries.
        count, elapsed = 0, 0.0
        started, started_cpu = time.perf_counter(), time.process_time()
        while elapsed < seconds:
            source[count % len(source)]
            count += 1
            elapsed = max(time.perf_counter() - started, time.process_time() - started_cpu)
    return count / elapsed


def _plan(options: argparse.Namespace) -> Iterator[str]:
    needed = ("batch_size", "example_bytes", "examples")
    missing = [name for name in needed if getattr(options, name) is None]
    if missing:
        named = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise argparse.ArgumentError(None, f"{named} must be given, or --published alone")
    try:
        seconds, step_basis = step_of(
            options.batch_size,
            model=options.model,
            device=options.device,
            step_seconds=None if options.step_ms is None else options.step_ms / 1000,
        )
    except ValueError as error:
        raise argparse.ArgumentError(None, str(error)) from error
    rate, basis = options.per_core, "as given"
    if options.measure is not None:
        rate, basis = measured_rate(options.measure), f"measured on {options.measure}"
    yield from _plan_lines(options, seconds, step_basis, rate, basis)


# --- the text ---


def _plan_lines(
    options: argparse.Namespace, t: float, t_basis: str, core_rate: float | None, core_basis: str
) -> Iterator[str]:
    """Format requirements, their reasons, and kinds of storage.

    ``t`` is the time of a step of n examples; a core prepares ``core_rate`` examples a second.
    """
    n, example_bytes, gpus = options.batch_size, options.example_bytes, options.gpus
    rate = n / t * gpus * options.experiments  # Reads a second, with a file for each example.
    bytes_per_second, data_bytes = rate * example_bytes, options.examples * example_bytes
    read_bytes = max(_READ_BYTES, example_bytes)
    packed_iops = bytes_per_second / read_bytes
    size = shard_bytes(data_bytes, gpus)
    load = f"{counted(gpus, 'GPU')} x {counted(options.experiments, 'experiment')}"
    bandwidth = f"{_size(bytes_per_second)}/s"
    yield from aligned(
        [
            ("t, a step of n", f"{t:.4g} s for n {n:,}; {t_basis}"),
            ("n / t", f"{n / t:,.0f} examples/s for a GPU"),
            ("in all", f"{rate:,.0f} examples/s for {load}"),
            ("an epoch", f"{options.examples / (n / t * gpus):,.1f} s of one experiment"),
            ("a file an example", f"{rate:,.0f} IOPS of {_size(example_bytes)}, {bandwidth}"),
            (
                "packed records",
                f"{packed_iops:,.1f} IOPS of {_size(read_bytes)}, {bandwidth}; "
                "in random order as with files, unless they are in the page cache",
            ),
            ("data set", _size(data_bytes) + _cached(data_bytes, options.memory)),
            (
                "shards",
                f"{-(-data_bytes // size):,} of {_size(size)}: "
                f"adapters pack --shard-bytes {size // MIB}MB",
            ),
            ("workers", _workers(rate, core_rate, core_basis)),
            ("requirement", f"99% of the mini-batches of {n:,} within {t:.4g} s"),
        ]
    )
    yield ""
    table = [("storage", "IOPS", "large reads", "files", "packed", "source")]
    table += [
        (
            kind.title,
            _range(kind.iops, 0),
            _range([each / MIB for each in kind.bytes_per_second], 0) + " MiB/s",
            kind.verdict(rate, bytes_per_second),
            kind.verdict(packed_iops, bytes_per_second),
            kind.source,
        )
        for kind in STORAGE
    ]
    yield from aligned(table)


def _comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Format a table of computed and printed figures, and whether they agree."""
    rows = [("of", "formula", "computed", "printed", "")]
    for each in comparisons:
        computed = _range(each.computed, each.decimals)
        printed = _range(each.printed, each.decimals)
        if each.printed and computed != printed:  # One more digit shows the difference.
            computed = _range(each.computed, each.decimals + 1)
        verdict = ["agrees" if each.agrees else "differs"] if each.printed else []
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


def _size(size: float) -> str:
    power = 0
    while size >= 1024 and power < len(_UNITS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:,.4g} {_UNITS[power]}"


def _cached(data_bytes: int, memory_bytes: int | None) -> str:
    if memory_bytes is None:
        return "; give --memory to learn whether the page cache keeps it"
    kept = f"the {_CACHE_SHARE:.0%} of {_size(memory_bytes)} that are counted on"
    if data_bytes <= _CACHE_SHARE * memory_bytes:
        return f", fits {kept}: storage is read in the first epoch only"
    return f", doesn't fit {kept}: storage is read in every epoch"


def _workers(rate: float, core_rate: float | None, core_basis: str) -> str:
    if core_rate is None:
        return "give --measure or --per-core to learn how many"
    count = math.ceil(rate / core_rate * (1 - _ROUNDING))
    shown = f"{core_rate:,.0f}" if core_rate >= 10 else f"{core_rate:.2g}"
    return f"{count:,}, at {shown} examples/s a core, {core_basis}"


def _range(values: Sequence[float], decimals: int) -> str:
    return " to ".join(f"{value:,.{decimals}f}" for value in values)
