"""The command-line parser, and how errors become a message and an exit status."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence

from adapters import __version__
from adapters.errors import AdapterError, ScriptError

# Module of each command; only the module of the given command is imported.
_MODULES = {
    "pack": "packing",
    "verify": "packing",
    "convert": "packing",
    "inspect": "inspection",
    "cache": "caching",
    "doctor": "doctor",
    "replay": "doctor",
    "plan": "planning",
}
# Commands that run a training script, whose own arguments follow after ``--``.
_OF_SCRIPTS = ("doctor", "replay")
# The shell's status for a command ended by Ctrl-C.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Arguments without the program's name; None for those of the process.

    Returns:
        The exit status: 0 on success; 1 for bad data, a failed command or a failed script, whose
        traceback is printed; 130 after Ctrl-C.

    Raises:
        SystemExit: With status 2, for invalid arguments.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # Closed, for example by `>&-`.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the end.
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser, options = parsed(words)
    if isinstance(sys.stdout, io.TextIOWrapper):  # File names may not be valid text.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: int | None = options.run(options)
        sys.stdout.flush()
    except argparse.ArgumentError as error:
        parser.error(str(error))
    except BrokenPipeError:  # For example, `| head` has exited.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ScriptError as error:  # The traceback shows the place in the user's code.
        traceback.print_exception(error.__cause__)
        remedy = ""
        if "attempted relative import" in str(error.__cause__):
            remedy = f": give the module's name, adapters {options.command} package.module"
        message = f"adapters {options.command}: {error} ended with that exception{remedy}"
        print(message, file=sys.stderr)
        return 1
    except (AdapterError, ImportError, OSError, TypeError, ValueError) as error:
        print(f"adapters {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"adapters {options.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return status or 0


def parsed(words: Sequence[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The parser of the command, and the options; ``arguments`` are those of a training script."""
    parser = argparse.ArgumentParser(
        prog="adapters",
        description="Record files for training, and what keeps training from being faster.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command, own = words[0] if words else None, len(words)
    known = [_MODULES[command]] if command in _MODULES else _MODULES.values()
    for module in dict.fromkeys(known):
        importlib.import_module(f"adapters.cli.{module}").add_parser(subparsers)
    if command in _OF_SCRIPTS and "--" in words:
        own = words.index("--")
    options, others = parser.parse_known_args(words[:own])
    parser = subparsers.choices[options.command]
    options.arguments = list(words[own + 1 :])
    if others:
        remedy = ""
        if command in _OF_SCRIPTS:
            remedy = f": the script's own must follow after --: adapters {command} train.py -- "
            remedy += " ".join(others)
            if others[0] == "-m":
                remedy = f": give the module's name alone, adapters {command} package.module"
        parser.error(f"unrecognized arguments: {' '.join(others)}{remedy}")
    if options.arguments and options.script is None:
        parser.error("a script must be given before --, got none")
    return parser, options
