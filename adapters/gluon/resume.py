"""``Resume``: continues a killed training with Gluon.

A training is saved after a batch within an epoch, or after an epoch. The same object is an event
handler for an ``Estimator``, whose ``fit`` always runs a first epoch; if none is left, that epoch
has no batches.

Parameters are matched by their order in the net. Their names (without numbers, which differ between
processes), shapes and dtypes must equal the saved ones. A ``Trainer`` sorts them by name, so that
``dense10`` comes before ``dense9``, and its states are put into its present order.
"""

from __future__ import annotations

import copy
import logging
import os
import pickle
import re
import sys
from collections.abc import Generator
from typing import IO, Any

import mxnet as mx
import numpy as np
from mxnet.gluon.contrib.estimator import BatchEnd, EpochBegin, EpochEnd, TrainBegin, TrainEnd
from mxnet.util import is_np_array

from adapters.arguments import check_integer
from adapters.generators import generator
from adapters.gluon.loader import DataLoader
from adapters.gluon.samplers import OrderBatchSampler, RolloverBatchSampler, length_of
from adapters.remote.urls import local_path
from adapters.resuming.checkpoint_dir import CheckpointDir, check_fingerprint, check_order
from adapters.seeding import process_generators, set_process_generators

log = logging.getLogger("adapters")

_STREAM = 4  # Stream of the seeds of MXNet's generator.


