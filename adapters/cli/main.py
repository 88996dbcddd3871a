"""What can be said on the command line, and what an error becomes there: a line, and a status."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence

from adapters import __version__
from adapters.cli import (
    arguments,
    caching,
    commands,
    completion,
    doctor,
    planning,
    replay,
    show,
    tune,
)
from adapters.diagnosis.script import ScriptError
from adapters.errors import AdapterError
from adapters.packing import ENCODINGS
from adapters.records import CODECS

# Of the shell: the command was ended by Ctrl-C.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Without the program's name; those of the process otherwise.

    Returns:
        0 if all went well, 1 if something is wrong with the data, what was asked can't be done
        with them, or a script failed, whose traceback is printed, 130 after Ctrl-C.

    Raises:
        SystemExit: With 2, for arguments that make no sense.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # A file's name may be of any bytes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except argparse.ArgumentError as error:
        parser.error(f"{options.command}: {error}")
    except BrokenPipeError:  # Of `| head`, which has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ScriptError as error:  # Where in their own code, its author wants to know.
        traceback.print_exception(error.__cause__)
        print(f"adapters {options.command}: {error} ended with that exception", file=sys.stderr)
        return 1
    except (AdapterError, ImportError, OSError, TypeError, ValueError) as error:
        print(f"adapters {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"adapters {options.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adapters",
        description="Record files for training, and what keeps training from being faster.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    pack = subparsers.add_parser("pack", help="images into record files")
    pack.add_argument("source", help="a folder with a folder per class, or an .lst or CSV file")
    pack.add_argument(
        "out", nargs="?", help='"train" gives train-00000-of-00003.tfrecord, and so on'
    )
    pack.add_argument(
        "--compare",
        action="store_true",
        help="pack nothing: say what each encoding costs in bytes and gives in samples/s here",
    )
    pack.add_argument("--format", choices=sorted(CODECS), help="else by OUT's ending")
    pack.add_argument(
        "--resize", type=arguments.positive, metavar="PIXELS", help="of the shorter side"
    )
    pack.add_argument("--quality", type=arguments.quality, help="of JPEGs, 1 to 100")
    pack.add_argument("--encoding", choices=ENCODINGS, default="jpeg")
    pack.add_argument("--shard-bytes", type=arguments.size, default=128 << 20, help="such as 64MB")
    pack.add_argument(
        "--workers", type=arguments.workers, default="auto", help='threads, or "auto"'
    )
    pack.add_argument(
        "--dask", metavar="ADDRESS", help="of a Dask scheduler, whose workers encode: tcp://..."
    )
    pack.add_argument("--root", help="of the paths in a list; else the list's folder")
    pack.add_argument(
        "--on-error", choices=["raise", "skip"], default="raise", help="with what is no image"
    )
    pack.add_argument(
        "--seed",
        type=arguments.seed,
        default="auto",
        help='of the order: a number shuffles, "none" doesn\'t; else what comes sorted by class',
    )
    pack.set_defaults(run=commands.run_pack)

    index = subparsers.add_parser("index", help="write the index beside record files")
    index.add_argument("files", nargs="+")
    index.set_defaults(run=commands.run_index)

    verify = subparsers.add_parser("verify", help="read all, check all, list what is wrong")
    verify.add_argument("files", nargs="+", help="record files, or manifests (.json)")
    verify.set_defaults(run=commands.run_verify)

    convert = subparsers.add_parser("convert", help="RecordIO to TFRecord and back")
    convert.add_argument("files", nargs="+")
    convert.add_argument("out")
    convert.add_argument("--format", choices=sorted(CODECS), help="else by OUT's ending")
    convert.set_defaults(run=commands.run_convert)

    inspect = subparsers.add_parser(
        "inspect",
        help="show the first records, and the features of Examples; or the classes of a folder",
    )
    inspect.add_argument("files", nargs="+")
    inspect.add_argument(
        "--count", type=arguments.positive, default=5, help="of records that are shown"
    )
    inspect.add_argument("--sheet", metavar="PNG", help="also draw their images into this file")
    inspect.set_defaults(run=commands.run_inspect)

    caching.add_parser(subparsers)
    doctor.add_parser(subparsers)
    replay.add_parser(subparsers)
    planning.add_parser(subparsers)
    show.add_parser(subparsers)
    tune.add_parser(subparsers)
    completion.add_parser(subparsers, parser)
    return parser
