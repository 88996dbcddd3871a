"""``kill -9`` while the cache fills, at any moment: never a wrong byte, and always a usable cache.

``ADAPTERS_CACHE_KILLS=1000 pytest --full tests/remote/test_kills.py`` kills more than the usual 15.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from adapters import Cache
from tests.remote.conftest import COUNT, opened, read

KILLS = int(os.environ.get("ADAPTERS_CACHE_KILLS", "15"))
_SECONDS = 20
# Of a child's work, before it is killed: from its first requests to a cache that is full.
_LATEST_SECONDS = 0.1

# Forked rather than started, as a thousand starts take ten minutes; obstore is used in none but the
# children. Each says when it has opened its files.
FILLING = """
import os, sys
import numpy as np
from adapters import Cache, open_images, open_records
what, folder, limit, *urls = sys.argv[1:]

def fill(seed):
    opened = {"records": open_records, "images": open_images}[what]
    source = opened(urls, cache=Cache(folder, int(limit)))
    rng = np.random.default_rng(seed)
    os.write(1, b"%d\\n" % os.getpid())
    while True:
        for numbers in np.split(rng.permutation(len(source)), 40):
            source.bring(numbers)
            for number in numbers.tolist():
                source.read(number)

for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            fill(int(line))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    os.write(1, b"%d\\n" % -status)
"""


@contextlib.contextmanager
def filling(what: str, urls: list[str], cache: Cache) -> Iterator[Callable[[int, float], int]]:
    """Fills a cache in a child, kills that after some seconds, and says how it ended."""
    arguments = [sys.executable, "-c", FILLING, what, cache.folder, str(cache.limit), *urls]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        out: Any = process.stdout
        into: Any = process.stdin

        def told(seconds: float) -> int:
            assert select.select([out], [], [], seconds)[0], "no word of the child"
            return int(out.readline())

        def killed(seed: int, seconds: float) -> int:
            into.write(b"%d\n" % seed)
            child = told(_SECONDS)
            assert child > 0, "the child ended before it was killed"
            ended, _, _ = select.select([out], [], [], seconds)
            if not ended:
                os.kill(child, signal.SIGKILL)
            return told(_SECONDS)

        try:
            yield killed
        finally:
            into.close()
            process.wait(_SECONDS)


def kill_while_filling(
    what: str, urls: list[str], cache: Cache, expected: list[bytes], times: int
) -> None:
    """Kill processes that fill a cache, at moments that a seed draws; read what they left."""
    rng = np.random.default_rng(0)
    with filling(what, urls, cache) as killed:
        for turn in range(times):
            assert killed(turn, float(rng.uniform(0, _LATEST_SECONDS))) == -signal.SIGKILL
            numbers = rng.permutation(COUNT)[:40]
            with opened(what, urls, cache=Cache(cache.folder, cache.limit)) as source:
                found = read(source, numbers)
            assert found == [expected[number] for number in numbers]
    # Who was killed may have written more than it had room for; whoever looks next makes some.
    cache.evict()
    assert 0 < cache.used <= cache.limit


def test_killed_process_leaves_a_right_cache(what, urls, tmp_path, expected):
    kill_while_filling(what, urls, Cache(tmp_path / "cache", 1 << 30), expected, 2)


@pytest.mark.full
@pytest.mark.parametrize("limit", [1 << 30, 1 << 20])
def test_many_killed_processes_leave_a_right_cache(what, urls, tmp_path, expected, limit):
    kill_while_filling(what, urls, Cache(tmp_path / "cache", limit), expected, KILLS)
