"""spdl: FFmpeg decodes, cuts, resizes and flips, in spdl's pipeline.

What it makes is said in `pictures`. A thread takes a picture from file to frame in calls that
release the interpreter lock. spdl's wheels bring no FFmpeg: its shared libraries, libavfilter and
libavdevice among them, must be installed.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.data.photographs import Photographs
from benchmarks.harness.ratios import BATCH
from benchmarks.peers.pictures import SIDE, TRAIN, Batches, Files, box_of, passes

Frame = tuple[Any, int]


def missing() -> bool:
    """Whether spdl isn't installed, or not all that it needs of FFmpeg."""
    if importlib.util.find_spec("spdl") is None or importlib.util.find_spec("spdl.io") is None:
        return True
    return any(ctypes.util.find_library(name) is None for name in ("avfilter", "avdevice"))


def batches_of(photographs: Photographs, threads: int, work: str) -> Batches:
    """Endless batches.

    Args:
        photographs: The files.
        threads: That decode; one more puts batches together.
        work: Of the two.
    """
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    uniform = random.uniform if work == TRAIN else None
    files = Files(photographs)

    def frame(number: int) -> Frame:
        jpeg, label = files[number]
        packets = spdl.io.demux_image(jpeg)
        top, left, height, width = box_of(packets.codec.height, packets.codec.width, uniform)
        flip = "hflip," if uniform is not None and uniform(0, 1) < 0.5 else ""
        steps = (
            # Else the corner is moved to an even place, as colours have half the resolution.
            f"crop=w={width}:h={height}:x={left}:y={top}:exact=1,"
            f"scale=w={SIDE}:h={SIDE}:flags=bilinear,{flip}format=pix_fmts=rgb24"
        )
        return spdl.io.decode_packets(packets, filter_desc=steps), label

    def batch(frames: Iterable[Frame]) -> tuple[Any, Any]:
        pictures, labels = zip(*frames)
        return spdl.io.to_numpy(spdl.io.convert_frames(list(pictures))), np.array(labels)

    pipeline = (
        PipelineBuilder()
        .add_source(passes(work).tolist())
        .pipe(frame, concurrency=threads, output_order="completion" if work == TRAIN else "input")
        .aggregate(BATCH)
        .pipe(batch)
        .add_sink(2)
        .build(num_threads=threads + 1)
    )
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()
