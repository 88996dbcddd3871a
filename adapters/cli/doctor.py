"""``adapters doctor``: a training script, the workers of a loader, or this machine."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

from adapters.cli.arguments import above_zero, from_zero, positive
from adapters.cli.named import is_path, object_named
from adapters.diagnosis.front_end import front_end_for
from adapters.diagnosis.script import code_of, diagnose_script
from adapters.diagnosis.sweep import ROUNDS, sweep
from adapters.machine import described_machine
from adapters.progress import bar
from adapters.sources.folders import names_images

_SECONDS, _TUNED_SECONDS = 2.0, 1.0


def add_parser(subparsers: Any) -> None:
    """Add ``doctor`` to the command line."""
    doctor = subparsers.add_parser(
        "doctor",
        allow_abbrev=False,
        usage="adapters doctor [options] [train.py [-- arguments of the script]]",
        help="where the time of a training script goes; without one, what this machine has",
    )
    doctor.add_argument("script", nargs="?", help="a training script, run to its first loop")
    doctor.add_argument(
        "--skip", type=from_zero, default=0, metavar="N", help="training loops to skip"
    )
    doctor.add_argument(
        "--step-ms",
        type=above_zero,
        metavar="MS",
        help="the step time to keep up with; else the script's",
    )
    doctor.add_argument(
        "--tune",
        metavar="TARGET",
        help="without a script: find the fastest workers of FILE.py:NAME or MODULE:NAME, a "
        "SafeSequence, a gluon_loader, or a function that makes one; or of the path of record "
        "files with images, or of a folder of images",
    )
    doctor.add_argument(
        "--rounds",
        type=positive,
        metavar="N",
        help=f"with --tune, measurements of each setting (default: {ROUNDS})",
    )
    doctor.add_argument(
        "--seconds",
        type=above_zero,
        help=f"of each measurement (default: {_SECONDS:g}; with --tune, {_TUNED_SECONDS:g})",
    )
    doctor.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> None:
    """Run ``adapters doctor``; ``ValueError`` if the script has no training loop."""
    _check(options)
    if options.tune is not None:
        _tune(options)
        return
    if options.script is None:
        for line in described_machine():
            print(line, flush=True)
        return
    with bar("doctor", "round") as progress:
        found = diagnose_script(
            options.script,
            options.arguments,
            skip=options.skip,
            t=None if options.step_ms is None else options.step_ms / 1000,
            seconds=options.seconds or _SECONDS,
            progress=progress,
        )
    if found is None:
        raise ValueError(
            f"{options.script} came to its end without a call of Keras's fit or a loop over a "
            "Gluon loader that was long enough"
        )
    print(found)


def _check(options: argparse.Namespace) -> None:
    """Check options that depend on each other, before anything runs."""
    if options.tune is not None and options.script is not None:
        raise argparse.ArgumentError(
            None, f"--tune measures a loader without a script, got {options.script!r} as well"
        )
    if options.script is None:
        for name in ("skip", "step_ms"):
            if getattr(options, name):
                raise argparse.ArgumentError(None, f"--{name.replace('_', '-')} needs a script")
    if options.tune is None and options.rounds is not None:
        raise argparse.ArgumentError(None, "--rounds needs --tune TARGET")


def _tune(options: argparse.Namespace) -> None:
    """Print the table of settings, those not tried, and the fastest one as a line to paste."""
    with _loader_of(options.tune) as loader, bar("tune", "measurement") as progress:
        # Reading a path runs no user code.
        with nullcontext() if is_path(options.tune) else code_of(options.tune):
            found = sweep(
                loader,
                seconds=options.seconds or _TUNED_SECONDS,
                rounds=options.rounds or ROUNDS,
                progress=progress,
            )
        print(found)


def _loader_of(name: str) -> Any:
    """Find or make the loader of that name."""
    if is_path(name):
        from adapters import ImageDecoder, SafeSequence, open_images, open_records

        # A typical training on images.
        decode = ImageDecoder(224, crop="random_resized", flip=True)
        source = (open_images if names_images(name) else open_records)(name, decode=decode)
        return SafeSequence(source, 64, shuffle=True)
    loader = object_named(name)
    if front_end_for(loader) is None:
        raise ValueError(
            f"{name} must be a SafeSequence, a gluon_loader, or a function that makes one, got "
            f"{type(loader).__name__}"
        )
    return loader
