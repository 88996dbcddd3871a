"""What can be said on the command line, and what an error becomes there: a line, and a status."""

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

# Who has which command. What one of them needs isn't imported for another.
_MODULES = {
    "pack": "packing",
    "index": "files",
    "verify": "files",
    "convert": "files",
    "inspect": "inspection",
    "cache": "caching",
    "doctor": "doctor",
    "replay": "replay",
    "plan": "planning",
    "show": "show",
    "tune": "tune",
    "completion": "completion",
}
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
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = parser_of(words[0] if words else None)
    options = parser.parse_args(words)
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


def parser_of(command: str | None = None) -> argparse.ArgumentParser:
    """What the command line is read by: with all commands, or with the module of this one."""
    parser = argparse.ArgumentParser(
        prog="adapters",
        description="Record files for training, and what keeps training from being faster.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    known = [_MODULES[command]] if command in _MODULES else _MODULES.values()
    for module in dict.fromkeys(known):
        importlib.import_module(f"adapters.cli.{module}").add_parser(subparsers)
    return parser
