"""Where ours falls short of theirs, and where it is meant to."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.peers.outcomes import PASSED, REPLACED, Outcome, Outcomes


class Deviation(NamedTuple):
    """Tests of theirs that ours is not meant to pass: none that fits may pass."""

    suite: str
    test: str  # ``file.py::Class::test``; ``*`` stands for anything.
    reason: str
    variants: tuple[str, ...] = ()  # Those of the suite's that it concerns; all if there are none.
    since: tuple[int, ...] = ()  # The peer's first version that has these tests.

    def concerns(self, suite: str, variant: str, version: tuple[int, ...]) -> bool:
        """Whether it is about this run."""
        of_variant = not self.variants or variant in self.variants
        return self.suite == suite and of_variant and version >= self.since


def problems(theirs: Outcomes, ours: Outcomes, deviations: Sequence[Deviation]) -> list[str]:
    """What has to be mended, or put into the list of deviations or taken off it."""
    found = [] if REPLACED in ours else ["no test was given anything of ours"]
    unused = {deviation.test for deviation in deviations}
    for test in [test for test, outcome in theirs.items() if outcome.result == PASSED]:
        outcome = ours.get(test, Outcome("wasn't run"))
        listed = {each.test for each in deviations if fnmatchcase(test, each.test)}
        unused -= listed
        if outcome.result == PASSED and listed:
            found.append(f"{test}: ours passes, and the list of deviations says that it doesn't")
        elif outcome.result != PASSED and not listed:
            found.append(f"{test}: theirs passes; ours {outcome.result}: {outcome.message}")
    return found + [
        f"{test}: in the list of deviations, and fits no test" for test in sorted(unused)
    ]


# --- where ours is meant to do something else than the peers' own tests ask for, and why ---

# A test in this list that passes is an error, as is one that ours fails and that isn't in it.
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
