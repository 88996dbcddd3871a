"""What people see of batches: ``replay``, ``Watch``, ``peek``, and what ``fit`` says of them."""

from __future__ import annotations

import itertools
import logging
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import adapters
from adapters import Feature, ImageDecoder, RecordWriter, SafeSequence, open_images, open_records
from adapters.cli import main
from adapters.images import decode
from adapters.keras import Watch
from adapters.packing import pack
from adapters.records import example
from tests.batches import exact
from tests.keras.py_datasets import Shuffling
from tests.keras.recording import BACKEND, NEEDS_RESUME, built_recorder, numbers, sequence_of
from tests.packing.materials import folder, jpeg

pytestmark = pytest.mark.one_keras
SIZE = 40


def noisy(batch: Any, rng: Any) -> Any:
    x, y = batch
    return x + rng.normal(size=x.shape), y


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("photos")
    folder(here / "photos")
    pack(open_images(here / "photos"), here / "photos.tfrecord", format="tfrecord")
    return here


def test_replay():
    x = np.arange(20.0)
    options = {"shuffle": True, "seed": 5, "batch_transform": noisy, "workers": 0}
    with SafeSequence((x, x), 4, **options) as sequence:
        epochs = [list(sequence) for _ in range(3)]
        state = sequence.state_dict()
        for epoch in (0, 2):
            for index in (0, 3):
                replay = sequence.replay(epoch, index)
                np.testing.assert_equal(replay.batch, epochs[epoch][index])
                assert replay.labels == replay.numbers.tolist() == epochs[epoch][index][1].tolist()
        assert sequence.state_dict() == state
        with pytest.raises(IndexError, match=r"row must be in range\(-4, 4\), got 4"):
            replay.before(4)


def test_replay_of_batches_that_fit_permutes():
    recorder = built_recorder()
    with sequence_of(6, workers=0) as sequence:
        recorder.fit(sequence, verbose=0)
        for step in (0, 3, 5):
            found = sequence.replay(0, step, shuffled=True).batch
            assert numbers(found) == recorder.trained[step]


def test_replay_origins_and_crops(photos):
    decoder = ImageDecoder(32, crop="random_resized", flip=True)
    files = open_images(photos / "photos", decode=decoder)
    records = open_records(photos / "photos.tfrecord", decode=decoder)
    both = adapters.concatenate([files, records.select([2, 1])])
    with SafeSequence(both, len(files), seed=3, workers=0) as sequence:
        first, second = sequence.replay(1, 0), sequence.replay(1, 1)
    assert [origin.file for origin in first.origins] == list(files.files)
    assert [(origin.record, Path(origin.file).name) for origin in second.origins] == [
        (2, "photos.tfrecord"),
        (1, "photos.tfrecord"),
    ]
    assert second.origins[0].offset == records._files.locate(2)[0].offsets[2]
    assert np.array_equal(first.before(0), decode(Path(files.files[0]).read_bytes()))
    for replay in (first, second):
        for row, origin in enumerate(replay.origins):
            crop = origin.crop
            cut = replay.before(row)[
                crop.top : crop.top + crop.height, crop.left : crop.left + crop.width
            ]
            # The nearest pixels, not averaged as in the batch: alike, and for no other crop.
            near = cut[np.arange(32) * crop.height // 32][:, np.arange(32) * crop.width // 32]
            near = near[:, ::-1] if crop.flip else near
            assert np.abs(near.astype(int) - replay.batch[0][row]).mean() < 30
    assert f"{first.origins[0].file}" in str(first)
    assert f"{first.origins[0].crop.height}x{first.origins[0].crop.width} at" in str(first)
    assert f"encoded='{len(first.origins[0].encoded)} bytes', crop=Crop(" in str(first.origins)


def test_replay_crop_among_features(photos):
    decoder = ImageDecoder(32, crop="random_resized", flip=True)
    path = photos / "photos.tfrecord"
    features = {"image/class/label": Feature("int64"), "image/encoded": decoder}
    plain, typed = open_records(path, decode=decoder), open_records(path, decode=features)
    expected, found = (
        SafeSequence(source, 4, seed=3, workers=0).replay(1, 0) for source in (plain, typed)
    )
    assert found.origins == expected.origins
    assert found.origins[0].crop is not None
    assert np.array_equal(found.before(0), expected.before(0))


def test_sheet(photos, tmp_path):
    files = open_images(photos / "photos", decode=ImageDecoder(48, crop="random"))
    with SafeSequence(files, 2, workers=0) as sequence:
        replay = sequence.replay(0, 0)
    page = decode(replay.sheet(tmp_path / "sheet.png").read_bytes())
    assert page.shape[1] >= 2 * 128
    after = page[132:260, :128]
    nearest = (2 * np.arange(128) + 1) * 48 // 256
    assert np.array_equal(after, replay.batch[0][0][nearest][:, nearest])
    assert (page[:128, :128] == (255, 0, 0)).all(axis=2).any()  # The frame.


def test_sheet_of_a_damaged_image(tmp_path):
    with RecordWriter(tmp_path / "x.tfrecord", format="tfrecord") as writer:
        for number, image in enumerate([jpeg(0), b"\xff\xd8\xffdamaged"]):
            writer.write(example.encode({"image/encoded": image, "image/class/label": number}))
    source = open_records(tmp_path / "x.tfrecord", decode=ImageDecoder(32))
    with SafeSequence(source, 2, workers=0, on_error="skip") as sequence:
        replay = sequence.replay(0, 0)
    page = decode(replay.sheet(tmp_path / "sheet.png").read_bytes())
    assert (page[132:260] != 255).any()
    assert (replay.numbers.tolist(), replay.replaced) == ([0, 0], {1: 1})
    assert [origin.record for origin in replay.origins] == replay.labels == [0, 0]
    assert str(replay).splitlines()[-1].endswith("in place of 1")


def test_sheet_without_images(tmp_path):
    with (
        SafeSequence(np.arange(8.0), 4, workers=0) as sequence,
        pytest.raises(ValueError, match="must have an array of images"),
    ):
        sequence.replay(0, 0).sheet(tmp_path / "sheet.png")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((0, 2), IndexError, "2"),
        ((-1, 0), ValueError, "epoch must be >= 0, got -1"),
        (("0", 0), TypeError, "epoch must be an integer"),
    ],
)
def test_replay_refused(arguments, error, said):
    with SafeSequence(np.arange(8.0), 4, workers=0) as sequence, pytest.raises(error, match=said):
        sequence.replay(*arguments)


