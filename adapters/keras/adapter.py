"""How Keras reads a ``SafeSequence``: the adapter of one ``fit``, ``evaluate`` or ``predict``.

The order of calls that ``on_epoch_begin``, ``on_epoch_end`` and the iterators must make sense of
differs between backends and versions; tests/keras/ runs them all.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import keras

from adapters.batch.key import WHOLE
from adapters.engine import Stream, raise_as_itself
from adapters.errors import ClosedError
from adapters.keras.arguments import check_class_weight, check_one_output
from adapters.keras.batches import Signature, for_jax, for_tensorflow, remedy_of
from adapters.keras.dataset import Groups, small, tf_dataset
from adapters.keras.device import ReadingAhead, Transfer, for_torch, jax_transfer
from adapters.keras.fits import Fit
from adapters.keras.hooks import turn
from adapters.keras.internals import (
    PyDatasetAdapter,
    called_by,
    ends_builds,
    jax_lag,
)
from adapters.keras.progress import Account, left_after
from adapters.keras.sequence import SafeSequence

_inspected: weakref.WeakSet[SafeSequence] = weakref.WeakSet()
# Batches that TensorFlow's signature is taken from, as Keras does.
_BATCHES_FOR_SIGNATURE = 2


class SafeSequenceAdapter(PyDatasetAdapter):  # type: ignore[misc]
    """One ``fit``, ``evaluate`` or ``predict`` over a ``SafeSequence``.

    Keras asks for an iterator per epoch, or for one that goes on over all of them where
    ``steps_per_epoch`` is given; that one has no end. Workers that were started end with the
    adapter.

    Args:
        x: What is read.
        class_weight: As in ``fit``.
        shuffle: Permute the batches of an epoch as wholes; of no use where the samples are
            permuted already, or no epoch has an end.
        steps: Of an epoch, as Keras counts it; None for the length of the sequence.
    """

    def __init__(
        self,
        x: SafeSequence,
        class_weight: Any = None,
        shuffle: bool = False,
        steps: int | None = None,
    ) -> None:
        check_class_weight(class_weight)
        shuffle = bool(shuffle) and not x._endless
        super().__init__(x, class_weight=class_weight, shuffle=shuffle)
        # Keras leaves its iterators in reference cycles when training is stopped; they must not
        # keep the sequence, and with it the workers, from going when its last user lets go.
        self.py_dataset = weakref.proxy(x)
        self._engine = x._engine
        self._source = x._source
        self._shuffled = shuffle and not x._plan.order.shuffle
        self._endless = x._endless or steps is not None
        self._turns = x._endless and x._plan.own_epochs
        self._steps = steps
        self._progress = x._progress
        self._stamp = -1
        self._aside = self._trains = False
        self._last_epoch = 0
        self._account: Account | None = None
        self._batches: weakref.ref[_Batches] | None = None
        self._within = False
        self._used = False
        self._confirmed = False
        self._on_tensorflow = False
        self._lag = 0
        self._consumed: Any = None
        self._signature: Signature | None = None
        self._error: BaseException | None = None
        self.fit: Fit | None = None
        """What the adapter was made for, if a callback was told of it."""
        self._inspection: Any = None
        self._sequence = weakref.ref(x)
        self._engine.retain()
        self._reads = True

    def read_aside(self) -> None:
        """Move nothing, as another call reads the sequence within which this one does."""
        self._aside = True

    def expect(self, epochs: int) -> None:
        """The call trains for so many epochs, if nothing ends it before."""
        self._trains = True
        self._last_epoch = self._progress.start[0] + epochs - 1

    def end(self) -> None:
        """The call that this adapter was made for is over, in whatever way."""
        if self._reads:
            if self._account is not None and self._account.count is not None:
                self._progress.finish(self._account)
            self._let_go()
            if not (self._aside or self._engine.plan.own_epochs):
                self._progress.settle()

    def _let_go(self) -> None:
        self._reads = False
        self._close_batches()
        if self._account is not None:
            self._progress.leave(self._account)
        self._engine.batches_after = 0
        self._engine.release()

    def inspect(self, model: Any) -> None:
        """Look at the first batches that this model is trained on, once for each sequence."""
        sequence = self._sequence()
        if sequence is None or sequence in _inspected or sequence.epoch or sequence._measured:
            return
        from adapters.viewing import Inspection

        _inspected.add(sequence)
        shuffled = sequence._plan.order.shuffle or self._source.whole_batches
        self._inspection = Inspection(shuffled, self._source)

    def interrupt(self) -> None:
        """Have whoever waits for a batch go without one; from any thread."""
        self._close_batches()

    def __del__(self) -> None:
        if getattr(self, "_reads", False):  # TensorFlow, which counts, may be gone.
            self._let_go()

    @property
    def num_batches(self) -> int | None:
        """Batches that Keras may ask an iterator for; None for an endless one."""
        return None if self._endless else self._engine.plan.num_batches

    @property
    def done(self) -> int:
        """Batches of the epoch that begins that need not be delivered any more."""
        if self._endless:
            return self.fit.steps_done if self.fit is not None else 0
        return (self._next_start() or self._progress.start)[1]

    def on_epoch_begin(self) -> None:
        """Keras begins an epoch, or the symbolic build that looks like one."""
        self._within, self._used = True, False
        self._progress.look()
        if self._endless and self._account is not None and self._stamp == self._progress.stamp:
            self._progress.go_on(self._account)  # Its batches may have been handed out before.

    def on_epoch_end(self) -> None:
        """Keras ends an epoch, or forgets its iterators before the first.

        Raises:
            Exception: What a batch raised; TensorFlow would have wrapped it beyond recognition.
        """
        self._progress.look()
        self.raise_error()
        if self._within and self._steps_left == 1 and ends_builds() and not called_by("reset"):
            self._confirmed = (
                True  # An epoch of one step, which asks for no more than a build does.
            )
        if self._account is not None and not (self._within and self._may_be_probe(self._account)):
            self._progress.advance_past(self._account)
            # TensorFlow may have read all batches of this epoch within the one before.
            if self._turns and self._within and (self._used or self._on_tensorflow):
                turn(self._engine, self._source)
        elif self._account is not None and (self._steps_left != 1 or called_by("reset")):
            self._account.forget()  # Keras has built the model with it, or its metrics.
        self._within = False

    def raise_error(self) -> None:
        """Raise what a batch has raised, if TensorFlow was told no more than that the data end."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # The traceback would refer to it through this frame, in a circle.

    def _may_be_probe(self, account: Account) -> bool:
        """Whether the pass may be the symbolic build of JAX and PyTorch.

        That takes one batch, and never asks on at what may be an epoch's end; where Keras puts
        batches on a GPU for JAX, it has the next one, too, or has asked for it.
        """
        known = self._on_tensorflow or self._confirmed or (self._turns and self._steps_left == 1)
        return account.consumed == 1 and not known

    @property
    def _steps_left(self) -> int | None:
        """Of the epoch that begins, as Keras counts it; None for the length of the sequence."""
        return self._steps and self._steps - self.done

    def _get_iterator(self, transfer: Transfer | None = None) -> Iterator[Any]:
        # Keras asks for the next iterator when an epoch has come to its end, still within it.
        if self._account is not None and self._within and self._used:
            self._progress.advance_past(self._account)
            self._confirmed, self._within = True, False
        return _Batches(self, transfer)

    def on_the_device(self) -> Iterator[Any] | None:
        """The batches on JAX's GPU before the trainer asks for them; None if Keras copies them."""
        epoch, step = self._next_start() or self._progress.start
        further = math.inf if self._endless else max(0, self._last_epoch - epoch)
        batches = (1 + further) * (self._engine.plan.num_batches or math.inf) - step
        transfer = jax_transfer(batches, self._engine.window)
        # What isn't asked for yet may be of the next epoch, which has other batches once it begins.
        if transfer is None or (self._endless and self._engine.plan.own_epochs):
            return None
        self._lag = 0
        return self._get_iterator(transfer)

    def get_jax_iterator(self) -> Iterator[Any]:
        """The batches, whose NumPy arrays are what JAX takes."""
        self._lag = jax_lag()
        return map(for_jax, self._get_iterator())

    def get_torch_dataloader(self) -> Iterator[Any]:
        """The batches as tensors on Keras's device; no ``DataLoader`` is needed for that."""
        if keras.backend.backend() != "torch":
            return super().get_torch_dataloader()  # type: ignore[no-any-return]
        return map(for_torch, self._get_iterator())

    def get_tf_dataset(self) -> Any:
        """The batches as a ``tf.data.Dataset``, see ``dataset``."""
        if keras.backend.backend() != "tensorflow":
            return super().get_tf_dataset()
        self._on_tensorflow = True
        # What isn't asked for yet may be of the next epoch, which has other batches once it begins.
        ahead = not (self._endless and self._engine.plan.own_epochs)
        # One in the prefetch buffer, one on its way there.
        self._engine.ahead_elsewhere = 2 if ahead else 0
        stream = self._open_stream(self._next_start())
        try:
            left = left_after(stream.position[1], self._engine.plan.num_batches)
            peeked = stream.peek(int(min(_BATCHES_FOR_SIGNATURE, left)))
            self._engine.batches_left = left
            if self._engine.depth:
                self._engine.start_workers()
        except BaseException:
            stream.close()
            raise
        self._engine.park(stream)
        batches = [self._ready(batch) for batch in peeked]
        longer = map(self._ready, self._engine.plan.longer(stream.position[0]))
        self._signature = signature = Signature([*batches, *longer], remedy_of(self._engine.plan))
        this, grouped = weakref.ref(self), ahead and small(batches)

        def iterator() -> Iterator[Any]:
            adapter = this()
            if adapter is None:
                return iter(())
            batches, engine = adapter._get_iterator(), adapter._engine
            return Groups(batches, lambda: engine.room) if grouped else batches

        dataset, self._consumed = tf_dataset(iterator, signature.specs, grouped, ahead)
        return dataset

    def _ready(self, batch: Any) -> Any:
        """The batch as Keras wants it."""
        if self.class_weight is not None:
            check_one_output(batch)
        batch = self._standardize_batch(batch)
        return for_tensorflow(batch) if self._on_tensorflow else batch

    def _begin(self) -> tuple[Account, Stream]:
        """Start a pass; what an earlier one of this adapter has under way is let go."""
        self._close_batches()
        start = self._next_start()
        if self._account is not None and self._account.count is not None:
            self._progress.finish(self._account)
        self._confirmed = False
        self._account = self._progress.begin(start, self._aside)
        self._account.shuffled = self._shuffled
        self._stamp = self._progress.stamp
        if self._consumed is not None:
            counter, before = self._consumed, int(self._consumed.numpy())
            self._account.count = lambda: int(counter.numpy()) - before
            self._progress.follow(self._account)
        self._account.lag = self._lag
        return self._account, self._open_stream((self._account.epoch, self._account.step))

    def _close_batches(self) -> None:
        batches = self._batches() if self._batches is not None else None
        if batches is not None:
            batches.close()

    def _next_start(self) -> tuple[int, int] | None:
        # The epochs of one fit follow on each other, whatever else is done with the sequence in
        # between, such as evaluating it in a callback; but for set_epoch and load_state_dict.
        if self._aside and (self._account is None or not self._trains):
            return self._progress.start[0], 0
        if self._account is None or self._stamp != self._progress.stamp:
            return None
        if self._may_be_probe(self._account):
            return self._account.epoch, self._account.step
        return self._account.start_of_next

    def _open_stream(self, start: tuple[int, int] | None) -> Stream:
        epoch, step = start or self._progress.start
        continuation = WHOLE if self._aside else self._progress.continuation
        if not (self._aside or self._endless):
            further = max(0, self._last_epoch - epoch)
            self._engine.batches_after = further * (self._engine.plan.num_batches or 0)
        return self._engine.stream(epoch, step, self._shuffled, continuation, self._aside)


