"""``Resume``: a callback with which ``fit`` goes on where a killed one was, to the bit.

A training is saved at two kinds of places: before an epoch begins, when all callbacks have seen the
end of the one before, and between two batches, when all callbacks have seen the first of them.
``Resume`` is the first callback to be called, see ``fits``, and saves in ``on_epoch_begin`` and
``on_train_batch_begin``; there it also puts back what was saved, so that what other callbacks did
before, in ``on_train_begin``, say, which for them is the begin of a training, has no effect.

    fit --> fit_begins: the newest file is read, the sequences are put there, ``initial_epoch``
        --> on_train_begin: weights
        --> on_epoch_begin, or on_train_batch_begin within an epoch: all that was saved, once more
        --> batches; every so often a copy, which a thread writes
        --> on_train_end: a last one

Training stops for the copy alone; while a file is being written no other is begun.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import keras

from adapters.arguments import check_integer
from adapters.keras import callbackstate, internals, modelstate
from adapters.keras.fits import Fit, FitCallback
from adapters.resuming import CheckpointDir, Lock, Schedule, Writer, check_order

log = logging.getLogger("adapters")


class Resume(FitCallback):
    """Saves a training while it runs, and has ``fit`` continue it exactly after a crash.

    ``fit`` with this callback begins where the folder says, or anew if nothing is in it. The losses
    of the batches that follow are those of a run that was never interrupted, to the bit on the same
    backend and kind of device, for any number of workers. Saved are the weights, the optimizer, the
    metrics of the epoch so far, Keras's epoch and batch, the positions of the ``SafeSequence`` that
    ``fit`` trains on and of the one that it validates with, what Keras's own callbacks know (and
    others that have ``state_dict()`` and ``load_state_dict(state)``), and the random generators:
    Keras's, ``random``, ``numpy.random``, PyTorch's.

    Weights that have become NaN or infinite are not saved, with a WARNING.

    A training that has come to its end stays there: ``fit`` again trains nothing, with more
    ``epochs`` it goes on. Give a new training a new folder. The processes of a job share one where
    the data of each has its ``shard``: rank 0 writes, and all read. A folder that another training
    uses is refused.

    Args:
        folder: Where the files lie; is made if need be.
        every: How often: seconds (30), or a text, ``"5 min"``, ``"500 batches"``, ``"1 epoch"``.
        keep: How many files stay.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: An argument out of range.

    Example:
        >>> import tempfile
        >>> import keras, numpy as np
        >>> from adapters import SafeSequence
        >>> from adapters.keras import Resume
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> train = SafeSequence((np.zeros((8, 3)), np.zeros(8)), batch_size=4, shuffle=True)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for _ in range(2):  # The second one finds that all is done.
        ...         history = model.fit(train, epochs=2, callbacks=[Resume(folder)], verbose=0)
        >>> history.epoch
        [0, 1]
    """

    def __init__(
        self, folder: str | os.PathLike[str], every: float | str = 30, *, keep: int = 2
    ) -> None:
        super().__init__()
        check_integer("keep", keep, 1)
        if not isinstance(folder, (str, os.PathLike)):
            raise TypeError(f"folder must be a path, got {folder!r}")
        self._schedule = Schedule(every)
        self._folder = CheckpointDir(folder, int(keep))
        self._writer = Writer(self._folder)
        self._lock = Lock(self._folder.path)
        self._fit: Fit | None = None
        self._state: dict[str, Any] | None = None
        self._epoch = self._next_step = 0
        self._trained = self._stopped_inside = self._stopped_before_end = self._spoiled = False
        self._position: dict[str, Any] | None = None
        """Of the sequence, where it can't be asked."""

    # --- the call ---

    def fit_begins(self, fit: Fit) -> None:
        """Read what was saved, and put the sequences where they were.

        Raises:
            ImportError: This Keras can't begin within an epoch.
            RuntimeError: Another training uses the folder.
            TypeError: What is trained on is no ``SafeSequence``.
            ValueError: Another callback, too, says where ``fit`` begins; or the data isn't that of
                the training that was saved.
        """
        if fit.sequence is None:
            raise TypeError(
                "fit must train on a SafeSequence for Resume to know which batch comes next: "
                "wrap the data, SafeSequence((x, y), batch_size)"
            )
        _check_keras()
        if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in fit.callbacks):
            raise ValueError(
                "callbacks must not have BackupAndRestore beside Resume, as both say where fit "
                "begins: leave it out"
            )
        self._fit, self._trained, self._stopped_inside = fit, False, False
        self._stopped_before_end = self._spoiled = False
        self._schedule.restart()
        self._lock.take(fit.sequence._settled()._plan.order.shard[0])
        if self._lock.writes:
            self._folder.clean()
        self._state = state = self._folder.newest()
        if state is None:
            # A pass that was given up is replayed from here, which is not where it stands.
            progress = fit.sequence._progress
            progress.move(*progress.start, progress.continuation)
        else:
            steps = fit.steps_per_epoch
            if steps is not None and state["step"] >= steps:
                raise ValueError(
                    f"steps_per_epoch must be above {state['step']}, the batches of its epoch that "
                    f"the training in {self._folder.path} has had, got {steps}"
                )
            try:
                fit.sequence.load_state_dict(state["sequence"])
            except ValueError:
                self._check_data()  # Which knows better what is wrong.
                raise
            if (over := fit.sequence.epoch - state["sequence"]["epoch"]) and steps is None:
                # Other shards have nothing left of that epoch.
                state = {**state, "epoch": state["epoch"] + over, "step": 0}
                self._state = state
        # Until a batch has been trained on; Keras looks at some before.
        self._position = fit.sequence.state_dict()
        if state is None:
            return
        validation = None if fit.validation is fit.sequence else fit.validation
        if validation is not None and state["validation"] is not None:
            validation.set_epoch(state["validation"])
        # What stopped before the epochs that were asked for goes on where more are asked for.
        over = state["over"] and fit.epochs <= state.get("epochs", fit.epochs)
        fit.initial_epoch = max(state["epoch"], fit.epochs) if over else state["epoch"]
        log.info(
            "the training in %s goes on at epoch %d, batch %d",
            self._folder.path,
            state["epoch"],
            state["step"],
        )

    def fit_ends(self, fit: Fit) -> None:
        """What is being written is whole when ``fit`` is left, in whatever way."""
        self._fit = self._state = None
        self._writer.wait()
        self._lock.release()

    # --- Keras's hooks ---

    def on_train_begin(self, logs: Any = None) -> None:
        """Give the model its weights.

        Raises:
            ImportError: This Keras can't begin within an epoch.
            RuntimeError: ``fit`` doesn't tell callbacks that it was called.
        """
        if self._fit is None:
            _check_keras()
            raise RuntimeError(
                "Resume must be given to fit of a keras.Model, and needs to know of the call, "
                "which ADAPTERS_STOCK_KERAS=1 prevents (unset it), or another package that has put "
                "back Keras's own fit (import adapters.keras before that one)"
            )
        if self._state is not None:
            if not modelstate.built(self.model):
                assert self._fit.sequence is not None
                internals.build(self.model, self._fit.sequence[0])
            self._put_back()
            self._check_data()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Before an epoch: put back what was saved there, or save."""
        fit = self._running
        self._epoch, self._next_step, fit.steps_done = epoch, 0, 0
        if self._state is None:
            if self._schedule.due and modelstate.built(self.model):
                self._save(epoch, 0)
        elif self._state["step"]:  # Put back before its first batch.
            self._next_step = fit.steps_done = self._state["step"]
        else:
            self._put_back()
            self._state = None
            self._schedule.saved()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Before a batch: put back what was saved there, or save."""
        if self._trained:
            self._lock.check_writer()
        else:
            self._position = None
        if self._state is not None:
            self._put_back()
            self._state = None
            self._schedule.saved()
        elif batch and self._schedule.due and modelstate.built(self.model):
            self._save(self._epoch, batch)
        together = int(getattr(self.model, "steps_per_execution", 1))
        self._schedule.count(together)
        self._next_step, self._trained = batch + together, True

    if keras.backend.backend() == "torch":

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Note the position: on PyTorch the next batch has been taken when it begins."""
            self._position = self._now()

    def on_test_begin(self, logs: Any = None) -> None:
        """The batches of an epoch are over, and its metrics are still there."""
        self._notice_stop()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """An epoch is over for Keras."""
        self._notice_stop()
        self._running.steps_done = 0
        self._position = None
        self._epoch, self._next_step = epoch + 1, 0
        self._schedule.count_epoch()

    def on_train_end(self, logs: Any = None) -> None:
        """Save where it ended, unless it was stopped within an epoch."""
        if self._state is not None:  # Nothing was left to train.
            self._put_back()
        if self._trained and not self._stopped_inside:
            self._writer.wait()
            self._save(
                self._epoch, 0, over=bool(self.model.stop_training and not self._stopped_before_end)
            )
        self._writer.wait()

    # --- the state ---

    @property
    def _running(self) -> Fit:
        assert self._fit is not None, "Keras calls on_train_begin first"
        return self._fit

    def _now(self) -> dict[str, Any]:
        assert self._running.sequence is not None
        return self._running.sequence.state_dict()

    @property
    def _callbacks(self) -> list[Any]:
        """The others, and the history, which Keras adds by itself."""
        others = self._running.callbacks
        history = getattr(self.model, "history", None)
        return others if history is None or history in others else [*others, history]

    def _notice_stop(self) -> None:
        """Where training was stopped within an epoch it can go on from there, and is saved."""
        steps = (self.params or {}).get("steps")
        inside = self._trained and steps is not None and 0 < self._next_step < steps
        if self._trained and not inside and self.model.stop_training:
            self._stopped_before_end = True  # By somebody who didn't wait for the epoch's end.
        if inside and self.model.stop_training and not self._stopped_inside:
            self._stopped_inside = True
            self._writer.wait()
            self._position = None
            self._save(self._epoch, self._next_step)

    def _save(self, epoch: int, step: int, over: bool = False) -> None:
        if self._writer.busy or not self._lock.writes:
            return
        state = modelstate.state_of(self.model)
        if (spoiled := modelstate.not_finite(self.model, state)) is not None:
            self._warn_of(spoiled)
            self._schedule.saved()  # To look again when the next one is due.
            return
        fit = self._running
        position = self._now() if self._position is None else self._position
        value = {
            "epoch": epoch,
            "step": step,
            "over": over,
            "epochs": fit.epochs,
            "sequence": position,
            "data": _data_of(fit),
            "validation": None if fit.validation is None else fit.validation.epoch,
            "keras": keras.__version__,
            "backend": keras.backend.backend(),
            **state,
            "callbacks": callbackstate.states_of(self._callbacks),
        }
        self._writer.write(f"{epoch:06d}-{step:09d}", value)
        self._schedule.saved()

    def _warn_of(self, spoiled: str) -> None:
        """Say once in a ``fit`` that nothing can go on from these weights."""
        if not self._spoiled:
            self._spoiled = True
            log.warning(
                "%s has values that are NaN or infinite: nothing is saved in %s as long as that is "
                "so, and the next fit goes on from what was saved before",
                spoiled,
                self._folder.path,
            )

    def _check_data(self) -> None:
        assert self._state is not None
        made, here = self._state.get("data", {}), _data_of(self._running)
        check_order(made, here, self._state["sequence"], self._folder.path)

    def _put_back(self) -> None:
        assert self._state is not None
        modelstate.set_state(
            self.model,
            self._state,
            metrics=self._state["step"] > 0,
            generators=self._lock.rank == 0,
        )
        callbackstate.restore(self._callbacks, self._state["callbacks"])


def _check_keras() -> None:
    """Check that Keras can begin within an epoch.

    Raises:
        ImportError: It can't, or not in a way that is known here.
    """
    if absent := internals.missing_to_continue():
        raise ImportError(
            "Resume needs a Keras that can begin within an epoch, 3.9 or newer: Keras "
            f"{keras.__version__} has no {', '.join(absent)}"
        )


def _data_of(fit: Fit) -> dict[str, Any]:
    """What tells the data from others."""
    assert fit.sequence is not None
    order = fit.sequence._settled()._plan.order
    permuted = bool(fit.shuffle and not order.shuffle and not fit.sequence._endless)
    return {**order.fingerprint(), "shuffle of fit": permuted}
