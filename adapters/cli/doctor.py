"""``adapters doctor``: a training script, the workers of a loader, or this machine.

``adapters replay`` runs a training script, too, to compute a batch of it again.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

from adapters.cli.arguments import above_zero, from_zero, positive
from adapters.diagnosis.front_end import front_end_for
from adapters.diagnosis.script import (
    code_of,
    diagnose_script,
    is_path,
    object_named,
    with_loader_of,
)
from adapters.diagnosis.sweep import ROUNDS, sweep
from adapters.machine import described_machine
from adapters.progress import bar
from adapters.sources.folders import names_images

_SECONDS, _TUNED_SECONDS = 2.0, 1.0
_SCRIPT = "a training script, run to its first loop; or a module's name, as for python -m"


def add_parser(subparsers: Any) -> None:
    """Add ``doctor`` and ``replay`` to the command line."""
    doctor = subparsers.add_parser(
        "doctor",
        allow_abbrev=False,
        usage="adapters doctor [options] [train.py [-- arguments of the script]]",
        help="where the time of a training script goes; without one, what this machine has",
    )
    add = doctor.add_argument
    add("script", nargs="?", help=_SCRIPT)
    add(
        "--step-ms",
        type=above_zero,
        metavar="MS",
        help="step time to keep pace with; else the script's",
    )
    add(
        "--tune",
        metavar="TARGET",
        help="without a script: find the fastest workers of FILE.py:NAME or MODULE:NAME, a "
        "SafeSequence, a gluon_loader, or a function that makes one; or of the path of record "
        "files with images, or of a folder of images",
    )
    add(
        "--rounds",
        type=positive,
        metavar="N",
        help=f"with --tune, measurements of each setting (default: {ROUNDS})",
    )
    add(
        "--seconds",
        type=above_zero,
        help=f"of each measurement (default: {_SECONDS:g}; with --tune, {_TUNED_SECONDS:g})",
    )
    doctor.set_defaults(run=run_doctor)

    replay = subparsers.add_parser(
        "replay",
        allow_abbrev=False,
        usage="adapters replay --epoch E (--batch B | --step S) [options] train.py "
        "[-- arguments of the script]",
        help="compute a batch of a training script again: records, labels, crops, images",
    )
    add = replay.add_argument
    add("script", help=_SCRIPT)
    add("--epoch", type=from_zero, required=True, metavar="E", help="from 0")
    which = replay.add_mutually_exclusive_group(required=True)
    which.add_argument("--batch", type=int, metavar="B", help="its number, as in seq[B]")
    which.add_argument(
        "--step",
        type=from_zero,
        metavar="S",
        help="how many batches fit had trained on before it in that epoch (with its shuffle=True)",
    )
    add(
        "--samples",
        type=int,
        metavar="N",
        help="if other shards or batches resumed the training within that epoch: the "
        '"samples" of the state that it was resumed with',
    )
    add("--sheet", metavar="PNG", help="write the images, before and after the transforms")
    replay.set_defaults(run=run_replay)
    for command in (doctor, replay):
        command.add_argument(
            "--skip", type=from_zero, default=0, metavar="N", help="training loops to skip"
        )


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
    _print(found, options.script, "adapters.diagnose(sequence, step)")


def _print(found: Any, script: str, instead: str) -> None:
    if found is None:
        raise ValueError(
            f"{script} came to its end without a call of Keras's fit or a loop over a Gluon loader "
            f"that was long enough; for a loop over a SafeSequence, call {instead} in the script"
        )
    print(found)


def _check(options: argparse.Namespace) -> None:
    """Check options that depend on each other, before anything runs."""
    if options.tune is not None and options.script is not None:
        raise argparse.ArgumentError(
            None, f"--tune measures a loader without a script, got {options.script!r} as well"
        )
    if options.script is None:
        for name in ("skip", "step_ms", *(("seconds",) if options.tune is None else ())):
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


def run_replay(options: argparse.Namespace) -> None:
    """Run ``adapters replay``; ``ValueError`` if the script has no training loop."""

    def act(loader: Any) -> str:
        if not hasattr(loader, "replay"):
            raise TypeError(
                f"the script must train on a SafeSequence or a loader of gluon_loader to be "
                f"replayed, got {type(loader).__name__}"
            )
        said: dict[str, Any] = {}
        if options.samples is not None:
            said["state"] = {"epoch": options.epoch, "samples": options.samples}
        if options.batch is None and hasattr(loader, "num_batches"):
            said["shuffled"] = True
        batch = options.step if options.batch is None else options.batch
        try:
            found = loader.replay(options.epoch, batch, **said)
        except IndexError as error:
            raise ValueError(str(error)) from error
        sheet = f"\n{found.sheet(options.sheet)}" if options.sheet is not None else ""
        return f"{found}{sheet}"

    shown = with_loader_of(options.script, options.arguments, act, skip=options.skip)
    _print(shown, options.script, "sequence.replay(epoch, batch)")
