"""Which of the peers' tests are run, and with what of ours in the place of what of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WRITER_OR_READER = "ADAPTERS_PEERS_RECORDIO"
"""The environment variable that tells ``in_recordio`` which of the two is ours."""


@dataclass(frozen=True)
class Suite:
    """Some files of a peer's."""

    name: str
    package: str
    files: tuple[str, ...]
    """Below the root of the source."""
    replacement: str
    """The plugin that puts ours in place."""
    variants: Mapping[str, Mapping[str, str]]
    """What is run, and with which environment."""
    selection: str = ""
    """A regular expression in ``file.py::Class::test`` of what has to do with what is replaced."""
    long: str = ""
    """Another one, of what takes long, and is run only where all is asked for."""
    surroundings: tuple[str, ...] = ()
    """Plugins that theirs need, too."""


SUITES = (
    Suite(
        "keras",
        "keras",
        (
            "keras/src/trainers/data_adapters/py_dataset_adapter_test.py",
            "keras/src/trainers/trainer_test.py",
            "keras/src/trainers/epoch_iterator_test.py",
            "keras/src/layers/preprocessing/normalization_test.py",
        ),
        "tests.peers.in_keras",
        {
            "tensorflow": {"KERAS_BACKEND": "tensorflow"},
            "jax": {"KERAS_BACKEND": "jax"},
            # Without compiling models, which takes minutes, and reads no data.
            "torch": {"KERAS_BACKEND": "torch", "TORCHDYNAMO_DISABLE": "1"},
        },
        "py_dataset|pydataset|test_epoch_callbacks",
        # Every worker process imports Keras and its backend.
        long="multiprocessing",
    ),
    Suite(
        "gluon data",
        "mxnet",
        ("tests/python/unittest/test_gluon_data.py",),
        "tests.peers.in_gluon",
        {"": {}},
        # test_datasets downloads nine data sets, and loads nothing from them.
        "::(?!test_datasets$)",
        surroundings=("tests.peers.mxnet_surroundings",),
    ),
    Suite(
        "recordio",
        "mxnet",
        ("tests/python/unittest/test_recordio.py",),
        "tests.peers.in_recordio",
        {name: {WRITER_OR_READER: name} for name in ("writer", "reader")},
        # Packs 65,000 labels.
        long="test_recordio_pack_label",
        surroundings=("tests.peers.mxnet_surroundings",),
    ),
)
