"""What pictures over HTTP must be worth, against others who stream: webdataset and litdata.

All read the same 2,000 JPEG pictures from one server of our own on loopback, as slow as that of the
table of storage: in the format and with the requests that are each one's way, into boxes of
224x224. A round is a first epoch, of what was opened anew: nothing of an earlier one is kept. It
is a process of its own, as litdata forks processes, in which obstore hangs once it was used before.

litdata asks as it asks S3. tf.data reads no HTTP without tensorflow-io, and mosaicml-streaming asks
for another crc32c than ours: neither has a row.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data.photographs import Photographs, find_photographs
from benchmarks.harness.installed import Peer
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.ratios import BATCH, Contestant, Pace, Ratio, measure_ratio, pace
from benchmarks.harness.row import Measurement
from benchmarks.lab.peers import litdata, webdataset
from benchmarks.lab.rangeprocess import ServerProcess
from benchmarks.peers.pictures import SIDE, SKIPPED, TRAIN, Batches, rows

LATENCY_SECONDS, BYTES_PER_SECOND = 0.03, 100e6
COUNTED = 24  # With those that are skipped, an epoch but for its last batch.

SMOKE = 1, 2
_short = False

Made = Callable[[Photographs, str], Batches]
Contestants = Mapping[str, Contestant]


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    global _short
    _short = options["short"]
    return measure_ratio(TABLE[options["loader"]], options)


def _ours(photographs: Photographs, address: str) -> Batches:
    from adapters import ImageDecoder, SafeSequence, open_records

    decode = ImageDecoder(SIDE, crop="random_resized", flip=True)
    url = f"{address}{photographs.tfrecord.name}"
    with (
        open_records(url, decode=decode) as source,
        SafeSequence(source, BATCH, shuffle=True, workers=usable_cpus()) as sequence,
    ):
        yield from sequence


def _webdataset(photographs: Photographs, address: str) -> Batches:
    return webdataset.batches_of(photographs, usable_cpus(), TRAIN, address)


def _litdata(photographs: Photographs, address: str) -> Batches:
    return litdata.batches_of(photographs, usable_cpus(), TRAIN, address)


def _webdataset_folder(photographs: Photographs) -> Path:
    return Path(webdataset.find_shards(photographs)[0]).parent


def _litdata_folder(photographs: Photographs) -> Path:
    return litdata.find_chunks(photographs).parent


def _our_folder(photographs: Photographs) -> Path:
    return photographs.tfrecord.parent


def _round(folder: Callable[[Photographs], Path], make: Made) -> Pace:
    """Samples a second, from a server and by a process that are started for it."""
    with (
        ServerProcess(
            folder(find_photographs()),
            latency_seconds=LATENCY_SECONDS,
            bytes_per_second=BYTES_PER_SECOND,
        ) as server,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process,
    ):
        return Pace(*process.submit(_paced, make, server.url(), _short).result())


def _paced(make: Made, address: str, short: bool) -> tuple[float, float]:
    os.environ["KERAS_BACKEND"] = "jax"
    # Linux's default, which peers expect: it was spawned itself, and passes that on.
    multiprocessing.set_start_method("fork", force=True)
    with closing(make(find_photographs(), address)) as batches:
        found = pace(batches, *(SMOKE if short else (SKIPPED, COUNTED)), rows)
    return float(found), found.per_cpu_second


def _against(name: str, folder: Callable[[Photographs], Path], make: Made) -> Contestants:
    return {
        "SafeSequence over HTTP": partial(_round, _our_folder, _ours),
        f"{name} over HTTP": partial(_round, folder, make),
    }


def _row(peer: Peer, folder: Callable[[Photographs], Path], make: Made) -> Ratio:
    contestants = partial(_against, peer.distribution, folder, make)
    return Ratio(peer, "samples/s", contestants, 3, smoke=True, data=(find_photographs,))


TABLE: Mapping[str, Ratio] = {
    "JPEG over HTTP against webdataset": _row(
        Peer("Keras", "webdataset", "webdataset", webdataset.missing),
        _webdataset_folder,
        _webdataset,
    ),
    "JPEG over HTTP against litdata": _row(
        Peer("Keras", "litdata", "litdata"), _litdata_folder, _litdata
    ),
}
