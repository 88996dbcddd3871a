"""Batches reach Keras's own steps on TensorFlow from Python, and others through tf.data."""

from __future__ import annotations

import collections
import functools
import threading
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.recording import BACKEND, VERSION, Recorder

pytestmark = [
    pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow alone"),
    pytest.mark.skipif(VERSION < (3, 7), reason="its steps read from tf.data alone"),
]

COUNT, BATCH_SIZE = 90, 8  # The last batch is smaller.
RNG = np.random.default_rng(0)
X, Y = RNG.random((COUNT, 3), np.float32), RNG.random(COUNT, np.float32)


class Plain(keras.Model):
    """A model whose step is Keras's own; notes the shapes with which it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.shapes: set[Any] = set()

    def call(self, inputs: Any, training: bool = False) -> Any:
        self.shapes.add(tuple(inputs.shape))
        return self.dense(inputs)


class OwnFunction(Plain):
    """A model that makes a function of its own, as Keras's guides show it."""

    def make_train_function(self, force: bool = False) -> Any:
        import tensorflow as tf

        self.train_function = tf.function(lambda iterator: self.train_step(next(iterator)))


class OwnMethod(Plain):
    """A model whose method may do anything."""

    def make_train_function(self, force: bool = False) -> Any:
        super().make_train_function(force)


def fitted(kind: type[Plain], data: Any, **options: Any) -> tuple[Plain, list[float]]:
    keras.utils.set_random_seed(1)
    model = kind()
    model.compile("sgd", "mse", **options)
    history = model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]
    return model, [*history, model.evaluate(data, verbose=0)]


@pytest.fixture
def eager_functions():
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def sequence(**options: Any) -> SafeSequence:
    return SafeSequence((X, Y), BATCH_SIZE, shuffle=True, seed=2, **options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (OwnMethod, {}),
        (OwnFunction, {}),
        (Plain, {"steps_per_execution": 5}),
        (Plain, {"jit_compile": True}),
    ],
    ids=["its method", "its function", "several steps", "XLA"],
)
def test_every_way_trains_alike(kind, options):
    exact = "jit_compile" not in options
    with sequence() as data:
        expected = fitted(Plain, data)[1]
    with sequence() as data:
        found = fitted(kind, data, **options)[1]
    assert found == (expected if exact else pytest.approx(expected, rel=1e-5))


def test_steps_are_traced_for_batches_of_any_size():
    with sequence() as data:
        model = fitted(Plain, data)[0]
        model.predict(data, verbose=0)
    assert model.shapes == {(None, 3)}


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}], ids=["", "and the model"])
def test_eager_functions(options, eager_functions):
    with sequence() as data:
        model, losses = fitted(Plain, data, **options)
        assert model.predict(data, verbose=0).shape == (COUNT, 1)
    assert (BATCH_SIZE, 3) in model.shapes
    with sequence() as data:
        assert fitted(Plain, data)[1] == losses


@pytest.mark.parametrize("wrap", [lambda own: lambda function: function, functools.wraps])
def test_function_that_was_set(wrap):
    """It takes batches out of the iterator by itself, whatever its name."""
    seen: list[Any] = []
    with sequence() as data:
        model = fitted(Plain, data)[0]

        @wrap(model.train_function)
        def function(iterator: Any) -> Any:
            y = iterator.get_next()[1]
            seen.extend(np.ravel(y).tolist())
            return {"loss": 0.0}

        model.train_function = function
        model.fit(data, shuffle=False, verbose=0)
    assert sorted(seen) == sorted(Y.tolist())


@pytest.mark.parametrize("wrap", [lambda own: lambda function: function, functools.wraps])
def test_predict_function_that_was_set(wrap):
    with SafeSequence((X, Y), BATCH_SIZE) as data:
        model = fitted(Plain, data)[0]
        expected = model.predict(data, verbose=0)

        @wrap(model.predict_function)
        def function(batches: Any) -> Any:
            return batches[0][1]

        own, model.predict_function = model.predict_function, function
        assert model.predict(data, verbose=0).tolist() == Y.tolist()
        model.predict_function = own
        assert (model.predict(data, verbose=0) == expected).all()


