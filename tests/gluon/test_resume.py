"""``state_dict``, ``Resume``, ``replay``: what goes on, and what is seen again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.contrib.amp.loss_scaler import LossScaler
from mxnet.gluon.contrib.estimator import Estimator
from mxnet.gluon.data import ArrayDataset, FilterSampler, Sampler, SequentialSampler
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight

from adapters import gluon_loader
from adapters.gluon import Resume
from adapters.resuming.lock import Lock
from tests.gluon.data_sets import nd, numpy_semantics, outline, pixels
from tests.gluon.executors import THREADS, arguments_of, opened

SIZE = 23
NUMBERS = np.arange(SIZE)


class Seeded(Sampler):
    """A sampler of the user's own, whose order depends on its epoch."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)

    def __iter__(self) -> Iterator[int]:
        epoch = self.told[-1] if self.told else 0
        yield from np.random.default_rng(epoch).permutation(SIZE).tolist()

    def __len__(self) -> int:
        return SIZE


class Lists:
    """A batch sampler without a length."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([number, number + 1] for number in range(0, 12, 2))


def draws(number: Any) -> Any:
    return number + np.random.rand()


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    return batch + float(rng.random())


def flipped() -> Any:
    return ArrayDataset(nd(pixels(SIZE))).transform(RandomFlipLeftRight())


SEED = {"batch_size": 4, "shuffle": True, "seed": 5}
# What a pass can be continued of: how its loader is made.
LOADERS: dict[str, Any] = {
    "shuffled": lambda: (NUMBERS, SEED),
    "in order, without a seed": lambda: (NUMBERS, {"batch_size": 4}),
    "flips": lambda: (flipped(), SEED),
    "a transform that draws": lambda: (ArrayDataset(NUMBERS).transform(draws), SEED),
    "rollover": lambda: (NUMBERS, {**SEED, "last_batch": "rollover"}),
    "rollover of few": lambda: (NUMBERS[:3], {**SEED, "last_batch": "rollover"}),
    "discard": lambda: (NUMBERS, {**SEED, "last_batch": "discard"}),
    "rng": lambda: (NUMBERS, {**SEED, "batch_transform": noisy}),
    "rng of a sampler": lambda: (
        NUMBERS,
        {"batch_size": 4, "sampler": range(20), "seed": 5, "batch_transform": noisy},
    ),
    "a sampler": lambda: (NUMBERS, {"batch_size": 4, "sampler": [5, 4, 3, 2, 1, 0, 9, 9, 9]}),
    "a sampler with epochs": lambda: (NUMBERS, {"batch_size": 4, "sampler": Seeded()}),
    "a filter": lambda: (NUMBERS, {"batch_size": 4, "sampler": FilterSampler(bool, NUMBERS)}),
    "a batch sampler": lambda: (NUMBERS, {"batch_sampler": Lists()}),
}


def made(name: str, executor: str, **arguments: Any) -> Any:
    data, own = LOADERS[name]()
    return gluon_loader(data, **own, **arguments_of(executor), **arguments)


@pytest.mark.parametrize(
    ("name", "executor"),
    [*((name, THREADS) for name in LOADERS), ("a transform that draws", "processes-1")],
)
def test_pass_goes_on_in_another_loader(name, executor):
    """With other workers; and the passes after it are whole."""
    with made(name, "inline") as loader:
        expected = [[outline(batch) for batch in loader] for _ in range(3)]
    place = min(2, len(expected[1]))
    with made(name, "inline") as loader:
        list(loader)
        assert len(list(itertools.islice(loader, place))) == place
        state = loader.state_dict()
    with made(name, executor) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        assert [outline(batch) for batch in loader] == expected[state["epoch"]][state["batch"] :]
        if state["epoch"] == 1:
            assert [outline(batch) for batch in loader] == expected[2]


def state(epoch: int, batch: int) -> dict[str, int]:
    return {"epoch": epoch, "batch": batch}


@pytest.mark.parametrize(("name", "executor"), [("shuffled", THREADS), ("a sampler", "inline")])
def test_state_is_the_batch_after_the_last_one_given(name, executor):
    with made(name, executor) as loader:
        count = len(loader)
        seen = [loader.state_dict()]
        for _ in loader:
            seen.append(loader.state_dict())
        assert seen == [*(state(0, batch) for batch in range(count)), state(1, 0)]
        assert (loader.epoch, loader.state_dict()) == (1, state(1, 0))
        for _ in loader:
            break
        assert (loader.epoch, loader.state_dict()) == (1, state(1, 1))
        iterator = iter(loader)
        assert loader.state_dict() == state(1, 1)
        next(iterator)
        assert loader.state_dict() == state(2, 1)


def test_batch_that_is_on_its_way_to_a_device_was_not_given():
    with opened(NUMBERS, "inline", ctx=mx.cpu(1)) as loader:
        states = [*(state(0, n) for n in range(1, 6)), state(1, 0)]
        assert [loader.state_dict() for _ in loader] == states


def test_end_without_a_length_is_known_when_it_is_there():
    with made("a batch sampler", "inline") as loader:
        assert [loader.state_dict()["batch"] for _ in loader] == [1, 2, 3, 4, 5, 6]
        assert loader.state_dict() == state(1, 0)
        loader.load_state_dict(state(0, 6))
        assert list(loader) == []
        assert loader.state_dict() == state(1, 0)


def test_state_is_that_of_the_pass_that_gave_a_batch_last():
    with made("shuffled", "inline") as loader:
        one, two = iter(loader), iter(loader)
        list(itertools.islice(one, 3))
        next(two)
        assert loader.state_dict() == state(1, 1)
        next(one)
        assert loader.state_dict() == state(0, 4)


def test_set_epoch_says_which_pass_is_next():
    with made("flips", "inline") as loader:
        expected = [[outline(batch) for batch in loader] for _ in range(4)]
    with made("flips", THREADS) as loader:
        for epoch in (3, 1, 1):
            loader.set_epoch(epoch)
            assert (loader.epoch, loader.state_dict()) == (epoch, state(epoch, 0))
            assert [outline(batch) for batch in loader] == expected[epoch]
        iterator = iter(loader)
        first = outline(next(iterator))
        loader.set_epoch(1)  # The pass that is under way is not changed.
        assert [first, *map(outline, iterator)] == expected[2]
        assert [outline(batch) for batch in loader] == expected[1]


# --- what can't be continued ---


class Drawing(Sampler):
    """As people write it."""

    def __iter__(self):
        return iter(np.random.permutation(SIZE).tolist())

    def __len__(self) -> int:
        return SIZE


OWN = ArrayDataset(NUMBERS).transform(draws)
REFUSED: dict[str, Any] = {
    "shuffle": (NUMBERS, {"shuffle": True}, "numpy.random: give seed"),
    "transform": (OWN, {}, "transforms draw is drawn from numpy.random: give seed"),
    "stage": (None, {}, "give seed"),
    "rng": (NUMBERS, {"batch_transform": noisy}, "give seed"),
    "RandomSampler": (
        NUMBERS,
        {"sampler": mx.gluon.data.RandomSampler(SIZE), "seed": 3},
        "which seed has no say in: give batch_size=..., shuffle=True and seed",
    ),
    "a sampler that draws": (
        NUMBERS,
        {"sampler": Drawing(), "seed": 3},
        "by Drawing, .* set_epoch",
    ),
    "rollover of a sampler": (
        NUMBERS,
        {"last_batch": "rollover", "sampler": SequentialSampler(SIZE), "seed": 3},
        'rolls over .* or give "keep"',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_state_that_nobody_can_repeat_is_refused(name):
    data, arguments, message = REFUSED[name]
    data = flipped() if data is None else data
    with opened(data, "inline", **arguments) as loader:
        assert loader.state_dict() == state(0, 0)
        next(iter(loader))
        with pytest.raises(ValueError, match=f"^state_dict: .* batch 1 of epoch 0, as .*{message}"):
            loader.state_dict()
        with pytest.raises(ValueError, match=f"^load_state_dict: .*{message}"):
            loader.load_state_dict(state(0, 1))
        assert loader.epoch == 0


def test_state_at_an_epochs_start_needs_no_seed():
    with opened(NUMBERS, "inline", shuffle=True) as loader:
        list(loader)
        loader.load_state_dict(loader.state_dict())
        assert loader.epoch == 1
        assert len(list(loader)) == 6


def test_rollover_of_mxnets_batch_sampler_is_refused():
    sampler = mx.gluon.data.BatchSampler(SequentialSampler(SIZE), 4, "rollover")
    with opened(NUMBERS, "inline", None, batch_sampler=sampler) as loader:
        list(loader)
        with pytest.raises(ValueError, match="rolls over"):
            loader.state_dict()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epoch": 0}, "must be what state_dict"),
        ({"epoch": 0, "batch": "1"}, "must be what state_dict"),
        (None, "must be what state_dict"),
        (state(-1, 0), "epoch >= 0"),
        (state(0, -1), r"batch in range\(6\)"),
        (state(0, 6), r"batch in range\(6\), got .*: it belongs to a loader of another length"),
    ],
)
def test_wrong_state_is_refused(wrong, message):
    with made("shuffled", "inline") as loader:
        with pytest.raises(ValueError, match=message):
            loader.load_state_dict(wrong)
        assert loader.state_dict() == state(0, 0)


@pytest.mark.parametrize(("wrong", "error"), [(-1, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_wrong_epoch_is_refused(wrong, error):
    with made("shuffled", "inline") as loader, pytest.raises(error, match="epoch must be"):
        loader.set_epoch(wrong)


SAMPLES, BATCH_SIZE, EPOCHS = 24, 4, 3
BATCHES = SAMPLES // BATCH_SIZE
STEPS = EPOCHS * BATCHES


def noisy_pair(batch: Any, rng: np.random.Generator) -> Any:
    """A transform that draws."""
    data, label = batch
    return data + float(rng.random()), label


def made_training(workers: int = 0) -> tuple[Any, Any, Any]:
    """Loader, net and trainer, made anew; the net doesn't know its shapes yet."""
    mx.random.seed(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, 5)).astype("float32")
    options = {"num_workers": workers, "batch_transform": noisy_pair}
    loader = gluon_loader((x, x[:, :1] * 2), BATCH_SIZE, shuffle=True, seed=4, **options)
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():  # MXNet sorts the parameters by their names, and dense9 after dense10.
        net.add(mx.gluon.nn.Dense(6, "relu"), mx.gluon.nn.BatchNorm(), mx.gluon.nn.Dropout(0.5))
        net.add(mx.gluon.nn.Dense(1))
    net.initialize()
    schedule = mx.lr_scheduler.FactorScheduler(3, 0.9)
    rates = {"learning_rate": 0.05, "lr_scheduler": schedule}
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", rates)
    return loader, net, trainer


