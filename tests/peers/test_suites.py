"""What Keras's own tests ask of a ``PyDataset``, ours does, but for what is listed.

Keras's wheel has its tests with it. Those about ``PyDataset`` run twice: as they are, and with a
``SafeSequence`` in its place (``in_keras.py``). What theirs passes, ours has to pass. What theirs
doesn't pass, or skips, says nothing about ours. ``ADAPTERS_PEERS_ALL=1`` adds the tests of worker
processes, each of which imports its backend.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FILES = (
    "trainers/data_adapters/py_dataset_adapter_test.py",
    "trainers/trainer_test.py",
    "trainers/epoch_iterator_test.py",
    "layers/preprocessing/normalization_test.py",
)
SELECTED = "(py_dataset or pydataset or test_epoch_callbacks)"
BACKENDS = ("tensorflow", "jax", "torch")


class Deviation(NamedTuple):
    """Tests of theirs that ours is not meant to pass; one that passes is an error.

    Args:
        tests: Their names; ``*`` stands for anything.
        reason: Why.
        backends: Those that it concerns.
        since: Keras's first version that has these tests.
    """

    tests: str
    reason: str
    backends: tuple[str, ...] = BACKENDS
    since: tuple[int, ...] = ()


DEVIATIONS = (
    Deviation(
        "test_exception_reported_*",
        "Asks for an InvalidArgumentError of tf.data's. Ours ends the data set and raises the "
        "exception itself where the epoch ends, so that fit raises a ValueError as such.",
        backends=("tensorflow",),
    ),
    Deviation(
        "test_basic_flow_single_jax_*",
        "Asks for the data set's own JAX arrays. Ours gives NumPy arrays on every backend, as what "
        "comes from worker processes and what doesn't are to be alike; Keras takes either.",
        backends=("jax",),
    ),
    Deviation(
        "test_epoch_callbacks_finite",
        "Asks for on_epoch_begin and on_epoch_end of a data set of 4 batches after 10 steps. Ours "
        "calls them where the data begin and end, whatever steps_per_epoch is, as no sample is to "
        "come twice in an epoch.",
    ),
    Deviation(
        "test_epoch_callbacks_infinite",
        "Asks for as many on_epoch_begin as on_epoch_end. Ours begins the next epoch of a data set "
        "without an end where the one before ends, as its batches may be read ahead.",
    ),
    Deviation(
        "test_sharding_*_true",
        "Sets the private _epoch of Keras's adapter, and asks for an order that depends on it. "
        "Ours depends on the sequence's seed and epoch.",
        since=(3, 16),
    ),
    Deviation(
        "test_sharding_dataparallel_false",
        "Asks for a batch more in some shards, where their number doesn't divide that of the "
        "batches. Ours gives every shard as many, as a process with one more would wait for the "
        "others for ever.",
        since=(3, 16),
    ),
)


def passed(backend: str, folder: Path, *plugins: str) -> set[str]:
    """The tests that pass, ``Class::test``, in a process of their own."""
    import keras

    folder.mkdir()
    selected = SELECTED if os.environ.get("ADAPTERS_PEERS_ALL") else f"{SELECTED} and not multipro"
    sources = Path(keras.__file__).parent / "src"
    # What this run of pytest was told is not for that one.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={folder}"),
            *("--noconftest", "-p", "no:cacheprovider", "--timeout=120", "-W", "ignore"),
            *("--junitxml=found.xml", "-k", selected),
            *(argument for plugin in plugins for argument in ("-p", plugin)),
            *(str(sources / file) for file in FILES),
        ],
        cwd=folder,
        env={
            **own,
            "PYTHONPATH": str(ROOT),
            "KERAS_BACKEND": backend,
            # Compiling models takes PyTorch minutes, and reads no data.
            "TORCHDYNAMO_DISABLE": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stdout[-4000:] + ended.stderr[-1000:]
    cases = ElementTree.parse(folder / "found.xml").iter("testcase")
    return {
        f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        for case in cases
        if all(case.find(kind) is None for kind in ("failure", "error", "skipped"))
    }


@pytest.mark.full
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("backend", BACKENDS)
def test_ours_passes_what_theirs_passes(backend: str, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} isn't installed")
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    theirs = passed(backend, tmp_path / "theirs")
    ours = passed(backend, tmp_path / "ours", "tests.peers.in_keras")
    version = tuple(map(int, keras.__version__.split(".")[:2]))
    concerned = [d for d in DEVIATIONS if backend in d.backends and version >= d.since]
    meant = {
        test
        for test in theirs
        for deviation in concerned
        if fnmatchcase(test.partition("::")[2], deviation.tests)
    }
    assert theirs
    assert theirs - ours == meant
