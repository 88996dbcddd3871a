"""``Resume``: a callback that continues a killed ``fit`` bit for bit.

A training is saved before an epoch or between two batches, when all callbacks have handled what
came before: ``Resume`` runs before all others, see ``patches``, and saves in ``on_epoch_begin`` and
``on_train_batch_begin``. It restores the saved state at the same two places, which overrides
whatever other callbacks reset in ``on_train_begin``.

    fit --> fit_begins: read the newest file, move the sequences, set ``initial_epoch``
        --> on_train_begin: restore the weights
        --> on_epoch_begin, or on_train_batch_begin within an epoch: restore everything again
        --> batches; at each interval copy the state, which a thread writes
        --> on_train_end: save once more
"""

from __future__ import annotations

import logging
import os
from typing import Any

import keras

from adapters.arguments import check_integer
from adapters.keras import internals, trainingstate
from adapters.keras.patches import Call, FitCallback
from adapters.remote.urls import local_path
from adapters.resuming.checkpoint_dir import CheckpointDir, check_order

log = logging.getLogger("adapters")


class Resume(FitCallback):
    """Saves a training while it runs, so that ``fit`` continues it exactly after a crash.

    ``fit`` resumes from the newest file in the folder, or starts from scratch if there is none. The
    losses of the following batches equal those of an uninterrupted run, bit for bit on the same
    backend and kind of device, for any number of workers. Saved are:

    - the weights, the optimizer, and the metrics of the epoch so far,
    - Keras's epoch and batch,
    - the positions of the ``SafeSequence`` for training and of the one for validation,
    - the state of Keras's callbacks, and of others with ``state_dict()`` and
      ``load_state_dict(state)``,
    - the random generators: Keras's, ``random``, ``numpy.random`` and PyTorch's.

    If weights become NaN or infinite, nothing is saved, with a WARNING.

    A finished training stays finished: another ``fit`` continues only if it has more ``epochs``.
    Use a new folder for a new training. The processes of a job share a folder if the data of each
    has its ``shard``: rank 0 writes, all read. A folder that another training uses is refused.

    Args:
        folder: Folder of the files, created if needed.
        every: Interval between saves: seconds (30), or text, ``"5 min"``, ``"500 batches"`` or
            ``"1 epoch"``.
        keep: Number of files to keep.

    Raises:
        ImportError: In ``fit``: this Keras can't start within an epoch.
        OSError: In ``fit``: a file can't be read.
        RuntimeError: In ``fit``: another training uses the folder.
        TypeError: An argument has the wrong type, or ``fit`` trains on no ``SafeSequence``.
        ValueError: An argument is out of range; or in ``fit``, all files are damaged, another
            callback sets the start, the model or the data differs from that of the saved training,
            or ``steps_per_epoch`` is too small.

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
        self._folder = CheckpointDir(local_path(folder, "folder"), int(keep), every)
        self._fit: Any = None
        """Running ``Call``; None outside of ``fit``."""
        self._state: Any = None
        """Saved state that has to be restored; None once that is done."""
        self._epoch = self._next_step = 0
        self._trained = self._stopped_inside = self._stopped_before_end = self._spoiled = False
        self._has_warned = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._folder.path}>"

    # --- the call ---

    def fit_begins(self, fit: Call) -> None:
        """Read the saved state, and move the sequences to their saved positions."""
        if fit.sequence is None:
            raise TypeError(
                "fit must train on a SafeSequence for Resume to know which batch comes next: "
                "wrap the data, SafeSequence((x, y), batch_size)"
            )
        _check_keras()
        if fit.sequence._endless and fit.sequence._plan.changes_between_epochs:
            raise ValueError(
                "source must have a length for Resume, or no on_epoch_begin and on_epoch_end: how "
                "often they have been called isn't known of one without an end"
            )
        if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in fit.callbacks):
            raise ValueError(
                "callbacks must not have BackupAndRestore beside Resume, as both say where fit "
                "begins: leave it out"
            )
        self._fit = fit
        self._trained = self._stopped_inside = self._stopped_before_end = self._spoiled = False
        rank = fit.sequence._with_length()._plan.order.shard[0]
        self._state = state = self._folder.begin(rank)
        if state is None:
            # fit starts at the start of the next pass, not within an abandoned one.
            progress = fit.sequence._progress
            progress.move(*progress.next_start(), progress.resumed)
            return
        steps = fit.steps_per_epoch
        if steps is not None and state["step"] >= steps:
            raise ValueError(
                f"steps_per_epoch must be above {state['step']}, the batches of its epoch that "
                f"the training in {self._folder.path} has had, got {steps}"
            )
        try:
            fit.sequence.load_state_dict(state["sequence"])
        except ValueError:
            self._check_data()  # Raises a more specific error.
            raise
        epochs_over = fit.sequence.epoch - state["sequence"]["epoch"]
        if epochs_over and steps is None:
            # With this number of shards, nothing is left of the saved epoch.
            self._state = state = {**state, "epoch": state["epoch"] + epochs_over, "step": 0}
        validation = None if fit.validation is fit.sequence else fit.validation
        if validation is not None and state["validation"] is not None:
            validation.set_epoch(state["validation"])
        # A training that was stopped early stays over, unless fit has more epochs than before.
        over = state["over"] and fit.epochs <= state["epochs"]
        fit.initial_epoch = max(state["epoch"], fit.epochs) if over else state["epoch"]
        if fit.initial_epoch >= fit.epochs:
            log.warning(
                "nothing is left to train: the training in %s has ended at epoch %d, and fit only "
                "loads its weights; call fit once with more epochs, or give Resume another folder",
                self._folder.path,
                state["epoch"],
            )
            return
        log.info(
            "the training in %s resumes at epoch %d, batch %d",
            self._folder.path,
            state["epoch"],
            state["step"],
        )

    def fit_ends(self, fit: Call) -> None:
        """Finish the file that is being written, however ``fit`` ends."""
        self._fit = self._state = None
        self._folder.end()

    # --- Keras's hooks ---

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the model's weights."""
        if self._fit is None:
            _check_keras()
            raise RuntimeError(
                "Resume must be given to fit of a keras.Model, and needs to know of the call, "
                "which ADAPTERS_STOCK_KERAS=1 prevents (unset it), or another package that has put "
                "back Keras's own fit (import adapters.keras before that one)"
            )
        if self._state is not None:
            if trainingstate.unbuilt(self.model) is not None:
                internals.build(self.model, self._fit.sequence[0])
            self._put_back()
            self._check_data()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Restore the state that was saved before this epoch, or save."""
        self._epoch, self._next_step, self._fit.steps_done = epoch, 0, 0
        if self._state is not None and self._state["step"]:  # Restored in on_train_batch_begin.
            self._next_step = self._fit.steps_done = self._state["step"]
        else:
            self._restore_or_save(0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Restore the state that was saved before this batch, or save."""
        if self._trained:
            self._folder.lock.check_writer()
        if batch or self._state is not None:  # Else it was saved in on_epoch_begin.
            self._restore_or_save(batch)
        together = int(getattr(self.model, "steps_per_execution", 1))
        self._folder.schedule.count(together)
        self._next_step, self._trained = batch + together, True

    def on_test_begin(self, logs: Any = None) -> None:
        """Save a training that was stopped within an epoch, before validation resets metrics."""
        self._notice_stop()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note the end of an epoch, and save if the training was stopped within it."""
        self._notice_stop()
        self._fit.steps_done = 0
        self._epoch, self._next_step = epoch + 1, 0
        self._folder.schedule.count_epoch()

    def on_train_end(self, logs: Any = None) -> None:
        """Save the end of the training, unless it was stopped within an epoch."""
        if self._state is not None:  # Nothing was left to train.
            self._put_back()
        if self._trained and not self._stopped_inside:
            over = bool(self.model.stop_training and not self._stopped_before_end)
            self._folder.wait()
            self._save(self._epoch, 0, over)
        self._folder.wait()

    # --- the state ---

    @property
    def _callbacks(self) -> list[Any]:
        """Callbacks whose state is saved, including the ``History`` that Keras adds."""
        others: list[Any] = self._fit.callbacks
        history = getattr(self.model, "history", None)
        return others if history is None or history in others else [*others, history]

    def _notice_stop(self) -> None:
        """Save the training if it was stopped within an epoch, so that it can resume there."""
        steps = (self.params or {}).get("steps")
        inside = self._trained and steps is not None and 0 < self._next_step < steps
        if self._trained and not inside and self.model.stop_training:
            self._stopped_before_end = True  # Stopped by a callback before on_epoch_end.
        if inside and self.model.stop_training and not self._stopped_inside:
            self._stopped_inside = True
            self._folder.wait()
            self._save(self._epoch, self._next_step)

    def _save(self, epoch: int, step: int, over: bool = False) -> None:
        if not self._folder.ready:
            return
        state = trainingstate.state_of(self.model)
        if (spoiled := trainingstate.not_finite(self.model, state)) is not None:
            self._folder.schedule.saved()  # Check again at the next interval.
            if not self._spoiled:
                log.warning(
                    "%s has values that are NaN or infinite: nothing is saved in %s as long as "
                    "that is so, and the next fit resumes from what was saved before",
                    spoiled,
                    self._folder.path,
                )
            self._spoiled = True
            return
        fit = self._fit
        value = {
            "epoch": epoch,
            "step": step,
            "over": over,
            "epochs": fit.epochs,
            "sequence": fit.sequence.state_dict(),
            "data": _data_of(fit),
            "validation": None if fit.validation is None else fit.validation.epoch,
            "keras": keras.__version__,
            "backend": keras.backend.backend(),
            **state,
            "callbacks": trainingstate.callback_states(self._callbacks),
        }
        self._folder.write(f"{epoch:06d}-{step:09d}", value)

    def _check_data(self) -> None:
        here = _data_of(self._fit)
        check_order(self._state["data"], here, self._state["sequence"], self._folder.path)

    def _restore_or_save(self, step: int) -> None:
        if self._state is not None:
            self._put_back()
            self._state = None
            self._folder.schedule.saved()
        elif self._folder.schedule.due:
            missing = trainingstate.unbuilt(self.model)
            if missing is None:
                self._save(self._epoch, step)
            elif self._trained and not self._has_warned:
                self._has_warned = True
                log.warning(
                    "the training can't be saved, as %s isn't built after its first batch: build "
                    "it before fit, as by optimizer.build(variables), or set self.built = True",
                    missing,
                )

    def _put_back(self) -> None:
        state, is_first = self._state, self._folder.lock.rank == 0
        trainingstate.set_state(self.model, state, metrics=state["step"] > 0, generators=is_first)
        trainingstate.restore_callbacks(self._callbacks, state["callbacks"])


def _check_keras() -> None:
    """Check that Keras can start within an epoch."""
    if absent := internals.missing_to_continue():
        raise ImportError(
            "Resume needs a Keras that can begin within an epoch, 3.9 or newer: Keras "
            f"{keras.__version__} has no {', '.join(absent)}"
        )


def _data_of(fit: Call) -> dict[str, Any]:
    """Fingerprint of the order of the training data."""
    order = fit.sequence._with_shard()._plan.order
    permuted = bool(fit.shuffle and not order.shuffle and not fit.sequence._endless)
    return {**order.fingerprint(), "shuffle of fit": permuted}