def test_replay_calls_hooks():
    with SafeSequence(Shuffling(4), workers=0) as sequence:
        sequence.set_epoch(2)
        replayed, batch = sequence.replay(2, 1).batch, sequence[1]
    np.testing.assert_array_equal(replayed, batch)
    assert (batch[1] == 2).all()


def test_replay_of_another_epoch_of_the_source():
    with SafeSequence(Shuffling(2), workers=0) as sequence:
        assert sequence.replay(0, 1).numbers.tolist() == [1]
        assert f": {len(sequence[1][0])} samples, " in str(sequence.replay(0, 1))
        with pytest.raises(ValueError, match="epoch must be the current one, 0"):
            sequence.replay(1, 0)


# --- an epoch that other shards, or batches of another size, have begun ---


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


def test_replay_of_a_continued_epoch():
    with opened((0, 1), 5) as sequence, opened((0, 1), 5) as other:
        sequence.load_state_dict(saved())
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
        assert np.array_equal(sequence.replay(2, 0).batch[0], other.replay(2, 0).batch[0])


def test_replay_of_what_others_have_begun():
    with opened((0, 1), 5) as sequence:
        said = r"batch must be >= 7, .* first 36 samples of epoch 1.*batch_size and shard, got 0"
        with pytest.raises(ValueError, match=said):
            sequence.replay(1, 0, state=saved())
        sequence.load_state_dict(saved())
        with pytest.raises(ValueError, match=said):
            sequence.replay(1, 0)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"epoch": 2, "samples": 4}, "state must be of epoch 1, .* got {'epoch': 2"),
        ({"epoch": 1, "samples": 400}, r"samples in range\(40\)"),
        ({"epoch": 1}, "must be what state_dict"),
    ],
)
def test_replay_state_refused(state, said):
    with opened((0, 1)) as sequence, pytest.raises(ValueError, match=said):
        sequence.replay(1, 3, state=state)


def test_replay_with_equal_shards():
    with opened((1, 3)) as sequence:
        expected = [sequence.replay(1, index).labels for index in range(len(sequence))]
        sequence.load_state_dict(saved())
        assert [sequence.replay(1, i).labels for i in range(len(sequence))] == expected


# --- Watch ---


