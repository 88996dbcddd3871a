"""Where ours is meant to do something else than the peers' own tests ask for, and why.

A test in this list that passes is an error, as is one that ours fails and that isn't in it.
"""

from __future__ import annotations

from tests.peers.comparison import Deviation

_ADAPTER_TEST = "py_dataset_adapter_test.py::PyDatasetAdapterTest::"

DEVIATIONS = (
    Deviation(
        "keras",
        _ADAPTER_TEST + "test_exception_reported_*",
        "Asks for an InvalidArgumentError of tf.data's. Ours ends the data set and raises the "
        "exception itself where the epoch ends, so that fit raises a ValueError as such.",
        variants=("tensorflow",),
    ),
    Deviation(
        "keras",
        _ADAPTER_TEST + "test_basic_flow_single_jax_*",
        "Asks for the data set's own JAX arrays. Ours gives NumPy arrays on every backend, as what "
        "comes from worker processes and what doesn't are to be alike; Keras takes either.",
        variants=("jax",),
    ),
    Deviation(
        "keras",
        "epoch_iterator_test.py::TestEpochIterator::test_epoch_callbacks_finite",
        "Asks for on_epoch_begin and on_epoch_end of a data set of 4 batches after 10 steps. Ours "
        "calls them where the data begin and end, whatever steps_per_epoch is, as no sample is to "
        "come twice in an epoch.",
    ),
    Deviation(
        "keras",
        "epoch_iterator_test.py::TestEpochIterator::test_epoch_callbacks_infinite",
        "Asks for as many on_epoch_begin as on_epoch_end. Ours begins the next epoch of a data set "
        "without an end where the one before ends, as its batches may be read ahead.",
    ),
    Deviation(
        "keras",
        _ADAPTER_TEST + "test_sharding_*_true",
        "Sets the private _epoch of Keras's adapter, and asks for an order that depends on it. "
        "Ours depends on the sequence's seed and epoch.",
        since=(3, 16),
    ),
    Deviation(
        "keras",
        _ADAPTER_TEST + "test_sharding_dataparallel_false",
        "Asks for a batch more in some shards, where their number doesn't divide that of the "
        "batches. Ours gives every shard as many, as a process with one more would wait for the "
        "others for ever.",
        since=(3, 16),
    ),
    Deviation(
        "gluon data",
        "test_gluon_data.py::test_multi_worker",
        "Passes auto_reload, which CHANGELOG lists under Removed: a pass starts with its first "
        "batch. Workers of both kinds and the order of batches have tests of our own.",
    ),
)
