"""What records must be worth behind ``SafeSequence`` and ``gluon_loader``, against their peers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.data.examples import SCALARS, find_digit_examples, find_table_examples
from benchmarks.data.photographs import find_digit_records, find_photographs
from benchmarks.experiments import kernel_limit, packing
from benchmarks.harness.ratios import BATCH, Contestant, Ratio, endless, measure_ratio, pace
from benchmarks.harness.row import Measurement
from benchmarks.peers import dali, grain, mxnet, py_dataset, tf_data, torch
from benchmarks.peers.installed import is_missing, version_of
from benchmarks.peers.pictures import EPOCH, SIDE, rows

SKIPPED = 14  # Batches before the clock starts: "auto" takes up to a dozen of them to choose.
COUNTED = 120  # Two seconds of pictures, as long as a round of the bare C loop takes.
PEER_COUNTED = 20
TABLE_BATCH = 1_024


@dataclass(frozen=True)
class Peer:
    """Whom a ratio compares with.

    Args:
        framework: For the table.
        module: What is imported.
        distribution: What is installed for that; or that with "-cpu" behind it.
        absent: Tells whether it isn't there, where that isn't whether a module can be found.
    """

    framework: str
    module: str
    distribution: str
    absent: Callable[[], bool] | None = None

    @property
    def missing(self) -> bool:
        """Whether it isn't installed."""
        return is_missing(self.module, self.absent)

    @property
    def version(self) -> str:
        """For the table: name and version of what is installed."""
        return version_of(self.distribution)


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    ratio, peer = RATIOS[options["loader"]], PEERS[options["loader"]]
    os.environ["KERAS_BACKEND"] = ratio.backend or "jax"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return measure_ratio(ratio, options["rounds"], peer.version)


def pictures_for_keras() -> Any:
    """A SafeSequence of pictures out of Examples."""
    from adapters import ImageDecoder, SafeSequence, open_records

    decoder = ImageDecoder(SIDE, crop="random_resized", flip=True)
    source = open_records(find_photographs().tfrecord, decode=decoder)
    return SafeSequence(source, BATCH, shuffle=True)


def digits_for_keras() -> Any:
    """A SafeSequence of raw digits."""
    from adapters import SafeSequence, open_records

    return SafeSequence(open_records(find_digit_records(), decode="image"), BATCH, shuffle=True)


def scaled(batch: Any) -> Any:
    """Digits from 0 to 1."""
    pixels, labels = batch
    return np.multiply(pixels, np.float32(1 / 255), dtype=np.float32), labels


def digit_examples_for_keras() -> Any:
    """A SafeSequence of digits in anybody's Examples, as float32."""
    from adapters import Feature, SafeSequence, open_records

    features = {"image": Feature("uint8", (28, 28, 1), stored="raw"), "label": Feature("int64")}
    source = open_records(find_digit_examples(), decode=features, outputs=("image", "label"))
    return SafeSequence(source, BATCH, shuffle=True, batch_transform=scaled)


def table_for_keras() -> Any:
    """A SafeSequence of rows of eleven numbers."""
    from adapters import Feature, SafeSequence, open_records

    features = {**{name: Feature("float32") for name in SCALARS}, "id": Feature("int64")}
    source = open_records(find_table_examples(), decode=features)
    return SafeSequence(source, TABLE_BATCH, shuffle=True)


def pictures_for_gluon(layout: str) -> Any:
    """A loader of pictures out of RecordIO."""
    from adapters import ImageDecoder, gluon_loader, open_records

    decoder = ImageDecoder(SIDE, crop="random_resized", flip=True, layout=layout)
    source = open_records(find_photographs().recordio, decode=decoder)
    return gluon_loader(source, BATCH, shuffle=True)


def _pictures_for_keras() -> float:
    with pictures_for_keras() as sequence:
        return pace(endless(sequence), SKIPPED, COUNTED, rows)


def _digits_for_keras() -> float:
    with digits_for_keras() as sequence:
        return pace(endless(sequence), EPOCH, 8_000, rows)


def _digit_examples_for_keras() -> float:
    with digit_examples_for_keras() as sequence:
        return pace(endless(sequence), EPOCH, 8_000, rows)


def _table_for_keras() -> float:
    with table_for_keras() as sequence:
        return pace(endless(sequence), len(sequence), 2_000, lambda batch: len(batch["id"]))


def _pictures_for_gluon(layout: str) -> Contestant:
    def contestant() -> float:
        with pictures_for_gluon(layout) as loader:
            return pace(endless(loader), SKIPPED, COUNTED, rows)

    return contestant


def _tf_data() -> Mapping[str, Contestant]:
    path = find_photographs().tfrecord
    return {
        "SafeSequence, auto": _pictures_for_keras,
        "tf.data, AUTOTUNE": tf_data.contestant(path, PEER_COUNTED, None, None),
        "tf.data, 2 calls": tf_data.contestant(path, PEER_COUNTED, 2, None),
        "tf.data, 2 own threads": tf_data.contestant(path, PEER_COUNTED, None, 2),
    }


def _grain() -> Mapping[str, Contestant]:
    photographs = find_photographs()
    return {
        "SafeSequence, auto": _pictures_for_keras,
        "Grain, 2 threads": grain.contestant(photographs, PEER_COUNTED, 2, 0),
        "Grain, 16 threads": grain.contestant(photographs, PEER_COUNTED, 16, 0),
        "Grain, 2 processes": grain.contestant(photographs, PEER_COUNTED, 0, 2),
    }