def zero() -> keras.Model:
    """Predicts zero and learns nothing: the loss is the square of the label."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    return model


def watched(labels: Any, watch: Watch) -> None:
    data = np.array(labels, "float32").reshape(-1, 1)
    with SafeSequence((data, data), 1, shuffle=True, seed=2, workers=0) as sequence:
        zero().fit(sequence, epochs=2, callbacks=[watch], verbose=0)
        for found in watch.noticed:
            (label,) = sequence.replay(found.epoch, found.batch).labels or [[]]
            assert label == [data.max()] or np.isnan(label[0])


@pytest.mark.parametrize(
    ("labels", "kind", "started", "script"),
    [
        ([1.0] * 29 + [9.0], "spike", "a launcher", "'my train.py'"),
        ([1.0, np.nan], "not a number", "my train.py", "package.module"),
    ],
)
def test_watch_names_the_batch(labels, kind, started, script, tmp_path, caplog, monkeypatch):
    spec = SimpleNamespace(name="package.module", origin=started)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(sys, "argv", ["my train.py", "--name", "a b"])
    watch = Watch(tmp_path / "made" / "watch.txt")
    with caplog.at_level(logging.WARNING, "adapters"):
        watched(labels, watch)
    (found,) = watch.noticed
    assert found.kind == kind
    line = (tmp_path / "made" / "watch.txt").read_text().strip()
    command = f"adapters replay {script} --epoch {found.epoch} --batch {found.batch}"
    assert line.endswith(f"{command} -- --name 'a b'")
    assert line in caplog.text


def test_watch_file_that_cannot_be_written(tmp_path):
    (tmp_path / "logs").write_text("a file")
    watch = Watch(tmp_path / "logs" / "watch.txt")
    with pytest.raises(OSError, match=r"Watch can write, got .*watch\.txt"):
        watched([1.0, np.nan], watch)
    assert watch.noticed == []


def test_watch_file_that_is_gone(tmp_path, caplog):
    class Removes(Watch):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_begin(epoch, logs)
            shutil.rmtree(tmp_path / "logs", ignore_errors=True)

    watch = Removes(tmp_path / "logs" / "watch.txt")
    with caplog.at_level(logging.WARNING, "adapters"):
        watched([1.0, np.nan], watch)
    assert len(watch.noticed) == 1
    assert "can't be written" in caplog.text


class Steps(keras.Model):
    """Learns nothing; tells the loss of each step, the mean of its inputs, and no mean of these."""

    def call(self, inputs: Any) -> Any:
        return inputs

    def train_step(self, *arguments: Any) -> Any:
        logs = {"loss": keras.ops.mean(arguments[-1][0])}
        return (logs, arguments[0]) if BACKEND == "jax" else logs


def test_watch_a_step_of_ones_own():
    losses = 1 + np.random.default_rng(0).normal(0, 0.1, 60).astype("float32")
    losses[50] = 30
    model, watch = Steps(), Watch()
    model.compile(run_eagerly=True, jit_compile=False)
    with SafeSequence((losses[:, None], losses), 1, workers=0) as sequence:
        model.fit(sequence, shuffle=False, callbacks=[watch], verbose=0)
    (found,) = watch.noticed
    assert (found.batch, found.loss) == (50, pytest.approx(30, rel=1e-2))


@pytest.mark.skipif(BACKEND == "torch", reason="Keras runs one step at a time")
def test_watch_counts_the_steps_of_the_last_execution():
    labels = np.float32([1.0] * 60 + [9.0])[:, None]
    model, watch = zero(), Watch()
    model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=3)
    with SafeSequence((labels, labels), 1, workers=0) as sequence:
        model.fit(sequence, epochs=2, shuffle=False, callbacks=[watch], verbose=0)
    (found,) = watch.noticed
    assert (found.epoch, found.batch, found.loss) == (0, 60, pytest.approx(81, rel=1e-3))


def test_watch_each_fit_anew():
    watch = Watch()
    for _ in range(2):
        watched([1.0, np.nan], watch)
    assert [found.kind for found in watch.noticed] == ["not a number", "not a number"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"path": 3}, TypeError, "path must be a path, got 3"),
        ({"path": "s3://b/watch.txt"}, ValueError, "path must be on a disk of this machine"),
        ({"spike": 1}, ValueError, "spike must be"),
        ({"spike": "2"}, TypeError, "spike must be"),
    ],
)
def test_watch_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Watch(**arguments)


@NEEDS_RESUME
@pytest.mark.parametrize("shuffle", [True, False])
def test_watch_names_the_state(shuffle, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    watch = Watch(tmp_path / "watch.txt")
    data = np.arange(SIZE, dtype="float32").reshape(SIZE, 1)
    given = {"seed": 5, "workers": 0, "shuffle": shuffle}
    state = {"epoch": 1, "samples": 12}
    with SafeSequence((data, data), 5, shard=(0, 1), **given) as sequence:
        bad = int(sequence.replay(1, len(sequence) - 2, state=state).numbers[3])
        data[bad] = np.nan
        sequence.load_state_dict(state)
        zero().fit(sequence, callbacks=[watch], verbose=0)
        (found,) = watch.noticed
        assert (found.epoch, found.batch, found.state) == (1, len(sequence) - 2, state)
    assert (tmp_path / "watch.txt").read_text().strip().endswith("--samples 12")


def test_replay_command_takes_samples(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(
        "import numpy as np, keras\n"
        "from adapters import SafeSequence\n"
        "x = np.arange(40.0).reshape(40, 1)\n"
        "with SafeSequence((x, x), 5, shuffle=True, seed=5, workers=0) as train:\n"
        "    keras.Sequential([keras.layers.Dense(1)]).fit(train)\n"
    )
    asked = ["replay", "--epoch", "1", "--batch", "7", "--samples", "36", str(script)]
    assert main(asked) == 0
    table = capsys.readouterr().out.splitlines()[2:]
    with opened((0, 1), 5) as sequence:
        expected = sequence.replay(1, 7, state=saved()).numbers.tolist()
    assert [int(line.split()[1]) for line in table] == expected


# --- peek, and what fit says of its first batches ---


RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (128, 8, 8, 3), np.uint8)
FLOATS = IMAGES.astype(np.float32)
LABELS = RNG.integers(0, 4, 128)
SORTED = np.sort(LABELS)


def test_peek():
    sequence = SafeSequence((IMAGES, LABELS), 16, shuffle=True, workers=0)
    sequence.set_epoch(2)
    state = sequence.state_dict()
    peek = sequence.peek(2)
    assert sequence.state_dict() == state
    assert len(peek.batches) == 2
    assert exact(peek.batches[1]) == exact(tuple(leaf[:8] for leaf in sequence[1]))
    assert peek.png().startswith(b"\x89PNG")
    assert len(sequence.peek(99).batches) == 8
    with pytest.raises(ValueError, match="batches must be >= 1, got 0"):
        sequence.peek(0)


def test_peek_within_an_epoch():
    sequence = SafeSequence(np.arange(100), 10, shuffle=True, shard=(0, 2), workers=0)
    sequence.load_state_dict({"epoch": 1, "samples": 30})
    peek = sequence.peek(3)
    for index in range(3):
        assert peek.batches[index].tolist() == sequence[index][:8].tolist()


def network(*first: Any) -> Any:
    model = keras.Sequential([*first, keras.layers.Flatten(), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=True)
    return model


def said(caplog: Any, model: Any, y: Any, shuffle: bool = False) -> list[str]:
    """In a training with the validation that most have, whose order is that of the classes."""
    caplog.clear()
    with (
        caplog.at_level(logging.WARNING, "adapters.mistakes"),
        SafeSequence((FLOATS, SORTED), 32, workers=0) as validation,
        SafeSequence((FLOATS, y), 16, workers=0, shuffle=shuffle) as sequence,
    ):
        model.fit(sequence, validation_data=validation, verbose=0)
        model.evaluate(validation, verbose=0)
        model.predict(validation, verbose=0)
    return [record.getMessage() for record in caplog.records if record.name == "adapters.mistakes"]


@pytest.mark.parametrize("first", [[], [keras.layers.RandomFlip()]], ids=["none", "another"])
def test_mistakes_are_said_once(first, caplog):
    lines = said(caplog, network(*first), SORTED)
    assert ["divide by 255" in line for line in lines] == [True, False]
    assert "sorted by class" in lines[1]


def divided() -> Any:
    inputs = keras.Input((8, 8, 3))
    return keras.Model(inputs, inputs / 255.0)


def normalization() -> Any:
    layer = keras.layers.Normalization(mean=0, variance=1)
    return keras.Sequential([keras.Input((8, 8, 3)), layer])


@pytest.mark.parametrize(
    ("first", "y", "shuffle"),
    [
        (lambda: keras.layers.Rescaling(1 / 255), LABELS, False),
        (normalization, SORTED, True),
        (divided, LABELS, False),
    ],
)
def test_no_mistakes(first, y, shuffle, caplog):
    assert said(caplog, network(first()), y, shuffle) == []
