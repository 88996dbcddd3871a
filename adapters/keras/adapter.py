"""Adapter through which one ``fit``, ``evaluate`` or ``predict`` reads a ``SafeSequence``."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from typing import Any

import keras

from adapters.batch.plan import WHOLE, Assembled
from adapters.engine import Stream
from adapters.keras.arguments import check_class_weight, check_one_output
from adapters.keras.device import for_jax, for_torch, most_in_a_transfer
from adapters.keras.hooks import next_keras_epoch
from adapters.keras.internals import (
    RAISES_AT_THE_END,
    SPLITS_EXECUTIONS,
    Adapter,
    ends_within,
    runs_eagerly,
    takes_elements,
    tensorflow,
)
from adapters.keras.progress import Cursor, Progress, is_read_by_a_call
from adapters.keras.reading import Batches, StagedBatches, StockView
from adapters.keras.sequence import SafeSequence

if keras.backend.backend() == "tensorflow":
    from adapters.keras import dataset

_inspected: weakref.WeakSet[SafeSequence] = weakref.WeakSet()
# Batches that TensorFlow's signature is taken from; Keras uses as many.
_BATCHES_FOR_SIGNATURE = 2


class SafeSequenceAdapter(Adapter):
    """One ``fit``, ``evaluate`` or ``predict`` over a ``SafeSequence``.

    Keras asks for one iterator per epoch, or with ``steps`` per epoch for a single endless one,
    unless it ``ends_within`` the data. Workers started for the adapter end with it. ``shuffle``
    permutes the batches of an epoch, unless the sequence shuffles its samples or is endless.
    ``call`` is the ``patches.Call`` that reads, None outside of one.
    """

    def __init__(
        self,
        x: SafeSequence,
        class_weight: Any = None,
        shuffle: bool = False,
        steps: int | None = None,
        call: Any = None,
    ) -> None:
        check_class_weight(class_weight)
        shuffle = bool(shuffle) and not x._endless
        super().__init__(StockView(x), class_weight=class_weight, shuffle=shuffle)
        # When training is stopped, Keras leaves its iterators in reference cycles. These must not
        # keep the sequence and its workers alive.
        self.py_dataset = weakref.proxy(x)
        self._engine = x._engine
        self._source = x._source
        self._shuffled = shuffle and not x._plan.order.shuffle
        together = getattr(call and call.model, "steps_per_execution", 1)
        self.trains = call is not None and call.trains and call.sequence is x and not call.readers
        """True if ``fit`` trains on what is read, and doesn't validate on the same sequence."""
        self._progress = x._progress
        self._secondary = is_read_by_a_call(self._progress)
        """True for a secondary pass: an enclosing call reads the same sequence."""
        may_go_on, batches = self.trains or call is None, x._engine.plan.num_batches
        # A single pass may start within an epoch, and ends with it.
        if batches is not None and not (may_go_on or call.trains or self._secondary):
            batches -= self._progress.next_start()[1]
        self._endless = x._endless or (
            steps is not None and not ends_within(steps, together, batches, may_go_on)
        )
        """True if one iterator runs over the ends of epochs."""
        self._ends_keras_epochs = x._endless and x._plan.changes_between_epochs
        """True if the source's hooks are called at the ends of Keras's epochs, as it has none."""
        # Not into the next epoch, whose hooks may still change its batches.
        self._may_read_ahead = not (self._endless and self._engine.plan.changes_between_epochs)
        self._steps = steps
        self._call = weakref.ref(call) if self.trains else None
        self._last_epoch = (
            self._progress.next_start()[0] + call.most_epochs - 1 if self.trains else 0
        )
        self._inspection = _inspection(x, call.model) if self.trains else None
        self._batches_per_report = 0
        """Batches that the trainer reports at once; 0 if it doesn't report any."""
        self._reported_in_epoch = 0
        """Batches that it has reported in this epoch of Keras."""
        self._cursor: Cursor | None = None
        self._batches: weakref.ref[Batches] | None = None
        self.trains_now = call is None
        """True once what is read is consumed, as Keras has built the model."""
        self._in_epoch = self._on_tensorflow = self._strategy = False
        takes = call is not None and takes_elements(call.model)
        self._model = weakref.ref(call.model) if takes else None
        """Model whose steps take batches from Python, on TensorFlow."""
        self.reads_elsewhere = False
        """True if a thread of TensorFlow reads, and the trainer may be behind."""
        self._signature: dataset.Signature | None = None
        self.errors: list[BaseException] = []
        """Error of a batch, which TensorFlow would wrap."""
        self._engine.retain()
        self._open = True
        """True until ``end``."""

    def end(self) -> None:
        """End the pass: the call is over, normally or by an exception."""
        if self._open:
            self._let_go()
            if not (self._secondary or self._engine.plan.changes_between_epochs):
                self._progress.advance_if_finished()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._let_go()

    def _let_go(self) -> None:
        self._open = False
        self.interrupt()
        self._engine.batches_after = 0
        self._engine.release()

    def interrupt(self) -> None:
        """Release a reader that waits for a batch. May be called from any thread."""
        batches = self._batches() if self._batches is not None else None
        if batches is not None:
            batches.close()

    def raise_error(self) -> None:
        """Raise the error of a batch as its own type."""
        if self.errors:
            raise self.errors.pop()  # No variable, which would be in a reference cycle with it.

    # --- what the trainer has consumed ---

    def reads(self, progress: Progress) -> bool:
        """True if the call is running and reads the sequence with this ``Progress``."""
        return self._open and self._progress is progress

    def expect_reports(self, batches: int) -> bool:
        """Prepare for a call of ``consume`` after every so many batches; False if it isn't due."""
        # Steps of a strategy of TensorFlow, which reads for several devices, aren't batches.
        self._batches_per_report = 0 if self._strategy else batches
        cursor = self._cursor
        if self._batches_per_report and cursor is not None and cursor.trained is None:
            # With steps_per_epoch, Keras 3.6 continues the pass that it has built the model
            # with, by one execution.
            cursor.trained = min(cursor.taken, batches)
        return self._batches_per_report > 0

    def consume(self, batches: int) -> None:
        """Count batches that the trainer has finished."""
        if self._steps and SPLITS_EXECUTIONS:
            batches = min(batches, self._steps - self._reported_in_epoch)
        self._reported_in_epoch += batches
        if self._cursor is not None:
            self._progress.consume(self._cursor, batches)

    # --- what Keras asks for ---

    @property
    def num_batches(self) -> int | None:
        """Number of batches that an iterator gives; None if it is endless."""
        return None if self._endless else self._engine.plan.num_batches

    @property
    def done(self) -> int:
        """Number of batches to skip at the start of this epoch: they were delivered before."""
        if not self._endless:
            return self._next_start()[1]
        call = self._call and self._call()
        return call.steps_done if call else 0

    def on_epoch_begin(self) -> None:
        """Handle the start of an epoch, or of a symbolic build, which looks like one."""
        self._in_epoch, self._reported_in_epoch = True, 0
        if self._engine.plan.check_length():
            self._engine.refresh()
        if self._endless and self._cursor is not None:
            self._progress.follow(self._cursor)  # Its batches may have been read ahead already.

    def on_epoch_end(self) -> None:
        """Handle the end of an epoch, or Keras's reset of its iterators before the first one."""
        if not RAISES_AT_THE_END:
            self.raise_error()
        if self._cursor is not None and self.trains_now:
            if self._batches_per_report > 1 and not (self._endless or self._cursor.left):
                # Keras 3.6 doesn't report a last execution with fewer steps. ``consume`` counts no
                # more batches than were read.
                self._progress.consume(self._cursor, self._batches_per_report - 1)
            self._progress.advance_past(self._cursor)
            # TensorFlow may have read all batches of this epoch during the previous one.
            if self._ends_keras_epochs and self._in_epoch:
                next_keras_epoch(self._engine, self._source)
        elif self._cursor is not None:
            self._cursor.taken = 0  # Keras has only built the model or its metrics with it.
        self._in_epoch = False

    def batches(self, most: int | None = None) -> Iterator[Any]:
        """Iterator of the next pass; with ``most``, up to so many are sent to JAX's GPU at once."""
        # Keras asks for the next iterator at the end of an epoch, before on_epoch_end.
        if self._cursor is not None and self.trains_now:
            self._progress.advance_past(self._cursor)
        return Batches(self) if most is None else StagedBatches(self, most)

    def on_the_device(self) -> Iterator[Any] | None:
        """Iterator over batches that are on JAX's GPU ahead of time; None if Keras copies them."""
        epoch, step = self._next_start()
        further = math.inf if self._endless else max(0, self._last_epoch - epoch)
        batches = (1 + further) * (self._engine.plan.num_batches or math.inf) - step
        most = most_in_a_transfer(batches, self._engine.most_ready)
        return self.batches(most) if most is not None and self._may_read_ahead else None

    def get_jax_iterator(self) -> Iterator[Any]:
        """Iterator over the batches as NumPy arrays, which JAX accepts."""
        return map(for_jax, self.batches())

    def get_torch_dataloader(self) -> Iterator[Any]:
        """Iterator over the batches as tensors on Keras's device, without a ``DataLoader``."""
        return map(for_torch(), self.batches())

    def get_tf_dataset(self) -> Any:
        """Iterable over the batches for steps on TensorFlow, see ``dataset``."""
        if keras.backend.backend() != "tensorflow":
            return super().get_tf_dataset()
        self._on_tensorflow, self.reads_elsewhere = True, self._model is None
        self._strategy = tensorflow().distribute.has_strategy()
        engine, ahead = self._engine, self._may_read_ahead
        # One batch in the prefetch buffer and one on its way there.
        engine.ahead_elsewhere = 2 if ahead and self.reads_elsewhere else 0
        stream = self._open_stream(*self._next_start())
        try:
            left = (engine.plan.num_batches or math.inf) - stream.position[1]
            peeked = stream.peek(int(min(_BATCHES_FOR_SIGNATURE, left)))
            engine.batches_left = left
            if engine.batches_ahead:
                engine.start_workers()
        except BaseException:
            stream.close()
            raise
        engine.park(stream)
        batches = [self._ready(batch) for batch in peeked]
        longer = map(self._ready, engine.plan.longer(stream.position[0]))
        alike, remedy = [*batches, *longer], dataset.remedy_of(engine.plan)
        self._signature = signature = dataset.Signature(alike, remedy)
        this = weakref.ref(self)

        def iterator() -> Iterator[Any]:
            adapter = this()
            return iter(()) if adapter is None else adapter.batches()

        if self.reads_elsewhere:
            return dataset.tf_dataset(iterator, signature.specs, ahead)
        model = self._model

        def eager() -> bool:
            there = model and model()
            return there is not None and runs_eagerly(there)

        return dataset.Elements(iterator, signature.specs, eager)

    # --- what is read ---

    def _ready(self, batch: Any) -> Any:
        """Return the batch in the form that Keras expects."""
        if self.class_weight is not None:
            check_one_output(batch)
        batch = self.standardized(batch)
        return dataset.for_tensorflow(batch) if self._on_tensorflow else batch

    def _prepared(self, assembled: Assembled, cursor: Cursor) -> Any:
        """Return a batch of a pass for Keras, after a look at the first ones."""
        batch = self._ready(assembled.batch)
        if self._signature is not None:
            batch = self._signature.checked(batch, cursor)
        if self._inspection is not None and not self._inspection.done:
            self._inspection.look(batch)
        # Tensors that a thread has made of it, unless it had to be changed here.
        tensors = assembled.converted if batch is assembled.batch else None
        return batch if tensors is None else tensors

    def _begin(self, batches: Batches) -> tuple[Cursor, Stream]:
        """Start a pass, and drop the batches in flight of this adapter's previous pass."""
        self.interrupt()
        self._batches = weakref.ref(batches)
        start = self._next_start()
        self._cursor = cursor = self._progress.begin(start, self._secondary, self._shuffled)
        if self._batches_per_report:
            cursor.trained = 0
        return cursor, self._open_stream(cursor.epoch, cursor.step)

    def _next_start(self) -> tuple[int, int]:
        """Return ``(epoch, step)`` at which this adapter's next pass starts.

        The first pass, or one after ``set_epoch`` or ``load_state_dict``, starts at the sequence's
        position. Others start after the previous one, even if a callback has evaluated the sequence
        meanwhile; one that only built the model doesn't count, see ``on_epoch_end``. A secondary
        pass starts with the sequence's current epoch.
        """
        cursor, progress = self._cursor, self._progress
        if self._secondary and (cursor is None or not self.trains):
            return progress.next_start()[0], 0
        if cursor is None or cursor.stamp != progress.stamp:
            return progress.next_start()
        return cursor.start_of_next

    def _open_stream(self, epoch: int, step: int) -> Stream:
        resumed = WHOLE if self._secondary else self._progress.resumed
        if not (self._secondary or self._endless):
            further = max(0, self._last_epoch - epoch)
            self._engine.batches_after = further * (self._engine.plan.num_batches or 0)
        engine = self._engine
        stream = engine.stream(epoch, step, self._shuffled, resumed, self._secondary)
        if self._on_tensorflow and not (self.reads_elsewhere or self.class_weight):
            stream.convert = dataset.convert_ahead
        return stream