def test_function_that_a_callback_sets():
    seen: list[Any] = []

    class Setter(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            own = self.model.train_function

            def function(iterator: Any) -> Any:
                batch = next(iterator)
                seen.extend(np.ravel(batch[1]).tolist())
                return own(iter([batch]))

            self.model.train_function = function

    model = Plain()
    model.compile("sgd", "mse")
    with sequence() as data:
        model.fit(data, verbose=0, callbacks=[Setter()])
    assert sorted(seen) == sorted(Y.tolist())


@pytest.mark.parametrize("eager", [False, True])
def test_eager_steps_are_turned_on_and_off(eager):
    """Functions that are made already stay as they are."""
    losses = []
    for turned in (False, True):
        keras.utils.set_random_seed(1)
        model = Plain()
        model.compile("sgd", "mse", run_eagerly=eager)
        with sequence() as data:
            for _ in range(2):
                losses += model.fit(data, shuffle=False, verbose=0).history["loss"]
                losses += [model.evaluate(data, verbose=0), model.predict(data, verbose=0).sum()]
                model.run_eagerly = eager != turned
    assert losses[6:] == pytest.approx(losses[:6])


def test_eager_functions_within_an_epoch(eager_functions):
    import tensorflow as tf

    class Switch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            tf.config.run_functions_eagerly(batch % 2 == 1)

    with sequence() as data:
        expected = fitted(Plain, data)[1][:2]
        data.set_epoch(0)
        tf.config.run_functions_eagerly(False)
        keras.utils.set_random_seed(1)
        model = Plain()
        model.compile("sgd", "mse")
        callbacks = [Switch()]
        history = model.fit(data, epochs=2, shuffle=False, verbose=0, callbacks=callbacks).history
    assert history["loss"] == pytest.approx(expected)


def test_steps_are_traced_twice_for_data_of_many_shapes():
    """As with ``tf.data``, TensorFlow relaxes the shapes the second time."""
    shapes: list[Any] = []

    class Mean(keras.Model):
        def call(self, inputs: Any) -> Any:
            shapes.append(tuple(inputs.shape))
            return keras.ops.mean(inputs, axis=1, keepdims=True)

    model = Mean()
    model.compile(loss="mse")
    for length in range(3, 7):
        x = np.full((COUNT, length), length, np.float32)
        with SafeSequence((x, Y), BATCH_SIZE) as data:
            assert model.predict(data, verbose=0).tolist() == [[length]] * COUNT
    assert shapes == [(None, 3), (None, None)]


def test_named_tuples_are_no_tuples():
    """Though they are equal, a step may tell them apart."""
    kinds: list[Any] = []

    class Step(keras.Model):
        def train_step(self, batch: Any) -> Any:
            kinds.append(type(batch))
            return {"loss": keras.ops.mean(batch[0])}

    pair = collections.namedtuple("pair", "x y")
    model = Step()
    model.compile()
    for source in (pair(X, Y), (X, Y)):
        with SafeSequence(source, BATCH_SIZE) as data:
            model.fit(data, verbose=0)
    assert kinds == [pair, tuple]


def test_texts_and_dictionaries():
    """Text becomes string tensors, and dtypes are those of the first batches."""
    words = np.array([f"word {n}" for n in range(COUNT)])

    class Words(Plain):
        def call(self, inputs: Any, training: bool = False) -> Any:
            import tensorflow as tf

            lengths = tf.cast(tf.strings.length(inputs["words"]), tf.float32)
            return self.dense(tf.stack([lengths, inputs["x"][:, 0]], axis=-1))

    source = ({"words": words, "x": X}, Y)
    losses = []
    for options in ({}, {"run_eagerly": True}, {"steps_per_execution": 3}):
        with SafeSequence(source, BATCH_SIZE) as data:
            losses.append(fitted(Words, data, **options)[1])
    assert losses[0] == losses[2] == pytest.approx(losses[1])


@pytest.mark.parametrize("call", ["fit", "evaluate", "predict"])
def test_error_that_looks_like_the_end(call):
    import tensorflow as tf

    def transform(batch: Any) -> Any:
        if len(batch[0]) < BATCH_SIZE:
            raise tf.errors.OutOfRangeError(None, None, "out of its range")
        return batch

    model = Plain()
    model.compile("sgd", "mse")
    error = pytest.raises(tf.errors.OutOfRangeError, match="out of its range")
    with sequence(batch_transform=transform) as data, error:
        getattr(model, call)(data, verbose=0)


LARGE = RNG.random((COUNT, 40, 50), np.float32)  # A batch is large enough to be aligned.
BUFFER = np.empty((BATCH_SIZE, 40, 50), np.float32)


def transposed(batch: Any) -> Any:
    return batch[0].transpose(0, 2, 1), batch[1]


def in_one_buffer(batch: Any) -> Any:
    rows = BUFFER[: len(batch[0])]
    rows[:] = batch[0]
    return rows, batch[1]


def unaligned(batch: Any) -> Any:
    return np.array([0, *batch[0].flat], np.float32)[1:].reshape(batch[0].shape), batch[1]


def later_in(dtype: Any, batch: Any) -> Any:
    """A batch is cast to the dtypes of the first ones; TensorFlow has no long doubles."""
    return batch[0].astype(dtype if len(batch[0]) < BATCH_SIZE else np.float32), batch[1]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize(
    "transform",
    [None, transposed, in_one_buffer, unaligned]
    + [functools.partial(later_in, dtype) for dtype in (np.float64, np.longdouble)],
)
def test_tensors_hold_the_batches(transform, workers):
    """Also long after their steps, and whoever else reads the same batches."""
    model = Recorder(on_host=False)
    options = {"batch_transform": transform, "workers": workers, "shuffle": True}
    with SafeSequence((LARGE, Y), BATCH_SIZE, **options) as data:
        model.fit(data, epochs=2, verbose=0)
        data.set_epoch(0)
        expected = [[np.array(leaf) for leaf in batch] for batch in [*data, *data]]
    batches = model.lists.trained
    assert len(batches) == len(expected)
    assert {found[0].dtype.name for found in batches} == {"float32"}
    for found, arrays in zip(batches, expected):
        for tensor, array in zip(found, arrays):
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_threads_convert_whoever_else_reads(monkeypatch):
    import tensorflow as tf

    convert, threads = tf.convert_to_tensor, []

    def convert_to_tensor(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return convert(*arguments, **options)

    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            by_others.append(set(threads) - {threading.current_thread()})
            self.model.evaluate(data, verbose=0)
            threads.clear()

    by_others: list[Any] = []
    # On a busy machine, the thread might be found to be slower than none.
    monkeypatch.setattr("adapters.engine.autotune._LONG_PERIOD_BATCHES", 1_000)
    monkeypatch.setattr(tf, "convert_to_tensor", convert_to_tensor)
    model = Plain()
    model.compile("sgd", "mse")
    with sequence(workers=1, max_queue_size=2) as data:
        model.fit(data, epochs=2, verbose=0, callbacks=[Evaluates()])
    assert all(by_others)