class Resume(TrainBegin, EpochBegin, BatchEnd, EpochEnd, TrainEnd):  # type: ignore[misc]
    """Saves a training with Gluon while it runs, so that it continues exactly after a crash.

    Saved are the parameters, the states of the ``Trainer`` with its optimizer, the position of the
    loader, the epoch, ``random`` and ``numpy.random``, and ``extra``. The state of MXNet's
    generator, which ``Dropout`` uses, can't be read. With ``seed``, it is seeded before each batch,
    by the seed, the epoch and the batch alone, so that it continues exactly. Metrics of an
    ``Estimator`` start from scratch after a resume.

    Args:
        folder: Folder of the files, created if needed. Use a new one for a new training. The
            processes of a job share it if the loader of each has its ``shard``: rank 0 writes.
        loader: Loader of ``gluon_loader``, with a ``seed`` if anything is random.
        every: Interval between saves: seconds (30), or text, ``"5 min"``, ``"500 batches"`` or
            ``"1 epoch"``.
        keep: Number of files to keep.
        seed: Seed of MXNet's generator; None leaves that generator alone.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Attributes:
        extra: Dict of your own plain values, which is saved too.

    Example:
        >>> import tempfile
        >>> import mxnet as mx, numpy as np
        >>> from adapters import gluon_loader
        >>> from adapters.gluon import Resume
        >>> net = mx.gluon.nn.Dense(1)
        >>> net.initialize()
        >>> trainer = mx.gluon.Trainer(net.collect_params(), "adam")
        >>> loader = gluon_loader(np.zeros((8, 3), "float32"), batch_size=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     resume = Resume(folder, loader)
        ...     for epoch in resume.epochs(2, net, trainer):
        ...         for data in loader:
        ...             with mx.autograd.record():
        ...                 loss = (net(data) ** 2).mean()
        ...             loss.backward()
        ...             trainer.step(len(data))
        ...             resume.step()
        >>> epoch
        1
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        loader: DataLoader,
        every: float | str = 30,
        *,
        keep: int = 2,
        seed: int | None = None,
    ) -> None:
        keep = check_integer("keep", keep, 1)
        if seed is not None:
            check_integer("seed", seed, 0)
        if not isinstance(loader, DataLoader):
            raise TypeError(
                "loader must be one of gluon_loader, which can resume within an epoch, got "
                f"{type(loader).__name__}"
            )
        self._loader = loader
        self._folder = CheckpointDir(local_path(folder, "folder"), keep, every)
        self._seed = seed
        self._epoch = self._batch = 0
        self._trained = False
        self.extra: dict[str, Any] = {}
        self.priority = np.inf  # As an event handler, run after the others.

    def __repr__(self) -> str:
        place = f"epoch {self._epoch}, batch {self._batch}"
        return f"<{type(self).__name__} in {self._folder.path}: {place}>"

    # --- a loop ---

    def epochs(self, count: int, net: Any, trainer: Any) -> Generator[int, None, None]:
        """Iterate over the remaining epochs out of ``count``.

        Args:
            count: Number of all epochs.
            net: The block that is trained.
            trainer: The block's ``mxnet.gluon.Trainer``.

        Yields:
            The epoch, from 0.

        Raises:
            OSError: A file can't be read.
            RuntimeError: Another training uses the folder.
            TypeError: ``trainer`` is not one ``Trainer``.
            ValueError: All files are damaged; ``net``, ``trainer`` or the loader differs from that
                of the saved training; or a parameter is sparse.
        """
        check_integer("count", count, 0)
        try:
            yield from self._remaining(count, net, trainer)
            self._end()
        finally:
            self._folder.end()

    def step(self) -> None:
        """Count a trained batch, and save if due."""
        self._batch, self._trained = self._batch + 1, True
        self._folder.schedule.count(1)
        self._folder.lock.check_writer()
        count = length_of(self._loader)
        # After the last batch, the end of the epoch saves.
        if self._folder.schedule.due and (count is None or self._batch < count):
            self._save()
        self._seed_batch()

    # --- handlers of an Estimator ---

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Restore the saved state at the start of ``fit``."""
        count = sys.maxsize if estimator.max_epoch is None else estimator.max_epoch
        self._left = self._remaining(count, estimator.net, estimator.trainer)
        try:
            self._loader._without_batches = next(self._left, None) is None
        except BaseException:
            self._folder.end()
            raise

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Seed MXNet's generator for the first batch of an epoch."""
        self._seed_batch()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        """Count a trained batch, and save if due. Returns False, to continue."""
        self.step()
        return False

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        """Count the epoch, and save if due. Returns True after the last epoch, to stop."""
        return next(self._left, None) is None

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Save at the end of ``fit``."""
        self._loader._without_batches = False  # Still True if fit read another loader.
        try:
            self._end()
        finally:
            self._folder.end()

    # --- the state ---

    def _remaining(self, count: int, net: Any, trainer: Any) -> Generator[int, None, None]:
        """Iterate over the remaining epochs; the caller ends the training."""
        self._begin(net, trainer)
        while self._epoch < count:
            self._seed_batch()
            yield self._epoch
            self._epoch, self._batch = self._epoch + 1, 0
            self._folder.schedule.count_epoch()
            if self._folder.schedule.due and self._trained:
                self._save()

    def _begin(self, net: Any, trainer: Any) -> None:
        self._net, self._trainer = net, trainer
        self._epoch = self._batch = 0
        self._trained = False
        _check(net, trainer)
        state = self._folder.begin(self._loader._with_shard()._shard.part[0], over=True)
        if state is None:
            return
        self._folder.schedule.saved()
        folder, data = self._folder.path, self._data()
        check_fingerprint(state["made"], self._made(), folder)
        check_order(state["data"], data, state["loader"], folder)
        self._restore(state)
        self._epoch, self._batch = state["epoch"], state["batch"]
        self.extra = state["extra"]
        self._loader.load_state_dict(state["loader"])
        if self._folder.lock.rank == 0:
            set_process_generators(state["generators"])
        epoch, batch = self._loader._position
        # With this number of shards, nothing may be left of the saved epoch.
        if over := epoch - state["loader"]["epoch"]:
            self._epoch, self._batch = self._epoch + over, 0
        elif any(state["data"].get(name) != data.get(name) for name in ("batch_size", "shards")):
            self._batch = batch  # Batches have other numbers now.
        log.info(
            "the training in %s resumes at epoch %d, batch %d", folder, self._epoch, self._batch
        )

    def _end(self) -> None:
        self._folder.wait()
        if self._trained:
            self._save()

    def _seed_batch(self) -> None:
        if self._seed is not None:
            drawn = generator(self._seed, self._epoch, self._batch, _STREAM).integers(2**31)
            mx.random.seed(int(drawn))

    def _save(self) -> None:
        if not self._folder.ready:
            return
        parameters = self._net.collect_params().values()
        try:
            with _file() as file:
                self._trainer.save_states(f"/proc/self/fd/{file.fileno()}")
                states = file.read()
        except OSError as error:  # The disk may be full.
            log.warning("the training could not be saved (%s); it continues", error)
            return
        value = {
            "parameters": [each.list_data()[0].asnumpy().copy() for each in parameters],
            "trainer": states,
            "loss scale": dict(self._loss_scale),
            "order": self._order(),
            "made": self._made(),
            "epoch": self._epoch,
            "batch": self._batch,
            "loader": self._place(),
            "data": self._data(),
            "generators": process_generators(),
            "extra": copy.deepcopy(self.extra),
        }
        self._folder.write(f"{self._epoch:06d}-{self._batch:09d}", value)

    def _restore(self, state: dict[str, Any]) -> None:
        make = mx.np.array if is_np_array() else mx.nd.array
        own = self._net.collect_params()
        pairs = zip(own.values(), state["parameters"])
        try:
            # Names are those of this process. Parameters of unknown shape get their shape.
            own.load_dict({each.name: make(a, dtype=a.dtype) for each, a in pairs})
        except AssertionError as error:
            raise ValueError(
                "net must be made as it was when the training was saved: make the same net, or "
                f"give Resume another folder ({error})"
            ) from error
        states, before, now = state["trainer"], state.get("order"), self._order()
        if before and now and before != now:
            if not set(before) <= set(now):
                raise ValueError(
                    f"trainer must have all {len(before)} parameters of net that it had when the "
                    f"training was saved, got {len(now)}: make it as it was, or give Resume "
                    "another folder"
                )
            states = _reordered(states, [now.index(place) for place in before])
        with _file() as file:
            file.write(states)
            file.flush()
            self._trainer.load_states(f"/proc/self/fd/{file.fileno()}")
        self._loss_scale.update(state.get("loss scale", {}))
        # By device, which may differ now.
        counts = self._trainer.optimizer._all_index_update_counts
        counted: dict[int, int] = {}
        for each in counts.values():
            counted |= {n: max(count, counted.get(n, 0)) for n, count in each.items()}
        for device in {0, *counts, *(ctx.device_id for ctx in self._trainer._contexts)}:
            counts[device] = dict(counted)

    @property
    def _loss_scale(self) -> dict[str, Any]:
        """State of AMP's dynamic loss scaling; empty if the trainer has none."""
        return getattr(getattr(self._trainer, "_amp_loss_scaler", None), "__dict__", {})

    def _order(self) -> list[int] | None:
        """Place in the net of each parameter of the trainer; None if the trainer has others."""
        names = list(self._net.collect_params())
        own = [each.name for each in self._trainer._params]
        return [names.index(name) for name in own] if set(own) <= set(names) else None

    def _place(self) -> dict[str, int]:
        """State of the loader; between epochs, an abandoned pass counts as a whole one."""
        state: dict[str, int] = self._loader.state_dict()
        epoch, done = state.values()
        return dict(zip(state, (epoch + 1, 0))) if done and not self._batch else state

    def _made(self) -> dict[str, Any]:
        """Fingerprint of the net, the trainer and the seed."""
        parameters = self._net.collect_params().values()
        # Without the numbers in names, which a process gives to its blocks.
        names = [re.sub(r"\d+(?=_|$)", "", each.name) for each in parameters]
        dtypes = [np.dtype(each.dtype).name for each in parameters]
        return {
            "the parameters of net": list(zip(names, dtypes)),
            "the optimizer of trainer": type(self._trainer.optimizer).__name__,
            "seed of Resume": self._seed,
        }

    def _data(self) -> dict[str, Any]:
        """Fingerprint of the loader."""
        sampler = self._loader._with_shard()._batch_sampler
        known: dict[str, Any] = {"batch_sampler": type(sampler).__name__}
        if isinstance(sampler, OrderBatchSampler):
            last = "discard" if sampler.order.drop_remainder else "keep"
            last = "rollover" if isinstance(sampler, RolloverBatchSampler) else last
            # It is compared first, as users don't know the other names for it.
            return {"last_batch": last} | known | sampler.order.fingerprint()
        return {**known, "the number of samples": length_of(self._loader._dataset)}


