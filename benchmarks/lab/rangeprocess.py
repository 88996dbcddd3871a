"""A range server over a folder, in a process of its own: it takes no time of the one measured."""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

from tests.remote.rangeserver import Counted, RangeServer, Settings

_END = "end"  # A line of standard input.


class ServerProcess:
    """A range server over all files in a folder, in a process of its own, which shares no lock.

    Args:
        folder: Whose files it serves.
        settings: As ``Settings`` has them.
    """

    def __init__(self, folder: str | os.PathLike[str], **settings: Any) -> None:
        arguments = [os.fspath(folder), json.dumps(asdict(Settings(**settings)))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.lab.rangeprocess", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().strip()
        if not self._address:
            self.close()
            raise ChildProcessError("the range server ended before it said where it is")

    def url(self, name: str = "") -> str:
        """Of an object."""
        return f"{self._address}{name}"

    def ask(self, **settings: Any) -> dict[str, float]:
        """Change settings, and say what was asked for since the last time, and its CPU seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(settings) + "\n")
        self._process.stdin.flush()
        counted: dict[str, float] = json.loads(self._process.stdout.readline())
        return counted

    def close(self) -> None:
        """End it, also where forked processes hold the pipe that would tell it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{_END}\n")
            self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _mapped(path: str) -> Any:
    if not os.path.getsize(path):
        return b""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def main() -> None:
    """Serve a folder until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("settings")
    options = parser.parse_args()
    objects = {
        os.path.relpath(os.path.join(folder, name), options.folder): _mapped(
            os.path.join(folder, name)
        )
        for folder, _, names in os.walk(options.folder)
        for name in names
    }
    with RangeServer(objects, **json.loads(options.settings)) as server:
        print(server.url(), flush=True)
        began = time.process_time()
        for line in sys.stdin:
            if line.strip() == _END:
                break
            server.settings = Settings(**{**asdict(server.settings), **json.loads(line)})
            counted, server.counted = server.counted, Counted()
            told = {each: getattr(counted, each) for each in ("requests", "bytes", "faults")}
            now = time.process_time()
            print(json.dumps({**told, "cpu_seconds": now - began}), flush=True)
            began = now


if __name__ == "__main__":
    main()