class _Batches(ReadingAhead):
    """The iterator that Keras reads; TensorFlow does so from a thread of its own.

    TensorFlow may keep it long after the adapter is gone.
    """

    def __init__(self, adapter: SafeSequenceAdapter, transfer: Transfer | None = None) -> None:
        super().__init__(adapter._engine, transfer)
        self._owner = weakref.ref(adapter)
        self._account: Account | None = None
        self._finished = False

    @property
    def _adapter(self) -> SafeSequenceAdapter:
        adapter = self._owner()
        assert adapter is not None
        return adapter

    def _next(self) -> Any:
        adapter = self._owner()  # Which stays as long as somebody waits for a batch here.
        if adapter is None:
            raise StopIteration
        batch = self._fetch_ahead()
        assert self._account is not None
        adapter._used = True
        if adapter.fit is not None:
            adapter.fit.hands_out(self._account.place, batch)
        adapter._progress.hand_out(self._account)
        return batch

    def _begin(self) -> Stream:
        adapter = self._adapter
        self._account, stream = adapter._begin()
        adapter._batches = weakref.ref(self)
        if not adapter._endless:
            self._left = self._account.left
        return stream

    @property
    def _parks(self) -> bool:
        if self._finished:
            return True
        own_epochs = self._engine.plan.own_epochs
        return self._account is not None and not (self._account.left or own_epochs)

    def _made(self, batch: Any) -> Any:
        adapter = self._owner()
        assert adapter is not None
        assert self._account is not None
        batch = adapter._ready(batch)
        if adapter._signature is not None:
            batch = adapter._signature.checked(batch, self._account)
        if adapter._inspection is not None and not adapter._inspection.done:
            adapter._inspection.look(batch)
        return batch

    def _finish(self) -> None:
        """The epoch has been handed out; on TensorFlow the trainer may not have seen it yet."""
        adapter = self._adapter
        assert self._account is not None
        self._finished = True
        # Who reads ahead asks on before anybody has the only batch, who builds the model included.
        asked_early = adapter._lag and self._account.taken == 1
        adapter._confirmed = not (asked_early and ends_builds())
        self._account.lag = 0
        if not adapter._on_tensorflow and not adapter._lag:
            adapter._progress.advance_past(self._account)
        self.close()

    def _fail(self, error: BaseException) -> NoReturn:
        adapter = self._adapter
        try:
            if not adapter._on_tensorflow:
                raise_as_itself(error)
            if not isinstance(error, ClosedError):
                adapter._error = error
            raise StopIteration from error
        finally:
            del error  # Its traceback would refer to it through this frame, in a circle.