# --- the trainer ---


def _check(net: Any, trainer: Any) -> None:
    """Refuse sparse parameters, several trainers, and states on servers of a distributed store."""
    if not isinstance(trainer, mx.gluon.Trainer):
        raise TypeError(
            f"trainer must be one mxnet.gluon.Trainer, got {type(trainer).__name__}: with several, "
            "save each with save_states, and the position with state_dict of the loader"
        )
    for each in net.collect_params().values():
        if each._stype != "default":
            raise ValueError(
                f"net must have dense parameters for Resume to save them, got {each.name} of stype "
                f"{each._stype!r}: use mxnet.gluon.nn.Embedding(..., sparse_grad=True), or make it "
                'with stype="default"'
            )
    asked = getattr(trainer, "_kvstore_params", {})  # Set before the trainer has started.
    store = asked.get("kvstore")
    name = str(store if isinstance(store, str) else getattr(store, "type", ""))
    if "dist" in name and (asked.get("update_on_kvstore") is not False or "async" in name):
        raise ValueError(
            "trainer must keep its states in this process for Resume to save them, not on the "
            f"servers of a distributed kvstore, got kvstore={name!r}: give "
            "Trainer(..., update_on_kvstore=False) with a kvstore that is synchronous, such as "
            '"dist_sync"'
        )


def _reordered(states: bytes, numbers: list[int]) -> bytes:
    """Give the states of a trainer's parameters, in their order, these new numbers."""
    by_number, optimizer = pickle.loads(states)
    for each in (by_number, *optimizer._all_index_update_counts.values()):
        renumbered = {numbers[number]: value for number, value in each.items()}
        each.clear()
        each.update(renumbered)
    return pickle.dumps((by_number, optimizer))


def _file() -> IO[bytes]:
    """Open a file in memory: a ``Trainer`` saves its states only by file name."""
    return open(os.memfd_create("adapters-states"), "w+b")
