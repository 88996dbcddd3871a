"""``seq.replay`` and ``Watch``: a batch once more, and which one to look at."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import (
    Feature,
    ImageDecoder,
    RecordWriter,
    SafeSequence,
    concatenate,
    open_images,
    open_records,
)
from adapters.images import decode
from adapters.keras import Watch
from adapters.packing import pack
from adapters.records import example
from tests.keras.py_datasets import Shuffling
from tests.keras.recording import BACKEND
from tests.packing.materials import folder, jpeg

pytestmark = pytest.mark.one_keras


def noisy(batch: Any, rng: Any) -> Any:
    """A transform that draws."""
    x, y = batch
    return x + rng.normal(size=x.shape), y


def equal(one: Any, other: Any) -> bool:
    """Whether two batches are the same, to the bit."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of class folders, and a record file beside it."""
    here = tmp_path_factory.mktemp("photos")
    folder(here / "photos")
    pack(open_images(here / "photos"), here / "photos.tfrecord", format="tfrecord")
    return here


def test_it_is_the_batch_that_was_delivered():
    numbers = np.arange(20.0)
    with SafeSequence(
        (numbers, numbers), 4, shuffle=True, seed=5, batch_transform=noisy, workers=0
    ) as sequence:
        epochs = [list(sequence) for _ in range(3)]
        state = sequence.state_dict()
        for epoch in (0, 2):
            for index in (0, 3):
                replay = sequence.replay(epoch, index)
                assert equal(replay.batch, epochs[epoch][index])
                assert replay.labels == replay.numbers.tolist() == epochs[epoch][index][1].tolist()
        assert sequence.state_dict() == state


