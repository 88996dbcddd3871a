"""Reading ahead in a Keras whose private names have moved: by public names alone.

``reading_ahead`` wraps ``fit``, ``evaluate`` and ``predict`` of ``keras.Model``. For a call, a
``ReadAhead`` stands in the place of each ``SafeSequence`` that is given, ``shuffle`` is False for
Keras, as the order is ours, and a callback says what the trainer does. Keras's own adapter,
whatever it is like, then asks the ``ReadAhead`` for batches 0, 1, 2 and so on, in each pass anew;
the k-th that it asks for is the k-th of a stream that workers fill.

    fit(sequence) --> fit(ReadAhead) --> Keras's adapter --0, 1, 2--> ReadAhead --> Stream

Keras asks from one thread at a time, on TensorFlow one that isn't Python's. What it asks for before
the trainer begins is for the signature, or builds the model, and stays the next batch. A number
that is not the next one is answered with that batch, which the asking thread computes.
"""

from __future__ import annotations

import functools
import inspect
import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from adapters.batch.key import WHOLE, Continuation
from adapters.engine import Stream, raise_as_itself
from adapters.errors import ClosedError
from adapters.keras.arguments import check_steps
from adapters.keras.hooks import turn
from adapters.keras.internals import tensorflow
from adapters.keras.progress import Account, left_after, place_after
from adapters.keras.sequence import SafeSequence

# Batches that are asked for before the trainer begins.
_PROBED = 2
_PHASES = {"fit": "train", "evaluate": "test", "predict": "predict"}
_STEPS = {"fit": "steps_per_epoch", "evaluate": "steps", "predict": "steps"}


