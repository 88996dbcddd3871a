"""``adapters.diagnose`` leaves the loader and the process as they were."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence, diagnose
from adapters.keras.diagnosed import FRONT_END
from tests.diagnosis.planted import SECONDS, Breaking, Numbers, found, quick_step
from tests.plans import notes_of

INLINE = pytest.param({"workers": 0}, id="inline")
THREADS = pytest.param({"workers": 2}, id="threads")
# Each examination starts them four times.
PROCESSES = pytest.param(
    {"workers": 1, "use_multiprocessing": True}, id="processes", marks=pytest.mark.full
)


def batches_of(sequence: SafeSequence) -> list[list[float]]:
    return [batch[0].ravel().tolist() for batch in sequence]


@pytest.mark.parametrize("workers", [INLINE, THREADS])
def test_the_sequence_goes_on_where_it_stood(workers):
    options = {"shuffle": True, **workers}
    with (
        SafeSequence(Numbers(), 8, **options) as sequence,
        SafeSequence(Numbers(), 8, **options) as untouched,
    ):
        state = {"epoch": 2, "batch": 3}
        for each in (sequence, untouched):
            each.load_state_dict(state)
        diagnose(sequence, quick_step, seconds=SECONDS)
        assert sequence.state_dict() == state
        assert batches_of(sequence) == batches_of(untouched)


def test_a_pass_that_is_under_way_goes_on():
    with SafeSequence(Numbers(), 8, shuffle=True, workers=2) as sequence:
        whole = batches_of(sequence)
        sequence.set_epoch(0)
        batches = iter(sequence)
        parts = [next(batches)[0].ravel().tolist() for _ in range(3)]
        diagnose(sequence, quick_step, seconds=SECONDS)
        assert sequence.state_dict() == {"epoch": 0, "batch": 3}
        assert parts + [batch[0].ravel().tolist() for batch in batches] == whole


def test_the_waits_of_the_sequence_are_its_own():
    with SafeSequence(Numbers(), 8, workers=0) as sequence:
        diagnose(sequence, quick_step, seconds=SECONDS)
        assert sequence.waits.batches == 0


def test_a_twin_stands_where_its_sequence_does():
    with SafeSequence(Numbers(), 8, workers=0, shuffle=True) as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 2})
        with FRONT_END.twin(sequence) as twin:
            assert batches_of(twin) == batches_of(sequence)


def test_a_twin_that_is_closed_leaves_its_sequence_open():
    with SafeSequence(Numbers(), 8, workers=2) as sequence:
        FRONT_END.twin(sequence).close()
        assert len(batches_of(sequence)) == 8


def test_the_random_state_of_the_process_is_put_back():
    def draws(sample: Any) -> Any:
        return np.float32([random.random() + np.random.rand()])

    random.seed(1)
    np.random.seed(1)
    found(Numbers(), lambda batch: np.random.rand(), transform=draws)
    drawn = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    assert drawn == (random.random(), np.random.rand())


# --- what goes wrong ---


@pytest.mark.parametrize("workers", [INLINE, THREADS, PROCESSES])
def test_an_exception_arrives_as_its_own_type(workers):
    with pytest.raises(KeyError, match="sample 3") as caught:
        found(Breaking(), **workers)
    assert "in sample 3" in notes_of(caught.value)


@pytest.mark.parametrize("workers", [INLINE, THREADS, PROCESSES])
def test_ctrl_c_ends_the_examination(workers):
    """And leaves nothing behind, as after every test."""

    def interrupted(batch: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found(Numbers(), interrupted, **workers)


def test_an_exception_of_the_step_arrives():
    with pytest.raises(ZeroDivisionError):
        found(Numbers(), lambda batch: 1 / 0)


@pytest.mark.parametrize("name", ["seconds", "t"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_times_must_be_above_nothing(name, value):
    with pytest.raises(ValueError, match=f"{name} must be > 0 seconds, got {value!r}"):
        diagnose([np.zeros(3)], quick_step, **{name: value})


def test_a_step_is_a_function_or_a_model():
    with pytest.raises(TypeError, match="step must be a function of a batch or a compiled Keras"):
        diagnose([np.zeros(3)], 7)


def test_a_copy_without_a_step_makes_no_sense():
    with pytest.raises(ValueError, match="to_device must be None unless step is a function"):
        diagnose([np.zeros(3)], to_device=lambda batch: batch)


def test_a_loader_must_be_one():
    with pytest.raises(TypeError, match=r"loader must be a SafeSequence, .* got int"):
        diagnose(7, quick_step)


@pytest.mark.parametrize("batches", [[], (np.zeros(3) for _ in range(4))], ids=["none", "once"])
def test_a_loader_must_have_batches_each_time(batches):
    with pytest.raises(ValueError, match="loader must give batches each time"):
        diagnose(batches, quick_step, seconds=SECONDS)
