"""Parts of sources, and sources put together, in ``SafeSequence``."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from adapters import RecordWriter, SafeSequence, concatenate, open_records, split
from tests.batches import exact
from tests.keras.recording import KINDS_OF_WORKERS, Recorder
from tests.sources.every_kind import KINDS, SIZE, X, Y

pytestmark = [pytest.mark.one_backend, pytest.mark.usefixtures("sent_by_value")]

# Of each way that batches are made in; whatever SafeSequence itself takes.
SOURCES = {
    "arrays": lambda _: split((X, Y), [0.8], stratify=Y % 2)[0],
    "a dict": lambda _: split({"x": X, "y": (Y, None)}, [0.8])[0],
    "a list": lambda _: split([(x, y) for x, y in zip(X, Y)], [0.8], groups=Y // 30)[0],
    "records": lambda folder: split(KINDS["random boxes"](folder), [0.8])[0],
    "several": lambda folder: concatenate([(X, Y), [(X[0], Y[0])] * 3]).select(range(2, 20)),
}
every_source = pytest.mark.parametrize("name", SOURCES)


@pytest.fixture
def source(name, tmp_path):
    return SOURCES[name](tmp_path)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
@every_source
def test_batches_are_the_same_for_all_workers_and_after_a_break(source, workers):
    arguments = {"shuffle": True, "seed": 4}
    with SafeSequence(source, 4, workers=0, **arguments) as sequence:
        expected = [[exact(batch) for batch in sequence] for _ in range(2)]
    with SafeSequence(source, 4, **arguments, **workers) as sequence:
        assert [[exact(batch) for batch in sequence] for _ in range(2)] == expected
        sequence.load_state_dict({"epoch": 1, "batch": 2})
        assert [exact(batch) for batch in sequence] == expected[1][2:]


def test_fit_and_validation_of_the_parts_of_a_split():
    x, y = np.arange(40, dtype="float32").reshape(-1, 1), np.arange(40, dtype="float32")
    train, test = split((x, y), [0.75, 0.25], seed=3)
    model = Recorder()
    model.fit(SafeSequence(train, 10), validation_data=SafeSequence(test, 10), verbose=0)
    seen = [np.sort(np.concatenate([y for _, y in batches])).tolist() for batches in _seen(model)]
    assert sorted(seen[0] + seen[1]) == list(range(40))
    assert seen[1] == sorted(label for _, label in test)


def _seen(model):
    return [
        [batch[:2] for batch in batches] for batches in (model.lists.trained, model.lists.tested)
    ]


def test_it_says_how_a_part_is_read(capsys):
    SafeSequence(split((X, Y), [0.5])[0], 4).explain()
    assert f"12 of {SIZE}: arrays, gathered a batch at a time" in capsys.readouterr().out


@pytest.mark.parametrize("make", [split, lambda source, _: concatenate([X, source])])
def test_a_sequence_of_whole_batches_is_refused(make):
    whole = SafeSequence((X, Y), 4)
    with pytest.raises(
        TypeError, match="single samples, got a SafeSequence, whose items are whole"
    ):
        make(whole, [0.5])

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return X, Y

    with pytest.raises(TypeError, match="got a Batches, whose items are whole batches: give what"):
        make(Batches(), [0.5])


class Drawing:
    """Draws from NumPy's own generator."""

    def __len__(self):
        return 8

    def __getitem__(self, number):
        return np.float32(number), np.float32(np.random.rand())


def drawn(payload):
    """Decodes a record, and draws from NumPy's own generator."""
    return np.float32(len(payload)), np.float32(np.random.rand())


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_what_a_function_that_decodes_draws_is_seeded(workers, tmp_path):
    with RecordWriter(tmp_path / "a.rec", format="recordio") as writer:
        for number in range(8):
            writer.write(b"x" * number)
    source = open_records(tmp_path / "a.rec", decode=drawn)
    with SafeSequence(source, 4, workers=0) as sequence:
        expected = [exact(batch) for batch in sequence]
    np.random.seed(5)
    with SafeSequence(source.select(range(8)), 4, **workers) as sequence:
        assert [exact(batch) for batch in sequence] == expected


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_what_a_data_set_draws_is_seeded_in_a_part_of_it_too(workers):
    with SafeSequence(concatenate([Drawing()]), 4, workers=0) as sequence:
        expected = [exact(batch) for batch in sequence]
    with SafeSequence(split(Drawing(), [1.0])[0], 4, **workers) as sequence:
        assert [exact(batch) for batch in sequence] == expected