def steps(
    resume: Resume, loader: Any, net: Any, trainer: Any, epochs: int, kill_at: int | None = None
) -> Iterator[Any]:
    """The epoch and the loss of each step, up to one; a file follows each that is to be saved."""
    count = itertools.count()
    for epoch in resume.epochs(epochs, net, trainer):
        for data, label in loader:
            if next(count) == kill_at:
                return
            with mx.autograd.record():
                loss = ((net(data) - label) ** 2).mean()
            loss.backward()
            trainer.step(1)
            resume.step()
            resume._folder.wait()
            yield epoch, loss.asnumpy().item()


def train(folder: Path, kill_at: int | None = None, workers: int = 0) -> list[Any]:
    """The steps of a training, or as many of them before it is killed."""
    loader, net, trainer = made_training(workers)
    with loader:
        resume = Resume(folder, loader, "1 batch", seed=7)
        return list(steps(resume, loader, net, trainer, EPOCHS, kill_at))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[Any]:
    """The steps of a training that isn't interrupted."""
    return train(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("kill_at", "workers"), [(BATCHES, 2), (BATCHES + 3, 0), (STEPS - 1, 2)])
def test_loop_goes_on_with_the_same_losses(kill_at, workers, whole, tmp_path):
    assert train(tmp_path, kill_at, workers) == whole[:kill_at]
    assert train(tmp_path, workers=2 - workers) == whole[kill_at:]
    assert train(tmp_path) == []
    assert len(whole) == STEPS