def _inspection(sequence: SafeSequence, model: Any) -> Any:
    """Inspection of the first batches that a model is trained on, once per sequence; else None."""
    if sequence in _inspected or sequence.epoch or sequence._measured:
        return None
    from adapters.viewing.mistakes import Inspection

    _inspected.add(sequence)
    shuffled = sequence._plan.order.shuffle or sequence._source.whole_batches
    return Inspection(shuffled, scales(model), sequence._source)


# Layers that keep the range of values, and layers that multiply them by weights, by class name.
_LEAVES_THEM = (
    *("InputLayer", "Flatten", "Reshape", "Permute", "ZeroPadding", "Cropping", "Resizing"),
    *("Random", "CenterCrop", "MaxPooling", "AveragePooling"),
)
_WEIGHS_THEM = ("Conv", "SeparableConv", "DepthwiseConv", "Dense")
_KNOWN = ("Sequential", "Functional")


def scales(model: Any) -> bool:
    """True if a model may scale its input; False if its first weights get raw values."""
    if type(model).__name__ not in _KNOWN:
        return True
    for layer in getattr(model, "operations", model.layers):  # Layers lack divisions, for example.
        name = type(layer).__name__
        if name in _KNOWN:
            return scales(layer)
        if name.startswith(_WEIGHS_THEM):
            return False
        if not name.startswith(_LEAVES_THEM):
            return True
    return True