class ReadAhead(keras.utils.PyDataset):  # type: ignore[misc]
    """A ``SafeSequence`` within one ``fit``, ``evaluate`` or ``predict``.

    ``end`` and ``interrupt`` may come from any thread, also while another waits for a batch, which
    then gets a ``ClosedError``.

    Args:
        sequence: What is read. Whoever calls keeps it; this doesn't, as Keras may keep this.
        shuffle: Permute the batches of an epoch as wholes; of no use where the samples are
            permuted already, or no epoch has an end.
        steps: Of an epoch, as Keras counts it; None for the length of the sequence.
        trains: It is what ``fit`` trains on.
    """

    def __init__(
        self, sequence: SafeSequence, shuffle: bool, steps: int | None, trains: bool
    ) -> None:
        super().__init__()
        self._engine = sequence._engine
        self._source = sequence._source
        self._progress = sequence._progress
        self._endless = sequence._endless or steps is not None
        self._shuffled = (
            bool(shuffle) and not sequence._endless and not sequence._plan.order.shuffle
        )
        self._turns = sequence._endless and sequence._plan.own_epochs
        self._lock = threading.Lock()
        self._account: Account | None = None
        self._stream: Stream | None = None
        self._stamp = -1
        self._aside, self._trains = False, trains
        self._offset = 0
        self._running = self._within = False
        self._closed = threading.Event()
        self._begun = self._begun_before = 0
        self.error: BaseException | None = None
        """What a batch raised."""
        if keras.backend.backend() == "tensorflow":
            self._engine.ahead_elsewhere = 2  # One in its buffer, one on its way there.
        self._reads = True
        self._engine.retain()

    @property
    def num_batches(self) -> int | None:
        """Batches that Keras may ask for in a pass; None for one that goes on over the epochs."""
        num_batches = self._engine.plan.num_batches
        if self._endless or num_batches is None:
            return None
        # The iterator of a pass asks when it begins, which may be within an epoch; whoever asks
        # before that wants to know the length of all of them.
        return num_batches - (self._start()[1] if self._running else 0)

    def __getitem__(self, index: int) -> Any:
        """The next batch, if Keras asks in turn.

        Raises:
            Exception: What its computation raised.
            ClosedError: The call is over.
        """
        number = operator.index(index)
        with self._lock:
            try:
                batch = self._batch(number) if self._running else self._probed(number)
                # As Keras's own adapters do it; in Keras 3.6 by the name that may have moved.
                return (batch,) if isinstance(batch, np.ndarray) else batch
            except BaseException as error:
                if not self._closed.is_set():
                    self.error = error
                raise_as_itself(error)

    def on_epoch_begin(self) -> None:
        """Keras begins an epoch; what the trainer takes from now on is of the next pass."""
        self._progress.look()
        self._begun_before = self._begun
        self._within = self._running

    def on_epoch_end(self) -> None:
        """Keras ends an epoch, or forgets its iterators before the first."""
        self._settle()
        if self._turns and self._within and self._begun > self._begun_before:
            turn(self._engine, self._source)
        self._within = False

    def read_aside(self) -> None:
        """Move nothing, as another call reads the sequence within which this one does."""
        self._aside = True

    # --- the trainer's word, by the callback ---

    def run(self) -> None:
        """The trainer begins: what is asked for from now on is what it takes."""
        self._running = True

    def pause(self) -> None:
        """The trainer has come to its end, as each validation does."""
        self._running = False

    def begin_batches(self, count: int) -> None:
        """The trainer takes so many batches."""
        self._begun += count

    # --- the end ---

    def interrupt(self) -> None:
        """Have whoever waits for a batch go without one."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def end(self) -> None:
        """The call is over, in whatever way."""
        if self._reads:
            self._reads = False
            self._leave()
            self.interrupt()
            self.error = None  # Its traceback refers to the frames of the call.
            self._engine.release()

    # --- batches ---

    def _batch(self, number: int) -> Any:
        if self._account is None or (number == 0 and self._account.taken):
            self._begin(number)
        account, stream = self._account, self._stream
        assert account is not None
        assert stream is not None
        if number - self._offset != account.taken:
            return self._computed(account.epoch, account.step, number - self._offset)
        batch = stream.next()
        self._progress.hand_out(account)
        return batch

    def _begin(self, number: int) -> None:
        # Keras 3.6 keeps the iterator that it has built the model with: not 0 then.
        start = self._place(*self._start(), number)
        self._leave()
        self._account = account = self._progress.begin(start, self._aside)
        account.shuffled = self._shuffled
        self._stamp, before = self._progress.stamp, self._begun_before
        account.count = lambda: min(account.taken, self._begun - before)
        self._progress.follow(account)
        self._offset = number
        self._open(start)

    def _settle(self) -> None:
        self._progress.look()
        # But for set_epoch and load_state_dict, which have the last word.
        if self._account is not None and self._stamp == self._progress.stamp:
            self._progress.advance_past(self._account)

    def _leave(self) -> None:
        """The pass is over."""
        if self._account is not None:
            self._settle()
            self._progress.finish(self._account)

    def _open(self, start: tuple[int, int]) -> Stream:
        """The stream that stands there: the one that was read, if it has come just so far."""
        if self._closed.is_set():
            raise ClosedError("a batch was asked for after the end of the call that it is for")
        if self._stream is not None:
            self._engine.park(self._stream)
        self._stream = self._engine.stream(*start, self._shuffled, self._continuation)
        if self._closed.is_set():  # Meanwhile.
            self._stream.close()
        return self._stream

    def _start(self) -> tuple[int, int]:
        # The epochs of one fit follow on each other, whatever else is done with the sequence in
        # between, such as evaluating it in a callback; but for set_epoch and load_state_dict.
        if self._aside and (self._account is None or not self._trains):
            return self._progress.start[0], 0
        if self._account is not None and self._stamp == self._progress.stamp:
            return self._account.start_of_next
        return self._progress.start

    def _probed(self, number: int) -> Any:
        """A batch that stays the next one, or the one after."""
        epoch, step = start = self._start()
        if number >= _PROBED:
            return self._computed(epoch, step, number)
        stream, left = self._open(start), left_after(step, self._engine.plan.num_batches)
        batch = stream.peek(int(min(number + 1, left)))[-1]
        self._engine.batches_left = left
        if self._engine.depth:
            self._engine.start_workers()  # Not from a thread of TensorFlow's.
        return batch

    def _place(self, epoch: int, step: int, further: int) -> tuple[int, int]:
        return place_after(epoch, step, further, self._engine.plan.num_batches)

    def _computed(self, epoch: int, step: int, further: int) -> Any:
        if self._closed.is_set():
            raise ClosedError("a batch was asked for after the end of the call that it is for")
        epoch, step = self._place(epoch, step, further)
        number = self._engine.plan.shuffled if self._shuffled else None
        self._engine.enter_epoch(epoch)
        return self._engine.compute(self._continuation.key(epoch, step, number)).batch

    @property
    def _continuation(self) -> Continuation:
        return WHOLE if self._aside else self._progress.continuation


class _Trainer(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells each ``ReadAhead`` what the trainer does; by "train", "test" and "predict".

    Only ``on_*_batch_begin`` is called before the next batch on every backend: what comes after a
    batch may be dispatched to a thread.
    """

    def __init__(self, readers: Mapping[str, ReadAhead]) -> None:
        super().__init__()
        self._readers = readers

    def _run(self, phase: str) -> None:
        if phase in self._readers:
            self._readers[phase].run()

    def _begin_batches(self, phase: str) -> None:
        if phase in self._readers:
            together = getattr(self.model, "steps_per_execution", 1)
            self._readers[phase].begin_batches(int(together))

    def on_train_begin(self, logs: Any = None) -> None:
        self._run("train")

    def on_test_begin(self, logs: Any = None) -> None:
        self._run("test")

    def on_predict_begin(self, logs: Any = None) -> None:
        self._run("predict")

    def on_test_end(self, logs: Any = None) -> None:
        if "test" in self._readers:
            self._readers["test"].pause()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_batches("train")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_batches("test")

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_batches("predict")