def test_loop_goes_on_under_numpy_semantics(tmp_path):
    with numpy_semantics():
        expected = train(tmp_path / "whole")
        train(tmp_path / "killed", BATCHES + 3)
        assert train(tmp_path / "killed") == expected[BATCHES + 3 :]


def test_values_of_ones_own_are_kept(tmp_path):
    loader, net, trainer = made_training()
    with loader:
        resume = Resume(tmp_path, loader, "1 epoch")
        for epoch, _ in steps(resume, loader, net, trainer, 2):
            resume.extra["best"] = epoch / 2
        again = Resume(tmp_path, loader)
        assert list(again.epochs(2, net, trainer)) == []
    assert again.extra == {"best": 0.5}
    assert repr(again) == f"<Resume in {tmp_path}: epoch 2, batch 0>"


class Mixes(mx.gluon.contrib.estimator.EpochBegin):
    """A handler that draws from MXNet's generator."""

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        mx.nd.random.uniform(shape=(1,)).wait_to_read()


def estimated(path: Path, kill_at: int | None = None) -> Any:
    """An Estimator's losses, batch by batch."""
    loader, net, trainer = made_training()
    seen: list[Any] = []

    class Notes(mx.gluon.contrib.estimator.BatchEnd):
        def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            if len(seen) == kill_at:
                raise InterruptedError
            seen.append(float(kwargs["loss"][0].mean().asscalar()))

    with loader:
        estimator = Estimator(net, mx.gluon.loss.L2Loss(), mx.metric.MAE(), trainer=trainer)
        estimator.logger.disabled = True
        resume = Resume(path, loader, "1 batch", seed=7)
        try:
            estimator.fit(loader, epochs=EPOCHS, event_handlers=[Mixes(), Notes(), resume])
        except InterruptedError:
            resume._folder.wait()
    return seen


