"""``Resume`` of Gluon, and ``loader.replay``: a training goes on, and a batch is seen again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.contrib.estimator import Estimator
from mxnet.gluon.data import SequentialSampler

from adapters import ImageDecoder, gluon_loader, open_images
from adapters.cli import main
from adapters.gluon import Resume
from adapters.images import decode
from adapters.resuming import Lock
from tests.gluon.data_sets import numpy_semantics
from tests.packing.materials import folder

SIZE, BATCH_SIZE, EPOCHS = 24, 4, 3
BATCHES = SIZE // BATCH_SIZE


class Killed(Exception):
    """In the place of a signal."""


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    """A transform that draws."""
    data, label = batch
    return data + float(rng.random()), label


def made(workers: int = 0) -> tuple[Any, Any, Any]:
    """Loader, net and trainer, made anew; the net doesn't know its shapes yet."""
    mx.random.seed(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZE, 5)).astype("float32")
    loader = gluon_loader(
        (x, x[:, :1] * 2),
        BATCH_SIZE,
        shuffle=True,
        seed=4,
        num_workers=workers,
        batch_transform=noisy,
    )
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(6, "relu"), mx.gluon.nn.BatchNorm(), mx.gluon.nn.Dropout(0.5))
    net.add(mx.gluon.nn.Dense(1))
    net.initialize()
    trainer = mx.gluon.Trainer(
        net.collect_params(),
        "adam",
        {"learning_rate": 0.05, "lr_scheduler": mx.lr_scheduler.FactorScheduler(3, 0.9)},
    )
    return loader, net, trainer


def train(path: Path | None, kill_at: int | None = None, workers: int = 0, **options: Any) -> Any:
    """A plain loop; the loss of each batch by (epoch, number of the batch in this run)."""
    loader, net, trainer = made(workers)
    losses, loss_of = [], mx.gluon.loss.L2Loss()
    with loader:
        resume = Resume(path or "unused", loader, seed=7, **{"every": "1 batch", **options})
        if path is None:
            resume._save = lambda: None  # Nothing is kept of the run that is compared with.
        for epoch in resume.epochs(EPOCHS, net, trainer):
            for data, label in loader:
                if len(losses) == kill_at:
                    raise Killed
                with mx.autograd.record():
                    loss = loss_of(net(data), label).mean()
                loss.backward()
                trainer.step(1)
                losses.append((epoch, loss.asnumpy().item()))
                resume.step()
                resume._writer.wait()  # So that each batch is followed by a file.
    return losses


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kill_at", [0, 1, BATCHES - 1, BATCHES, BATCHES + 3, EPOCHS * BATCHES - 1])
def test_a_loop_goes_on_with_the_same_losses(kill_at, workers, tmp_path):
    expected = train(None)
    with pytest.raises(Killed):
        train(tmp_path, kill_at, workers)
    continued = train(tmp_path, workers=2 - workers)
    assert continued == expected[-len(continued) :]
    assert len(continued) == len(expected) - kill_at


def test_a_loop_goes_on_under_numpy_semantics(tmp_path):
    with numpy_semantics():
        expected = train(None)
        with pytest.raises(Killed):
            train(tmp_path, BATCHES + 3)
        assert train(tmp_path) == expected[BATCHES + 3 :]


def test_a_training_that_has_ended_stays_there(tmp_path):
    expected = train(tmp_path)
    assert len(expected) == EPOCHS * BATCHES
    assert train(tmp_path) == []


def test_values_of_ones_own_are_kept(tmp_path):
    loader, net, trainer = made()
    with loader:
        resume = Resume(tmp_path, loader, "1 epoch")
        for epoch in resume.epochs(2, net, trainer):
            for data, _ in loader:
                net(data)
                resume.step()
            resume.extra["best"] = epoch / 2
        again = Resume(tmp_path, loader)
        assert list(again.epochs(2, net, trainer)) == []
    assert again.extra == {"best": 0.5}