def test_batches_that_fit_shuffles_are_counted_as_it_does():
    class Keeps(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.losses: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.losses.append(logs["loss"] * (batch + 1) - sum(self.losses))

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    numbers = np.arange(12, dtype="float32").reshape(12, 1)
    with SafeSequence((numbers, numbers), 1, workers=0) as sequence:
        model.fit(sequence, verbose=0, callbacks=[keeps := Keeps()])
        for step in (0, 5, 11):
            replay = sequence.replay(0, step, shuffled=True)
            assert replay.labels == [[pytest.approx(keeps.losses[step] ** 0.5, abs=0.01)]]


def test_what_lies_where_and_what_was_drawn(photos):
    decoder = ImageDecoder(32, crop="random_resized", flip=True)
    files = open_images(photos / "photos", decode=decoder)
    records = open_records(photos / "photos.tfrecord", decode=decoder)
    both = concatenate([files, records.select([2, 1])])
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


@pytest.mark.parametrize("outputs", [("image/encoded", "image/class/label"), None])
def test_the_box_of_an_image_among_features(photos, outputs):
    decoder = ImageDecoder(32, crop="random_resized", flip=True)
    path = photos / "photos.tfrecord"
    features = {"image/class/label": Feature("int64"), "image/encoded": decoder}
    with (
        SafeSequence(open_records(path, decode=decoder), 4, seed=3, workers=0) as plain,
        SafeSequence(
            open_records(path, decode=features, outputs=outputs), 4, seed=3, workers=0
        ) as typed,
    ):
        expected, found = plain.replay(1, 0), typed.replay(1, 0)
    assert found.origins == expected.origins
    assert found.origins[0].crop is not None
    assert np.array_equal(found.before(0), expected.before(0))


def test_a_sheet_shows_images_before_and_after_the_transforms(photos, tmp_path):
    files = open_images(photos / "photos", decode=ImageDecoder(48, crop="random"))
    with SafeSequence(files, 2, workers=0) as sequence:
        replay = sequence.replay(0, 0)
    page = decode(replay.sheet(tmp_path / "sheet.png").read_bytes())
    assert page.shape[1] >= 2 * 128
    after = page[132:260, :128]
    nearest = (2 * np.arange(128) + 1) * 48 // 256
    assert np.array_equal(after, replay.batch[0][0][nearest][:, nearest])
    assert (page[:128, :128] == (255, 0, 0)).all(axis=2).any()  # The frame.


@pytest.mark.parametrize("crop", [None, "random_resized"])
def test_a_damaged_image_that_was_replaced_has_no_before(crop, tmp_path):
    with RecordWriter(tmp_path / "x.tfrecord", format="tfrecord") as writer:
        for number, image in enumerate([jpeg(0), b"\xff\xd8\xffdamaged"]):
            writer.write(example.encode({"image/encoded": image, "image/class/label": number}))
    source = open_records(tmp_path / "x.tfrecord", decode=ImageDecoder(32, crop=crop))
    with SafeSequence(source, 2, workers=0, on_error="skip") as sequence:
        page = decode(sequence.replay(0, 0).sheet(tmp_path / "sheet.png").read_bytes())
    assert (page[132:260] != 255).any()


def test_a_sheet_without_images_is_refused(tmp_path):
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
def test_wrong_arguments(arguments, error, said):
    with SafeSequence(np.arange(8.0), 4, workers=0) as sequence, pytest.raises(error, match=said):
        sequence.replay(*arguments)


def test_the_hooks_of_the_current_epoch_are_called_first():
    with SafeSequence(Shuffling(4), workers=0) as sequence:
        sequence.set_epoch(2)
        replayed, batch = sequence.replay(2, 1).batch, sequence[1]
    np.testing.assert_array_equal(replayed, batch)
    assert (batch[1] == 2).all()


def test_epochs_of_the_source_s_own_are_refused():
    class Own(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return np.zeros((2, 1)), np.zeros((2, 1))

        def on_epoch_end(self) -> None:
            """Changes what batches are."""

    with SafeSequence(Own(), workers=0) as sequence:
        assert sequence.replay(0, 1).numbers.tolist() == [1]
        with pytest.raises(ValueError, match="epoch must be the current one, 0"):
            sequence.replay(1, 0)


# --- Watch ---


def watched(labels: Any, watch: Watch) -> None:
    """Train on a label for each batch, whose loss is its square."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    data = np.array(labels, "float32").reshape(-1, 1)
    with SafeSequence((data, data), 1, shuffle=True, seed=2, workers=0) as sequence:
        model.fit(sequence, epochs=2, callbacks=[watch], verbose=0)
        for found in watch.noticed:
            (label,) = sequence.replay(found.epoch, found.batch).labels or [[]]
            assert label == [data.max()] or np.isnan(label[0])


def identity() -> keras.Model:
    """Learns nothing; its loss is the mean of its inputs."""
    inputs = keras.Input((1,))
    model = keras.Model(inputs, keras.layers.Dense(1, use_bias=False)(inputs))
    model.set_weights([np.ones((1, 1), "float32")])
    model.compile(keras.optimizers.SGD(0.0), loss="mae")
    return model


@pytest.mark.parametrize(("label", "kind"), [(9.0, "spike"), (np.nan, "not a number")])
def test_the_batch_is_named_that_stands_out(label, kind, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["my train.py", "--name", "a b"])
    watch = Watch(tmp_path / "watch.txt")
    with caplog.at_level(logging.WARNING, "adapters"):
        watched([1.0] * 29 + [label], watch)
    (found,) = watch.noticed
    assert found.kind == kind
    line = (tmp_path / "watch.txt").read_text().strip()
    command = f"adapters replay 'my train.py' --epoch {found.epoch} --batch {found.batch}"
    assert line.endswith(f"{command} -- --name 'a b'")
    assert line in caplog.text


def test_its_folder_is_made(tmp_path):
    watched([1.0] * 29 + [np.nan], Watch(tmp_path / "logs" / "watch.txt"))
    assert "not a number" in (tmp_path / "logs" / "watch.txt").read_text()


def test_a_file_that_cannot_be_written_is_told_before_the_training(tmp_path):
    (tmp_path / "logs").write_text("a file")
    watch = Watch(tmp_path / "logs" / "watch.txt")
    with pytest.raises(OSError, match=r"Watch can write, got .*watch\.txt"):
        watched([1.0] * 29 + [np.nan], watch)
    assert watch.noticed == []


def test_a_training_outlives_its_file(tmp_path, caplog):
    class Removes(Watch):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_begin(epoch, logs)
            if (tmp_path / "logs").exists():
                (tmp_path / "logs").rmdir()

    watch = Removes(tmp_path / "logs" / "watch.txt")
    with caplog.at_level(logging.WARNING, "adapters"):
        watched([1.0] * 29 + [np.nan], watch)
    assert len(watch.noticed) == 1
    assert "can't be written" in caplog.text


def test_losses_as_usual_are_no_news(tmp_path):
    watch = Watch(tmp_path / "watch.txt")
    watched([1.0, 2.0] * 15, watch)
    assert watch.noticed == []
    assert not (tmp_path / "watch.txt").exists()


class Uneven(keras.utils.PyDataset):
    """Batches of 4, but one of 200; the loss of a sample is its value."""

    def __init__(self, large: float) -> None:
        super().__init__()
        self._large = large

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Any:
        rows, value = (200, self._large) if number == 30 else (4, 1.0)
        return np.full((rows, 1), value, "float32"), np.zeros((rows, 1), "float32")


@pytest.mark.parametrize(("large", "noticed"), [(1.5, 0), (100.0, 1)])
def test_a_batch_of_another_size_counts_by_its_samples(large, noticed):
    watch, model = Watch(), identity()
    with SafeSequence(Uneven(large), workers=0) as sequence:
        model.fit(sequence, epochs=1, shuffle=False, callbacks=[watch], verbose=0)
    assert [found.batch for found in watch.noticed] == noticed * [30]
    assert all(found.loss == pytest.approx(large, rel=1e-3) for found in watch.noticed)


def test_a_short_last_batch_counts_by_its_samples():
    x = np.ones((32 * 30 + 1, 1), "float32")
    x[-1] = 100
    watch, model = Watch(), identity()
    with SafeSequence((x, 0 * x), 32, workers=0) as sequence:
        model.fit(sequence, epochs=1, shuffle=False, callbacks=[watch], verbose=0)
    (found,) = watch.noticed
    assert (found.batch, found.loss) == (30, pytest.approx(100, rel=1e-2))


class Steps(keras.Model):
    """Learns nothing; a step's loss is the mean of its inputs.

    Args:
        averaged: Tell the mean of an epoch's losses, as a metric of its own has it.
    """

    def __init__(self, averaged: bool) -> None:
        super().__init__()
        self.mean = keras.metrics.Mean(name="total")
        self.averaged = averaged
        self.compile(run_eagerly=True, jit_compile=False)

    @property
    def metrics(self) -> list[Any]:
        return [self.mean]

    def call(self, inputs: Any) -> Any:
        return inputs

    def train_step(self, *arguments: Any) -> Any:
        loss = keras.ops.mean(arguments[-1][0])
        if BACKEND != "jax":
            if self.averaged:
                self.mean.update_state(loss)
            return {"loss": self.mean.result() if self.averaged else loss}
        trained, others, optimizer, means = arguments[0]
        if self.averaged:
            means = self.mean.stateless_update_state(means, loss)
            loss = self.mean.stateless_result(means)
        return {"loss": loss}, (trained, others, optimizer, means)


@pytest.mark.parametrize("averaged", [False, True])
def test_a_step_of_ones_own_may_tell_the_loss_of_each_batch_or_their_mean(averaged):
    losses = 1 + np.random.default_rng(0).normal(0, 0.1, 200).astype("float32")
    losses[150] = 30
    watch = Watch()
    with SafeSequence((losses[:, None], losses), 1, workers=0) as sequence:
        Steps(averaged).fit(sequence, epochs=2, shuffle=False, callbacks=[watch], verbose=0)
    (found,) = watch.noticed
    assert (found.batch, found.loss) == (150, pytest.approx(30, rel=1e-2))


def test_each_fit_is_watched_anew():
    watch = Watch()
    for place in (2, 4):
        x = np.ones((8, 1), "float32")
        x[place] = np.nan
        with SafeSequence((x, 0 * x), 1, workers=0) as sequence:
            identity().fit(sequence, epochs=1, shuffle=False, callbacks=[watch], verbose=0)
    assert [found.batch for found in watch.noticed] == [2, 4]


def test_a_wrong_path():
    with pytest.raises(TypeError, match="path must be that of a file"):
        Watch(3)


@pytest.mark.parametrize(("spike", "error"), [(1, ValueError), ("2", TypeError)])
def test_a_wrong_spike(spike, error):
    with pytest.raises(error, match="spike must be"):
        Watch(spike=spike)
