"""litdata: its own chunks, read by the processes of its StreamingDataLoader, with OpenCV."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.data.cache import made_once
from benchmarks.data.photographs import QUALITIES, Numbered, Photographs
from benchmarks.harness.ratios import BATCH, endless
from benchmarks.peers.pictures import TRAIN, Batches, with_opencv

CHUNK_BYTES = 1 << 24
_NOBODY = {
    "region_name": "us-east-1",
    "aws_access_key_id": "none",
    "aws_secret_access_key": "none",
}


def find_chunks(photographs: Photographs) -> Path:
    """The pictures in litdata's format, each with its number; made now if they aren't there."""

    def make(folder: Path) -> None:
        from litdata.streaming.cache import Cache

        cache = Cache(str(folder / "train"), chunk_bytes=CHUNK_BYTES)
        files = Numbered(photographs.paths)
        for number in range(len(files)):
            jpeg, _ = files[number]
            cache[number] = {"jpeg": jpeg, "number": number}
        cache.done()
        cache.merge()

    return made_once(f"photographs-chunks-1-{QUALITIES[photographs.size]}", make) / "train"


class Decode:
    """From what a chunk has to a sample.

    Args:
        work: Of the two.
    """

    def __init__(self, work: str) -> None:
        self._work = work

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, int]:
        """(uint8 (224, 224, 3), number)."""
        uniform = random.uniform if self._work == TRAIN else None
        return with_opencv(sample["jpeg"], uniform), sample["number"]


def batches_of(
    photographs: Photographs, workers: int, work: str, address: str | None = None
) -> Batches:
    """Endless batches.

    Args:
        photographs: The files.
        workers: Processes.
        work: Of the two.
        address: Of a server of the chunks' parent folder, which is asked as S3 is; None for the
            files.
    """
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    chunks = find_chunks(photographs)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        where = str(chunks)
        remote: dict[str, Any] = {}
        if address is not None:
            # What it gives obstore leaves no way to a server without TLS.
            downloader._OBSTORE_CLIENT_OPTIONS = {"allow_http": True}
            where = f"s3://{chunks.name}"
            remote = {"storage_options": {"endpoint_url": address.rstrip("/"), **_NOBODY}}
            remote["cache_dir"] = cache
        data = StreamingDataset(where, shuffle=work == TRAIN, transform=Decode(work), **remote)
        yield from endless(StreamingDataLoader(data, batch_size=BATCH, num_workers=workers))