def estimated(path: Path, kill_at: int | None = None) -> Any:
    """An Estimator's losses, batch by batch."""
    loader, net, trainer = made()
    seen: list[Any] = []

    class Notes(mx.gluon.contrib.estimator.BatchEnd):
        def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            if len(seen) == kill_at:
                raise Killed
            seen.append(float(kwargs["loss"][0].mean().asscalar()))

    with loader:
        estimator = Estimator(
            net, mx.gluon.loss.L2Loss(), train_metrics=mx.metric.MAE(), trainer=trainer
        )
        estimator.logger.disabled = True
        resume = Resume(path, loader, "1 batch", seed=7)
        try:
            estimator.fit(loader, epochs=EPOCHS, event_handlers=[Notes(), resume])
        except Killed:
            resume._writer.wait()
    return seen


def test_an_estimator_goes_on_with_the_same_losses(tmp_path):
    expected = estimated(tmp_path / "whole")
    killed = estimated(tmp_path / "killed", BATCHES + 3)
    continued = estimated(tmp_path / "killed")
    assert len(expected) == EPOCHS * BATCHES
    assert killed == expected[: len(killed)]
    assert BATCHES < len(continued) < EPOCHS * BATCHES
    assert continued == expected[-len(continued) :]


def test_an_estimators_training_that_has_ended_stays_there(tmp_path):
    assert len(estimated(tmp_path)) == EPOCHS * BATCHES
    files = sorted(tmp_path.iterdir())
    for _ in range(2):
        assert estimated(tmp_path) == []
    assert sorted(tmp_path.iterdir()) == files


def test_more_epochs_go_on_where_an_ended_training_was(tmp_path):
    """With MXNet's own handlers, which see an epoch without batches."""
    loader, net, trainer = made()
    validation, _, _ = made()
    with loader, validation:
        estimator = Estimator(net, mx.gluon.loss.L2Loss(), trainer=trainer)
        estimator.logger.disabled = True
        resume, delivered = Resume(tmp_path, loader), []
        for epochs in (1, 1, 2):
            estimator.fit(loader, validation, epochs, [resume])
            assert loader.epoch == epochs
            delivered.append(loader.waits.batches)
        assert len(list(loader)) == BATCHES
    assert delivered == [BATCHES, BATCHES, 2 * BATCHES]


def test_another_net_is_refused(tmp_path):
    train(tmp_path)
    loader, _, _ = made()
    net = mx.gluon.nn.Dense(1)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam")
    with loader, pytest.raises(ValueError, match="net must be made as it was"):
        list(Resume(tmp_path, loader).epochs(1, net, trainer))


def test_another_loader_is_refused(tmp_path):
    with pytest.raises(TypeError, match="loader must be one of gluon_loader"):
        Resume(tmp_path, mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset([1, 2]), 1))


# --- replay ---


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a.asnumpy(), b.asnumpy()) for a, b in zip(one, other))


def test_a_batch_is_seen_again():
    loader, _, _ = made()
    with loader:
        epochs = [list(loader) for _ in range(2)]
        state = loader.state_dict()
        for epoch in (0, 1):
            for index in (0, BATCHES - 1):
                replay = loader.replay(epoch, index)
                assert same(replay.batch, epochs[epoch][index])
                assert f"float32 ({BATCH_SIZE}, " in str(replay)
                assert replay.labels == epochs[epoch][index][1].asnumpy().tolist()
                assert len(set(replay.numbers.tolist())) == BATCH_SIZE
        assert loader.state_dict() == state
        with pytest.raises(IndexError, match=f"got {BATCHES}"):
            loader.replay(0, BATCHES)


@pytest.mark.parametrize(
    "arguments",
    [{"seed": 1}, {"seed": 1, "last_batch": "rollover"}, {"sampler": SequentialSampler(10)}],
    ids=["order", "rollover", "sampler"],
)
def test_batches_are_counted_from_the_end_too(arguments):
    with gluon_loader(np.arange(10), 3, num_workers=0, **arguments) as loader:
        list(loader)
        batches = [batch.asnumpy().tolist() for batch in loader]
        count = len(batches)
        for index in (-1, -count):
            assert loader.replay(1, index).batch.asnumpy().tolist() == batches[index]
        assert loader.replay(1, -1).index == count - 1
        with pytest.raises(IndexError, match=rf"range\({-count}, {count}\), got {-count - 1}"):
            loader.replay(1, -count - 1)


