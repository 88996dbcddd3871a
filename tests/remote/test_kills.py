"""``kill -9`` while the cache fills, at any moment: never a wrong byte, and always a usable cache.

``ADAPTERS_CACHE_KILLS=1000 pytest --full tests/remote/test_kills.py`` kills more than the usual 15.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from adapters import Cache
from tests.remote.conftest import COUNT, opened, read

KILLS = int(os.environ.get("ADAPTERS_CACHE_KILLS", "15"))
_SECONDS = 20
# Of a process's work, before it is killed: from its first requests to a cache that is full.
_LATEST_SECONDS = 0.1

# Says when it has opened its files.
FILLING = """
import sys
import numpy as np
from adapters import Cache, open_images, open_records
what, seed, folder, limit, *urls = sys.argv[1:]
opened = {"records": open_records, "images": open_images}[what]
source = opened(urls, cache=Cache(folder, int(limit)))
rng = np.random.default_rng(int(seed))
print("opened", flush=True)
while True:
    for numbers in np.split(rng.permutation(len(source)), 40):
        source.fetch(numbers)
        for number in numbers.tolist():
            source.read(number)
"""


@pytest.mark.parametrize(
    ("limit", "times"),
    [(1 << 30, 2), *(pytest.param(1 << n, KILLS, marks=pytest.mark.full) for n in (30, 20))],
)
def test_killed_process_leaves_a_right_cache(what, urls, tmp_path, expected, limit, times):
    """At moments that a seed draws."""
    cache, rng = Cache(tmp_path / "cache", limit), np.random.default_rng(0)
    for turn in range(times):
        arguments = [what, str(turn), str(cache.folder), str(cache.limit), *urls]
        command = [sys.executable, "-c", FILLING, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"opened\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(float(rng.uniform(0, _LATEST_SECONDS)))
            process.kill()
            assert process.wait(_SECONDS) == -signal.SIGKILL
        numbers = rng.permutation(COUNT)[:40]
        with opened(what, urls, cache=Cache(cache.folder, cache.limit)) as source:
            assert read(source, numbers) == [expected[number] for number in numbers]
    # Who was killed may have written more than it had room for; whoever looks next makes some.
    cache.evict()
    assert 0 < cache.used <= cache.limit
