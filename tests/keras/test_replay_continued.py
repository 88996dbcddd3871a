"""``seq.replay`` of an epoch that other shards, or batches of another size, have begun."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.cli import main
from adapters.keras import Watch, internals

pytestmark = pytest.mark.one_keras

SIZE = 40
CONTINUES = bool(internals.missing_to_continue())


def opened(shard: Any, batch_size: int = 4, **options: Any) -> SafeSequence:
    data = np.arange(SIZE, dtype="float32").reshape(SIZE, 1)
    given = {"shuffle": True, "seed": 5, "workers": 0, **options}
    return SafeSequence((data, data), batch_size, shard=shard, **given)


def saved(batches: int = 3) -> dict[str, int]:
    """The state of three shards in epoch 1."""
    with opened((0, 3)) as sequence:
        sequence.set_epoch(1)
        list(itertools.islice(sequence, batches))
        return sequence.state_dict()


def test_it_is_the_batch_that_was_delivered():
    """In the sequence that has gone on itself, and in another one that is given the state."""
    with opened((0, 1), 5) as sequence, opened((0, 1), 5) as other:
        sequence.load_state_dict(saved())
        first = len(sequence) - 1
        delivered = list(sequence)
        first = len(sequence) - len(delivered)
        assert first > 0
        sequence.load_state_dict(saved())
        for index, (x, _) in enumerate(delivered, first):
            for replay in (
                sequence.replay(1, index),
                sequence.replay(1, index - len(sequence)),
                other.replay(1, index, state=saved()),
                other.replay(1, index, shuffled=True, state=saved()),
            ):
                assert np.array_equal(replay.batch[0], x)
                assert replay.numbers.tolist() == x[:, 0].tolist()
        assert not np.array_equal(other.replay(1, first).batch[0], delivered[0][0])
        # Other epochs are whole.
        assert np.array_equal(sequence.replay(2, 0).batch[0], other.replay(2, 0).batch[0])


def test_what_others_have_begun_is_refused():
    with opened((0, 1), 5) as sequence:
        said = r"batch must be >= 7, .* first 36 samples of epoch 1.*batch_size and shard, got 0"
        with pytest.raises(ValueError, match=said):
            sequence.replay(1, 0, state=saved())
        sequence.load_state_dict(saved())
        with pytest.raises(ValueError, match=said):
            sequence.replay(1, 0)


def test_also_where_they_had_whole_batches_of_these_sizes():
    """One batch of 8 is as many samples as two of 4, and was neither of these."""
    state = {"epoch": 1, "samples": 8}
    with opened((0, 1)) as sequence:
        assert sequence.replay(1, 2, state=state).labels == sequence.replay(1, 2).labels
        for index in (0, 1, -10):
            with pytest.raises(ValueError, match=r"batch must be >= 2, .* first 8 samples"):
                sequence.replay(1, index, state=state)
        sequence.load_state_dict(state)  # Which may be its own.
        assert sequence.replay(1, 0).batch[0].shape == (4, 1)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"epoch": 2, "samples": 4}, "state must be of epoch 1, .* got {'epoch': 2"),
        ({"epoch": 1, "samples": 400}, r"samples in range\(40\)"),
        ({"epoch": 1}, "must be what state_dict"),
    ],
)
def test_a_wrong_state_is_refused(state, said):
    with opened((0, 1)) as sequence, pytest.raises(ValueError, match=said):
        sequence.replay(1, 3, state=state)


def test_equal_shards_see_the_whole_epoch():
    with opened((1, 3)) as sequence:
        expected = [sequence.replay(1, index).labels for index in range(len(sequence))]
        sequence.load_state_dict(saved())
        assert [sequence.replay(1, i).labels for i in range(len(sequence))] == expected


@pytest.mark.skipif(CONTINUES, reason="this Keras can't begin within an epoch")
@pytest.mark.parametrize("shuffle", [True, False])
def test_watch_names_the_state(shuffle, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    watch = Watch(tmp_path / "watch.txt")
    data = np.arange(SIZE, dtype="float32").reshape(SIZE, 1)
    given = {"seed": 5, "workers": 0, "shuffle": shuffle}
    state = {"epoch": 1, "samples": 12}
    with SafeSequence((data, data), 5, shard=(0, 1), **given) as sequence:
        bad = int(sequence.replay(1, len(sequence) - 2, state=state).numbers[3])
        data[bad] = np.nan
        sequence.load_state_dict(state)
        model.fit(sequence, epochs=1, callbacks=[watch], verbose=0)
        (found,) = watch.noticed
        assert (found.epoch, found.batch, found.state) == (1, len(sequence) - 2, state)
    assert (tmp_path / "watch.txt").read_text().strip().endswith("--samples 12")


def test_the_command_takes_the_samples(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(
        "import numpy as np, keras\n"
        "from adapters import SafeSequence\n"
        "model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "x = np.arange(40.0).reshape(40, 1)\n"
        "with SafeSequence((x, x), 5, shuffle=True, seed=5, workers=0) as train:\n"
        "    model.fit(train)\n"
    )
    asked = ["replay", "--epoch", "1", "--batch", "7", "--samples", "36", str(script)]
    assert main(asked) == 0
    table = capsys.readouterr().out.splitlines()[2:]
    with opened((0, 1), 5) as sequence:
        expected = sequence.replay(1, 7, state=saved()).numbers.tolist()
    assert [int(line.split()[1]) for line in table] == expected
