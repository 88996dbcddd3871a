"""Ratios of ``gluon_loader`` to MXNet's DataLoader.

MXNet is imported by rows alone, as it would stay in the harness's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.installed import Peer
from benchmarks.harness.ratios import BATCH, DIGITS, Contestant, Ratio, endless, measure_ratio, pace
from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    return measure_ratio(TABLE[options["loader"]], options)


def _data() -> Any:
    from adapters.gluon import import_mxnet

    return import_mxnet().gluon.data


def digits_of(to_tensor: bool) -> Any:
    """MNIST's shapes, as Gluon holds them, with ToTensor or the blog post's lambda."""
    from benchmarks.experiments.mnist_gluon import mx, verbatim

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (DIGITS, 28, 28, 1), dtype=np.uint8)
    labels = rng.integers(0, 10, DIGITS).astype(np.int32)
    data = _data().ArrayDataset(mx.nd.array(images, dtype="uint8"), labels)
    if to_tensor:
        return data.transform_first(_data().vision.transforms.ToTensor())
    return data.transform(verbatim)


def _samples(batch: Any) -> float:
    # An NDArray may still be on its way.
    batch[0].wait_to_read()
    return float(batch[0].shape[0])


def ours_of(data: Any, counted: int, skipped: int = 40, **arguments: Any) -> Contestant:
    """`gluon_loader`, made anew in each round."""
    from adapters import gluon_loader

    def contestant() -> float:
        with gluon_loader(data, BATCH, shuffle=True, **arguments, thread_safe=True) as loader:
            return pace(endless(loader), skipped, counted, _samples)

    return contestant


def _mxnet(data: Any, counted: int, workers: int, thread_pool: bool = False) -> Contestant:
    def contestant() -> float:
        loader = _data().DataLoader(
            data, BATCH, shuffle=True, num_workers=workers, thread_pool=thread_pool
        )
        return pace(endless(loader), 14, counted, _samples)

    return contestant


def _to_tensor() -> Mapping[str, Contestant]:
    data = digits_of(to_tensor=True)
    return {
        "gluon_loader, auto": ours_of(data, 6 * DIGITS // BATCH),
        "DataLoader, no workers": _mxnet(data, 100, 0),
        "DataLoader, 2 processes": _mxnet(data, 200, 2),
        "DataLoader, 4 processes": _mxnet(data, 200, 4),
        "DataLoader, 2 threads": _mxnet(data, 60, 2, thread_pool=True),
    }


# Batches that this process makes while new ones start and import MXNet; DataLoader forks. What the
# start costs is counted in the sweep and in the rows of start-up.
STARTING = 400


def _verbatim(workers: int) -> Mapping[str, Contestant]:
    data = digits_of(to_tensor=False)
    kind = f"{workers} workers"
    return {
        f"gluon_loader, {kind}": ours_of(
            data, 200, STARTING if workers else 14, num_workers=workers
        ),
        f"DataLoader, {kind}": _mxnet(data, 200, workers),
    }


def _verbatim_at_best() -> Mapping[str, Contestant]:
    data = digits_of(to_tensor=False)
    own = {"gluon_loader, 2 workers": ours_of(data, 300, STARTING, num_workers=2)}
    return own | {f"DataLoader, {n} workers": _mxnet(data, 200, n) for n in (1, 2, 3, 4)}


MXNET = Peer("Gluon", "mxnet", "mxnet")
TABLE: Mapping[str, Ratio] = {
    "ToTensor": Ratio(MXNET, "samples/s", _to_tensor, rounds=3, default=True),
    "verbatim, at its best": Ratio(MXNET, "samples/s", _verbatim_at_best, rounds=3),
    **{
        f"verbatim, {workers} workers": Ratio(
            MXNET,
            "samples/s",
            partial(_verbatim, workers),
            # Parity is all that there is to be had without workers: quartiles of five are too few.
            rounds=5 if workers else 9,
        )
        for workers in (0, 2, 4, 8)
    },
}
