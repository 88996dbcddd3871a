"""``adapters replay``: compute a batch of a training script again."""

from __future__ import annotations

import argparse
from typing import Any

from adapters.cli.arguments import from_zero
from adapters.diagnosis.script import with_loader_of


def add_parser(subparsers: Any) -> None:
    """Add ``replay`` to the command line."""
    replay = subparsers.add_parser(
        "replay",
        allow_abbrev=False,
        usage="adapters replay --epoch E (--batch B | --step S) [options] train.py "
        "[-- arguments of the script]",
        help="compute a batch of a training script again: records, labels, crops, images",
    )
    replay.add_argument("script", help="a training script, run to its first loop")
    replay.add_argument("--epoch", type=from_zero, required=True, metavar="E", help="from 0")
    which = replay.add_mutually_exclusive_group(required=True)
    which.add_argument("--batch", type=int, metavar="B", help="its number, as in seq[B]")
    which.add_argument(
        "--step",
        type=from_zero,
        metavar="S",
        help="how many batches fit had trained on before it in that epoch (with its shuffle=True)",
    )
    replay.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="if other shards or batches resumed the training within that epoch: the "
        '"samples" of the state that it was resumed with',
    )
    replay.add_argument(
        "--sheet", metavar="PNG", help="write the images, before and after the transforms"
    )
    replay.add_argument(
        "--skip", type=from_zero, default=0, metavar="N", help="training loops to skip"
    )
    replay.set_defaults(run=run_replay)


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
    if shown is None:
        raise ValueError(
            f"{options.script} came to its end without a call of Keras's fit or a loop over a "
            "Gluon loader"
        )
    print(shown)
