"""``adapters plan``: parse its arguments, measure the rate of a core, and print the plan."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from adapters import ImageDecoder, open_images, open_records
from adapters.cli import arguments
from adapters.planning import Workload, published_examples, step_of
from adapters.planning.published import DEVICES, MODELS
from adapters.planning.report import comparison_lines, plan_lines
from adapters.sources.folders import names_images

_NEEDED = ("batch_size", "example_bytes", "examples")


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add ``plan`` to the command line."""
    plan = subparsers.add_parser(
        "plan",
        help="what training asks of storage and workers",
        description="IOPS, bandwidth, storage, shard size and workers that keep GPUs busy. "
        "KB, MB and GB are powers of 1,024.",
    )
    plan.add_argument(
        "--published", action="store_true", help="the published examples, computed and as printed"
    )
    plan.add_argument("--model", help=", ".join(MODELS))
    plan.add_argument("--device", help=", ".join(DEVICES))
    plan.add_argument("--batch-size", type=arguments.positive, metavar="N", help="n, of one GPU")
    plan.add_argument("--gpus", type=arguments.positive, default=1, help="of one experiment")
    plan.add_argument("--experiments", type=arguments.positive, default=1, help="that run at once")
    plan.add_argument(
        "--example-bytes", type=arguments.size, metavar="SIZE", help="as stored: 64KB"
    )
    plan.add_argument(
        "--examples", type=arguments.positive, metavar="COUNT", help="in the data set"
    )
    plan.add_argument(
        "--step-ms", type=arguments.above_zero, metavar="MS", help="t, as you measured it"
    )
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
    plan.add_argument("--memory", type=arguments.size, metavar="SIZE", help="of the machine: 64GB")
    plan.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> None:
    """Run ``adapters plan``."""
    for line in comparison_lines(published_examples()) if options.published else _plan(options):
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
    missing = [name for name in _NEEDED if getattr(options, name) is None]
    if missing:
        named = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise argparse.ArgumentError(None, f"{named} must be given, or --published alone")
    try:
        step = step_of(
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
    workload = Workload(
        batch_size=options.batch_size,
        batch_seconds=step.batch_seconds,
        example_bytes=options.example_bytes,
        examples=options.examples,
        gpus=options.gpus,
        experiments=options.experiments,
        memory_bytes=options.memory,
        core_examples_per_second=rate,
    )
    yield from plan_lines(workload, step, basis)