def known(method: Callable[..., Any]) -> bool:
    """Whether a method of ``keras.Model`` has the arguments that are needed here."""
    needed = {"self", "x", "callbacks", _STEPS[method.__name__]}
    if method.__name__ == "fit":
        needed |= {"shuffle", "validation_data", "validation_steps"}
    return set(inspect.signature(method).parameters) >= needed


def reading_ahead(
    method: Callable[..., Any], began: Callable[[ReadAhead], None]
) -> Callable[..., Any]:
    """The same method, with a ``ReadAhead`` in the place of each ``SafeSequence``.

    Args:
        method: ``fit``, ``evaluate`` or ``predict`` of ``keras.Model``.
        began: Is given each; whose ``end`` it shall call when the call is over.
    """
    signature, name = inspect.signature(method), method.__name__

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # Says what is wrong.
        given.apply_defaults()
        readers = _put_in_place(given.arguments, name, began)
        if not readers:
            return method(*args, **kwargs)
        try:
            return method(*given.args, **given.kwargs)
        except Exception as problem:
            # TensorFlow wraps what a batch raises beyond recognition.
            if type(problem).__module__.startswith("tensorflow"):
                for reader in readers.values():
                    if reader.error is not None:
                        raise_as_itself(reader.error)
            raise

    return call


def _put_in_place(
    asked: dict[str, Any], name: str, began: Callable[[ReadAhead], None]
) -> dict[str, ReadAhead]:
    """Change the arguments of a call; which of its phases reads what."""
    places = [(_PHASES[name], "x", asked[_STEPS[name]])]
    if name == "fit":
        places.append(("test", "validation_data", asked["validation_steps"]))
    readers: dict[str, ReadAhead] = {}
    callbacks = asked["callbacks"]
    aside = isinstance(callbacks, keras.callbacks.CallbackList) or _distributed(asked["self"])
    for phase, place, given in places:
        data, steps = asked[place], given or None  # Keras takes 0 for none.
        if isinstance(data, SafeSequence):
            check_steps(data.num_batches, steps)
            if aside:
                continue
            shuffle = phase == "train" and asked["shuffle"]
            readers[phase] = asked[place] = reader = ReadAhead(
                data, shuffle, steps, phase == "train"
            )
            began(reader)
    if "train" in readers:
        asked["shuffle"] = False
    if readers:
        if not isinstance(callbacks, (list, tuple)):
            callbacks = [] if callbacks is None else [callbacks]
        # First, so that the others find what is so.
        asked["callbacks"] = [_Trainer(readers), *callbacks]
    return readers


def _distributed(model: Any) -> bool:
    """Whether Keras or TensorFlow may ask for a part of the batches, or reads ahead by itself."""
    distribution = keras.distribution.distribution()
    if distribution is not None and getattr(distribution, "auto_shard_dataset", True):
        return True
    if keras.backend.backend() != "tensorflow":
        return False
    distribute = tensorflow().distribute
    strategy = getattr(model, "distribute_strategy", None)
    return distribute.has_strategy() or strategy not in (None, distribute.get_strategy())