def _py_dataset() -> Mapping[str, Contestant]:
    photographs = find_photographs()
    return {
        "SafeSequence, auto": _pictures_for_keras,
        "PyDataset, 2 threads": py_dataset.contestant(photographs, PEER_COUNTED, False),
        "PyDataset, 2 processes": py_dataset.contestant(photographs, PEER_COUNTED, True),
    }


def _torch() -> Mapping[str, Contestant]:
    return {
        "SafeSequence, auto": _pictures_for_keras,
        "DataLoader, 2 workers": torch.contestant(find_photographs(), PEER_COUNTED),
    }


def _dali() -> Mapping[str, Contestant]:
    return {
        "SafeSequence, auto": _pictures_for_keras,
        "DALI, 2 threads": dali.contestant(find_photographs().tfrecord, PEER_COUNTED),
    }


def _raw() -> Mapping[str, Contestant]:
    path = find_digit_records()
    return {
        "SafeSequence, auto": _digits_for_keras,
        "tf.data, by the sample": tf_data.raw_contestant(path, 500, False, None),
        "tf.data, by the batch": tf_data.raw_contestant(path, 2_000, True, None),
        "tf.data, by the batch, 2 calls": tf_data.raw_contestant(path, 2_000, True, 2),
    }


def _digit_examples() -> Mapping[str, Contestant]:
    path = find_digit_examples()
    return {
        "SafeSequence, auto": _digit_examples_for_keras,
        "tf.data, AUTOTUNE": tf_data.digits_contestant(path, 2_000, None),
        "tf.data, 2 calls": tf_data.digits_contestant(path, 2_000, 2),
    }


def _table() -> Mapping[str, Contestant]:
    path = find_table_examples()
    return {
        "SafeSequence, auto": _table_for_keras,
        "tf.data, AUTOTUNE": tf_data.table_contestant(path, SCALARS, TABLE_BATCH, 300, None),
        "tf.data, 2 calls": tf_data.table_contestant(path, SCALARS, TABLE_BATCH, 300, 2),
    }


def _mxnet_iterator() -> Mapping[str, Contestant]:
    path = find_photographs().recordio
    return {
        "gluon_loader, auto": _pictures_for_gluon("NCHW"),
        "ImageRecordIter, 2 threads": mxnet.iterator_contestant(path, PEER_COUNTED, 2),
        "ImageRecordIter, for the CPU": mxnet.iterator_contestant(path, PEER_COUNTED, None),
    }


def _mxnet_loader() -> Mapping[str, Contestant]:
    path = find_photographs().recordio
    return {
        "gluon_loader, auto": _pictures_for_gluon("NHWC"),
        "DataLoader, 2 processes": mxnet.loader_contestant(path, PEER_COUNTED, False),
        "DataLoader, 2 threads": mxnet.loader_contestant(path, PEER_COUNTED, True),
    }


def _limit() -> Mapping[str, Contestant]:
    return {
        "SafeSequence, auto": _pictures_for_keras,
        "bare C, 2 threads": kernel_limit.bare_loop(find_photographs(), 2),
    }


def _pack() -> Mapping[str, Contestant]:
    photographs = find_photographs()
    return {
        "pack, 2 workers": packing.pack(photographs, 2),
        "im2rec.py, 2 workers": packing.im2rec(photographs, 2),
    }


_TENSORFLOW = Peer("Keras", "tensorflow", "tensorflow")
_MXNET = Peer("Gluon", "mxnet", "mxnet")

_TABLE: Mapping[str, tuple[Peer, Ratio]] = {
    "JPEG TFRecord against tf.data": (
        _TENSORFLOW,
        Ratio("samples/s", 1.6, _tf_data, 3, "tensorflow"),
    ),
    "JPEG TFRecord against Grain": (
        Peer("Keras", "grain", "grain"),
        Ratio("samples/s", 2, _grain, 3),
    ),
    "JPEG TFRecord against PyDataset": (
        Peer("Keras", "keras", "keras"),
        Ratio("samples/s", 2, _py_dataset, 7),
    ),
    "JPEG TFRecord against PyTorch": (
        Peer("Keras", "torch", "torch"),
        Ratio("samples/s", 2, _torch, 3),
    ),
    "JPEG TFRecord against DALI": (
        Peer("Keras", "nvidia.dali", "nvidia-dali-cuda120"),
        Ratio("samples/s", 2, _dali, 3),
    ),
    "JPEG TFRecord against its limit": (
        Peer("Keras", "", "a C compiler", kernel_limit.missing),
        Ratio("samples/s", 0.85, _limit, 5),
    ),
    "raw TFRecord against tf.data": (
        _TENSORFLOW,
        Ratio("samples/s", 6, _raw, 3, "tensorflow"),
    ),
    "typed digits of TFRecord against tf.data": (
        _TENSORFLOW,
        Ratio("samples/s", 6, _digit_examples, 3, "tensorflow"),
    ),
    "a table of TFRecord against tf.data": (
        _TENSORFLOW,
        Ratio("rows/s", 3, _table, 3, "tensorflow"),
    ),
    "JPEG RecordIO against ImageRecordIter": (
        _MXNET,
        Ratio("samples/s", 4, _mxnet_iterator, 3),
    ),
    "JPEG RecordIO against DataLoader": (
        _MXNET,
        Ratio("samples/s", 1, _mxnet_loader, 3),
    ),
    "pack against im2rec": (_MXNET, Ratio("images/s", 1, _pack, 5)),
}
# Three minutes more than the default size takes.
RATIOS: Mapping[str, Ratio] = {
    name: dataclasses.replace(row, extra=True) for name, (_, row) in _TABLE.items()
}
PEERS: Mapping[str, Peer] = {name: peer for name, (peer, _) in _TABLE.items()}