def test_batches_of_a_sampler_without_a_length_are_counted_from_the_beginning():
    class Lists:
        def __iter__(self):
            return iter([[1, 2], [3]])

    with gluon_loader(np.arange(10), batch_sampler=Lists(), num_workers=0) as loader:
        assert loader.replay(0, 1).batch.asnumpy().tolist() == [3]
        with pytest.raises(IndexError, match="batch must be >= 0 where"):
            loader.replay(0, -1)


def test_a_batch_is_seen_again_of_a_pass_that_other_shards_have_begun():
    state = {"epoch": 1, "samples": 12}

    def opened() -> Any:
        return gluon_loader(np.arange(40.0), 5, True, seed=3, shard=(0, 1), num_workers=0)

    with opened() as loader, opened() as other:
        loader.load_state_dict(state)
        delivered = [batch.asnumpy() for batch in loader]
        first = len(loader) - len(delivered)
        loader.load_state_dict(state)
        for index, batch in enumerate(delivered, first):
            for replay in (loader.replay(1, index), other.replay(1, index, state=state)):
                assert np.array_equal(replay.batch.asnumpy(), batch)
                assert replay.numbers.tolist() == batch.tolist()
        with pytest.raises(ValueError, match=f"batch must be >= {first}, as the first 12 samples"):
            loader.replay(1, first - 1)
        with pytest.raises(ValueError, match="state must be of epoch 0"):
            other.replay(0, 0, state=state)
        with pytest.raises(ValueError, match="batch must be >= 2, as the first 10 samples"):
            other.replay(1, 1, state={"epoch": 1, "samples": 10})


def test_what_is_drawn_anew_in_every_run_is_refused():
    with (
        gluon_loader(np.arange(8.0), 4, shuffle=True) as loader,
        pytest.raises(ValueError, match="replay: no batch can be computed again"),
    ):
        loader.replay(0, 0)


def test_files_and_crops_of_images(tmp_path):
    folder(tmp_path / "photos")
    decoder = ImageDecoder(32, crop="random_resized", flip=True)
    source = open_images(tmp_path / "photos", decode=decoder)
    with gluon_loader(source, 2, shuffle=True, seed=1, num_workers=0) as loader:
        replay = loader.replay(2, 0)
    for row, number in enumerate(replay.numbers.tolist()):
        origin = replay.origins[row]
        assert origin.file == source.files[number]
        crop, whole = origin.crop, replay.before(row)
        assert np.array_equal(whole, decode(Path(origin.file).read_bytes()))
        cut = whole[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
        near = cut[np.arange(32) * crop.height // 32][:, np.arange(32) * crop.width // 32]
        near = near[:, ::-1] if crop.flip else near
        assert np.abs(near.astype(int) - replay.batch[0][row].asnumpy()).mean() < 30


# --- what goes on is what was saved ---


def begun(folder: Path, optimizer: str = "sgd", **options: Any) -> Resume:
    """A training of one epoch, in a folder."""
    given = {"prefix": "head_", "seed": 7, "dtype": "float32", "size": SIZE, **options}
    data = {"batch_size": BATCH_SIZE, "shuffle": True, **options.get("data", {})}
    x = np.ones((given["size"], 3), given["dtype"])
    net = mx.gluon.nn.Dense(1, in_units=3, prefix=given["prefix"], dtype=given["dtype"])
    net.initialize()
    rate = {"learning_rate": given.get("rate", 0.1)}
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, rate)
    data = {"seed": 4, "num_workers": given.get("workers", 0), **data}
    with gluon_loader(x, **data) as loader:
        resume = Resume(folder, loader, seed=given["seed"])
        for _ in resume.epochs(given.get("epochs", 1), net, trainer):
            for batch in loader:
                with mx.autograd.record():
                    loss = net(batch).mean()
                loss.backward()
                trainer.step(1)
                resume.step()
    return resume


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"optimizer": "adam"}, "the optimizer of trainer must be 'SGD', .* got 'Adam'"),
        ({"prefix": "tail_"}, r"the parameters of net must be \[\('head_weight'.*tail_weight"),
        ({"dtype": "float64"}, "the parameters of net must be .*float32.*float64"),
        ({"seed": 8}, "seed of Resume must be 7, .* got 8"),
        ({"size": SIZE + 1}, "the number of samples must be 24, .* got 25"),
        ({"data": {"batch_size": 2}}, "batch_size must be 4, .* got 2"),
        ({"data": {"shuffle": False}}, "shuffle must be True, .* got False"),
        ({"data": {"last_batch": "rollover"}}, "batch_sampler must be 'OrderBatchSampler'"),
    ],
)
def test_what_differs_is_named_with_both_values(after, said, tmp_path):
    begun(tmp_path)
    with pytest.raises(ValueError, match=f"{said}.*new folder"):
        begun(tmp_path, **{"epochs": 2, **after})