def test_estimator_goes_on_with_the_same_losses(tmp_path):
    expected = estimated(tmp_path / "whole")
    killed = estimated(tmp_path / "killed", BATCHES + 3)
    continued = estimated(tmp_path / "killed")
    assert len(expected) == STEPS
    assert killed == expected[: len(killed)]
    assert BATCHES < len(continued) < STEPS
    assert continued == expected[-len(continued) :]


def test_more_epochs_go_on_after_the_end(tmp_path):
    """With MXNet's own handlers, which see an epoch without batches."""
    loader, net, trainer = made_training()
    validation, _, _ = made_training()
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


def test_folder_is_locked_until_other_handlers_have_ended(tmp_path):
    loader, net, trainer = made_training()
    ended: list[bool] = []

    class Ends(mx.gluon.contrib.estimator.TrainEnd):
        def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            with pytest.raises(RuntimeError, match="one training at a time"):
                Lock(tmp_path).take(0)
            ended.append(True)

    with loader:
        estimator = Estimator(net, mx.gluon.loss.L2Loss(), trainer=trainer)
        estimator.logger.disabled = True
        estimator.fit(loader, epochs=1, event_handlers=[Ends(), Resume(tmp_path, loader)])
    assert ended == [True]


def test_another_loader_is_refused(tmp_path):
    with pytest.raises(TypeError, match="loader must be one of gluon_loader"):
        Resume(tmp_path, mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset([1, 2]), 1))
    with pytest.raises(ValueError, match="folder must be on a disk of this machine"):
        Resume("s3://bucket/run1", gluon_loader([1, 2], 1))


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a.asnumpy(), b.asnumpy()) for a, b in zip(one, other))


def test_replay():
    loader, _, _ = made_training()
    with loader:
        epochs = [list(loader) for _ in range(2)]
        state = loader.state_dict()
        for epoch in (0, 1):
            for index in (0, BATCHES - 1, -1, -BATCHES):
                replay = loader.replay(epoch, index)
                assert replay.index == index % BATCHES
                assert same(replay.batch, epochs[epoch][index])
                assert f"float32 ({BATCH_SIZE}, " in str(replay)
                assert replay.labels == epochs[epoch][index][1].asnumpy().tolist()
                assert len(set(replay.numbers.tolist())) == BATCH_SIZE
        assert loader.state_dict() == state
        for wrong in (BATCHES, -BATCHES - 1):
            with pytest.raises(IndexError, match=rf"range\(-{BATCHES}, {BATCHES}\), got {wrong}"):
                loader.replay(0, wrong)


def test_replay_of_a_pass_of_other_shards():
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


def test_replay_of_what_is_drawn_anew_is_refused():
    with (
        gluon_loader(np.arange(8.0), 4, shuffle=True) as loader,
        pytest.raises(ValueError, match="replay: no batch can be computed again"),
    ):
        loader.replay(0, 0)


# --- what goes on is what was saved ---


def begun(
    folder: Path,
    *,
    epochs: int = 1,
    optimizer: str = "sgd",
    prefix: str = "head_",
    seed: int = 7,
    dtype: str = "float32",
    size: int = SAMPLES,
    rate: float = 0.1,
    **options: Any,
) -> None:
    """A training of one epoch, in a folder."""
    net = mx.gluon.nn.Dense(1, in_units=3, prefix=prefix, dtype=dtype)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": rate})
    options = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 4, "num_workers": 0, **options}
    with gluon_loader((np.ones((size, 3), dtype), np.zeros((size, 1), dtype)), **options) as loader:
        list(steps(Resume(folder, loader, seed=seed), loader, net, trainer, epochs))


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"optimizer": "adam"}, "the optimizer of trainer must be 'SGD', .* got 'Adam'"),
        ({"prefix": "tail_"}, r"the parameters of net must be \[\('head_weight'.*tail_weight"),
        ({"dtype": "float64"}, "the parameters of net must be .*float32.*float64"),
        ({"seed": 8}, "seed of Resume must be 7, .* got 8"),
        ({"size": SAMPLES + 1}, "the number of samples must be 24, .* got 25"),
        ({"batch_size": 2}, "batch_size must be 4, .* got 2"),
        ({"shuffle": False}, "shuffle must be True, .* got False"),
        ({"last_batch": "rollover"}, "last_batch must be 'keep', .* got 'rollover'"),
    ],
)
def test_what_differs_is_named_with_both_values(after, said, tmp_path):
    begun(tmp_path)
    with pytest.raises(ValueError, match=f"{said}.*new folder"):
        begun(tmp_path, **{"epochs": 2, **after})


