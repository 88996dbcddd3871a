"""The Keras half of the MNIST sweep: one row.

The LeNet of Gluon's blog post: convolution 20 x 5x5, pooling, convolution 50 x 5x5, pooling, dense
512, dense 10; SGD 0.1, batches of 64, one epoch. Every sample is scaled to float32 on its way by a
function, or a whole batch at once: *vectorised*.

In the place of LeNet there may be a simulated device: Keras's own step of a network that computes
next to nothing, which holds the interpreter as any step does. *Paced*, such a step lasts as long as
the article's V100 took for 64 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from benchmarks.data.digits import (
    Sample,
    ScaledSample,
    load_digits,
    scale_batch_nchw,
    scale_batch_nhwc,
    scale_nchw,
    scale_nhwc,
)
from benchmarks.experiments.steps import LENET, PACED, STEP_SECONDS, with_epochs
from benchmarks.harness.keras_training import TimedModel, measure_training, use_native_layout
from benchmarks.harness.row import Measurement

BATCH_SIZE = 64
LEARNING_RATE = 0.1

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int32]
Transform = Callable[[Sample], ScaledSample]
BATCHED = {scale_nhwc: scale_batch_nhwc, scale_nchw: scale_batch_nchw}
# A contestant: from images, labels and whether it is for training to what `fit` and `evaluate`
# take. It shuffles for training, and delivers all samples in batches of BATCH_SIZE.
Loader = Callable[[Images, Labels, bool], Any]


def safe_sequence(
    workers: Any,
    transform: Transform,
    seed: int,
    use_multiprocessing: bool = False,
    vectorised: bool = False,
) -> Loader:
    """The package's own; it makes the same batches for every number of workers."""
    from adapters import SafeSequence

    scaling = {"batch_transform": BATCHED[transform]} if vectorised else {"transform": transform}

    def load(images: Images, labels: Labels, training: bool) -> Any:
        return SafeSequence(
            (images, labels),
            BATCH_SIZE,
            **scaling,
            thread_safe=True,
            shuffle=training,
            seed=seed,
            workers=workers,
            use_multiprocessing=use_multiprocessing,
        )

    return load


class PlainDataset(keras.utils.PyDataset):
    """What people write today: a PyDataset as in Keras's guide, which shuffles between epochs."""

    def __init__(
        self,
        images: Images,
        labels: Labels,
        transform: Transform,
        shuffle: bool,
        vectorised: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.images, self.labels = images, labels
        self.transform, self.shuffle, self.vectorised = transform, shuffle, vectorised
        self.order = np.arange(len(images))
        self.on_epoch_end()

    def __len__(self) -> int:
        return -(-len(self.order) // BATCH_SIZE)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        chosen = self.order[index * BATCH_SIZE : (index + 1) * BATCH_SIZE]
        if self.vectorised:
            return BATCHED[self.transform]((self.images[chosen], self.labels[chosen]))
        samples = [self.transform((self.images[i], self.labels[i])) for i in chosen]
        images, labels = zip(*samples)
        return np.stack(images), np.stack(labels)

    def on_epoch_end(self) -> None:
        """Shuffle for the next epoch."""
        if self.shuffle:
            np.random.shuffle(self.order)


def plain_dataset(
    workers: Any,
    transform: Transform,
    seed: int,
    use_multiprocessing: bool = False,
    vectorised: bool = False,
) -> Loader:
    """Keras's own workers; 0 is in the training loop's thread. It draws from NumPy's generator."""

    def load(images: Images, labels: Labels, training: bool) -> Any:
        return PlainDataset(
            images,
            labels,
            transform,
            training,
            vectorised,
            workers=workers,
            use_multiprocessing=use_multiprocessing,
        )

    return load


def tf_data(workers: Any, transform: Transform, seed: int) -> Loader:
    """TensorFlow's, with the same transform in TensorFlow's operations."""
    import tensorflow as tf

    if keras.backend.backend() != "tensorflow":
        # It would take all of the GPU's memory from the backend.
        tf.config.set_visible_devices([], "GPU")
    axis = 0 if transform is scale_nchw else -1

    def scale(image: Any, label: Any) -> tuple[Any, Any]:
        return tf.expand_dims(tf.cast(image, tf.float32), axis) / 255.0, label

    def load(images: Images, labels: Labels, training: bool) -> Any:
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        if training:
            data = data.shuffle(len(images), seed=seed)
        data = data.map(scale, num_parallel_calls=workers or None)
        return data.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)

    return load


CONTESTANTS: dict[str, Callable[[Any, Transform, int], Loader]] = {
    "SafeSequence vectorised": partial(safe_sequence, vectorised=True),
    "SafeSequence threads": safe_sequence,
    "SafeSequence processes": partial(safe_sequence, use_multiprocessing=True),
    "PyDataset vectorised": partial(plain_dataset, vectorised=True),
    "PyDataset threads": plain_dataset,
    "PyDataset processes": partial(plain_dataset, use_multiprocessing=True),
    "tf.data": tf_data,
}


def network(layout: str, step: str) -> TimedModel:
    """LeNet, or a network that computes next to nothing, compiled.

    Args:
        layout: Of images of 28x28: "NHWC" or "NCHW".
        step: What is trained, as in `benchmarks.experiments.steps`.
    """
    inputs = keras.Input((1, 28, 28) if layout == "NCHW" else (28, 28, 1))
    hidden = inputs
    if step == LENET:
        for filters in (20, 50):
            hidden = keras.layers.Conv2D(filters, 5, activation="relu")(hidden)
            hidden = keras.layers.MaxPooling2D(2)(hidden)
        hidden = keras.layers.Dense(512, activation="relu")(keras.layers.Flatten()(hidden))
    else:
        hidden = keras.layers.Flatten()(inputs[:, :1, :1])
    model = TimedModel(inputs, keras.layers.Dense(10)(hidden))
    model.clock.step_seconds = STEP_SECONDS if step == PACED else 0.0
    model.compile(
        optimizer=keras.optimizers.SGD(LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def measure(options: Mapping[str, Any]) -> Measurement:
    """One row.

    Args:
        options: `loader`, `workers`, `digits` (a path of `data.digits`), `train` and `test`
            (how many of each), `seed`, and `step`, of `benchmarks.experiments.steps`.
    """
    seed = options["seed"]
    keras.utils.set_random_seed(seed)
    layout = use_native_layout()
    transform = scale_nchw if layout == "NCHW" else scale_nhwc
    # Imports what it needs; makes nothing yet.
    load = CONTESTANTS[options["loader"]](options["workers"], transform, seed)
    path = Path(options["digits"])
    train = load_digits(path, "train", options["train"])
    test = load_digits(path, "test", options["test"])
    step = options["step"]
    measured = measure_training(
        network(layout, step),
        lambda: load(*train, True),
        lambda: load(*test, False),
        train_samples=len(train[0]),
        test_samples=len(test[0]),
        batch_size=BATCH_SIZE,
        seed=seed,
        learns=step == LENET,
    )
    return with_epochs(measured)