def test_what_may_change_is_not_refused(tmp_path):
    begun(tmp_path, prefix="dense0_")
    begun(tmp_path, prefix="dense7_", rate=0.5, workers=1, epochs=2)


# --- what can't be saved ---


@pytest.mark.parametrize("store", ["dist_sync", "dist_device_sync", "dist_async"])
def test_states_that_are_on_servers_are_refused_before_anything_is_trained(store, tmp_path):
    loader, net, _ = made()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", kvstore=store)
    said = f"not on the servers .* got kvstore='{store}': give Trainer.*update_on_kvstore=False"
    with loader, pytest.raises(ValueError, match=said):
        next(Resume(tmp_path, loader).epochs(1, net, trainer))
    assert [*tmp_path.iterdir()] == []


def test_states_that_turn_out_to_be_on_servers_are_refused(tmp_path, monkeypatch):
    def elsewhere(*_: Any) -> None:
        raise AssertionError("Cannot save states for distributed training")

    monkeypatch.setattr(mx.gluon.Trainer, "save_states", elsewhere)
    with pytest.raises(ValueError, match=r"distributed kvstore, got Cannot save states"):
        begun(tmp_path)


def test_a_trainer_that_cant_write_is_a_warning_and_the_last_file_stays(
    tmp_path, monkeypatch, caplog
):
    begun(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(self: Any, path: str) -> None:
        Path(path).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mx.gluon.Trainer, "save_states", full)
    begun(tmp_path, epochs=2)
    assert "the training could not be saved ([Errno 28] No space left" in caplog.text
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.undo()
    begun(tmp_path, epochs=2)
    assert max(before).name < max(tmp_path.iterdir()).name


def test_states_take_no_file_on_a_disk(tmp_path, monkeypatch):
    """So that no full one matters, and a killed process leaves none behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "isn't there"))
    begun(tmp_path / "run")
    begun(tmp_path / "run", epochs=2)


# --- adapters replay ---

_SCRIPT = """
import sys
import mxnet as mx, numpy as np
from adapters import gluon_loader
from adapters.gluon import Resume

net = mx.gluon.nn.Dense(1, in_units=1)
net.initialize()
trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
x = np.arange(40, dtype="float32").reshape(40, 1)
with gluon_loader((x, x), 5, True, seed=3, num_workers=0) as loader:
    resume = Resume(sys.argv[1], loader, "1 batch")
    for epoch in resume.epochs(1, net, trainer):
        for data, label in loader:
            resume.step()
"""


def test_a_training_that_is_under_way_is_no_obstacle_and_nothing_is_written(tmp_path, capsys):
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(_SCRIPT)
    training = Lock(folder)
    held = threading.Thread(target=training.take, args=(0,))
    held.start()
    held.join(30)
    try:
        before = sorted(folder.iterdir())
        asked = ["replay", "--epoch", "4", "--batch", "2", str(script), "--", str(folder)]
        assert main(asked) == 0
        assert sorted(folder.iterdir()) == before
        assert training.writes
    finally:
        training.release()
    table = capsys.readouterr().out.splitlines()[2:]
    x = np.arange(40, dtype="float32").reshape(40, 1)
    with gluon_loader((x, x), 5, True, seed=3, num_workers=0) as loader:
        expected = loader.replay(4, 2).numbers.tolist()
    assert [int(line.split()[1]) for line in table] == expected