def test_what_may_change_is_not_refused(tmp_path):
    begun(tmp_path, prefix="dense0_")
    begun(tmp_path, prefix="dense7_", rate=0.5, num_workers=1, epochs=2)


@pytest.mark.parametrize("kvstore", [None, "device"])
def test_states_of_parameters_that_are_sorted_differently(kvstore, tmp_path):
    """MXNet sorts a trainer's parameters by name: dense10 before dense9."""

    def weights(folder: Path, epochs: int, first: int, trained: str = ".*") -> list[Any]:
        mx.random.seed(1)
        net = mx.gluon.nn.HybridSequential()
        for number in range(first, first + 3):
            net.add(mx.gluon.nn.Dense(4, in_units=4, prefix=f"dense{number}_"))
        net.initialize()
        parameters = net.collect_params()
        rate = {"learning_rate": 0.05}
        trainer = mx.gluon.Trainer(net.collect_params(trained), "adam", rate, kvstore)
        x = np.random.default_rng(0).normal(size=(SAMPLES, 4)).astype("float32")
        with gluon_loader((x, 2 * x), BATCH_SIZE, seed=4, num_workers=0) as loader:
            list(steps(Resume(folder, loader), loader, net, trainer, epochs))
        return [each.data().asnumpy().tolist() for each in parameters.values()]

    whole = weights(tmp_path / "whole", 4, first=0)
    weights(tmp_path / "resumed", 2, first=7)
    assert weights(tmp_path / "resumed", 4, first=8) == whole
    with pytest.raises(ValueError, match=r"trainer must have all 6 parameters of net .* got 2"):
        weights(tmp_path / "resumed", 5, first=8, trained="dense10_")


def test_counts_and_loss_scale_go_on_on_any_device(tmp_path):
    """MXNet counts the updates of each device on its own."""
    counts = []
    for epochs, device in [(1, 0), (2, 1), (3, 0), (4, 2)]:
        net = mx.gluon.nn.Dense(1, in_units=3)
        net.initialize(ctx=mx.cpu(device))
        trainer = mx.gluon.Trainer(net.collect_params(), "adam")
        scaler = trainer._amp_loss_scaler = LossScaler()  # As AMP's init_trainer does.
        data = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
        with gluon_loader(data, BATCH_SIZE, ctx=mx.cpu(device), num_workers=0) as loader:
            for _ in steps(Resume(tmp_path, loader), loader, net, trainer, epochs):
                scaler._next_loss_scale /= 2
            counts.append((trainer.optimizer.num_update, np.log2(scaler._next_loss_scale)))
    assert counts == [(2, 14), (4, 12), (6, 10), (8, 8)]


# --- what can't be saved ---


def test_several_trainers_and_sparse_parameters_are_refused(tmp_path):
    loader, net, trainer = made_training()
    sparse = mx.gluon.contrib.nn.SparseEmbedding(4, 2)
    with loader:
        with pytest.raises(TypeError, match=r"trainer must be one .* got list"):
            next(Resume(tmp_path, loader).epochs(1, net, [trainer, trainer]))
        with pytest.raises(ValueError, match=r"got sparseembedding0_weight of .*'row_sparse'"):
            next(Resume(tmp_path, loader).epochs(1, sparse, trainer))


@pytest.mark.parametrize("store", ["dist_sync", "dist_device_sync", "dist_async"])
def test_states_on_servers_are_refused(store, tmp_path):
    loader, net, _ = made_training()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", kvstore=store)
    said = f"not on the servers .* got kvstore='{store}': give Trainer.*update_on_kvstore=False"
    with loader, pytest.raises(ValueError, match=said):
        next(Resume(tmp_path, loader).epochs(1, net, trainer))
    assert [*tmp_path.iterdir()] == []


def test_full_disk_is_a_warning_and_the_last_file_stays(tmp_path, monkeypatch, caplog):
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
