"""The Keras half of the MNIST sweep: one row.

The LeNet of Gluon's blog post: convolution 20 x 5x5, pooling, convolution 50 x 5x5, pooling, dense
512, dense 10; SGD 0.1, batches of 64, one epoch; every sample scaled to float32 on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from benchmarks.data.digits import Sample, ScaledSample, load_digits, scale_nchw, scale_nhwc
from benchmarks.harness.keras_training import TimedModel, measure_training, use_native_layout
from benchmarks.harness.row import Measurement

BATCH_SIZE = 64
LEARNING_RATE = 0.1

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int32]
Transform = Callable[[Sample], ScaledSample]
# A contestant: from images, labels and whether it is for training to what `fit` and `evaluate`
# take. It shuffles for training, and delivers all samples in batches of BATCH_SIZE.
Loader = Callable[[Images, Labels, bool], Any]


def safe_sequence(
    workers: Any, transform: Transform, seed: int, use_multiprocessing: bool
) -> Loader:
    """The package's own; it makes the same batches for every number of workers."""
    from adapters import SafeSequence

    def load(images: Images, labels: Labels, training: bool) -> Any:
        return SafeSequence(
            (images, labels),
            BATCH_SIZE,
            transform=transform,
            shuffle=training,
            seed=seed,
            workers=workers,
            use_multiprocessing=use_multiprocessing,
        )

    return load


class PlainDataset(keras.utils.PyDataset):
    """What people write today: a PyDataset as in Keras's guide, which shuffles between epochs."""

    def __init__(
        self, images: Images, labels: Labels, transform: Transform, shuffle: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.images, self.labels = images, labels
        self.transform, self.shuffle = transform, shuffle
        self.order = np.arange(len(images))
        self.on_epoch_end()

    def __len__(self) -> int:
        return -(-len(self.order) // BATCH_SIZE)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        chosen = self.order[index * BATCH_SIZE : (index + 1) * BATCH_SIZE]
        samples = [self.transform((self.images[i], self.labels[i])) for i in chosen]
        images, labels = zip(*samples)
        return np.stack(images), np.stack(labels)

    def on_epoch_end(self) -> None:
        """Shuffle for the next epoch."""
        if self.shuffle:
            np.random.shuffle(self.order)


def plain_dataset(
    workers: Any, transform: Transform, seed: int, use_multiprocessing: bool
) -> Loader:
    """Keras's own workers; 0 is in the training loop's thread. It draws from NumPy's generator."""

    def load(images: Images, labels: Labels, training: bool) -> Any:
        return PlainDataset(
            images,
            labels,
            transform,
            training,
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
    "SafeSequence threads": partial(safe_sequence, use_multiprocessing=False),
    "SafeSequence processes": partial(safe_sequence, use_multiprocessing=True),
    "PyDataset threads": partial(plain_dataset, use_multiprocessing=False),
    "PyDataset processes": partial(plain_dataset, use_multiprocessing=True),
    "tf.data": tf_data,
}


def lenet(layout: str) -> TimedModel:
    """The network, compiled, for images of 28x28 in the layout "NHWC" or "NCHW"."""
    inputs = keras.Input((1, 28, 28) if layout == "NCHW" else (28, 28, 1))
    hidden = inputs
    for filters in (20, 50):
        hidden = keras.layers.Conv2D(filters, 5, activation="relu")(hidden)
        hidden = keras.layers.MaxPooling2D(2)(hidden)
    hidden = keras.layers.Dense(512, activation="relu")(keras.layers.Flatten()(hidden))
    model = TimedModel(inputs, keras.layers.Dense(10)(hidden))
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
            (how many of each), `seed`.
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
    return measure_training(
        lenet(layout),
        lambda: load(*train, True),
        lambda: load(*test, False),
        train_samples=len(train[0]),
        test_samples=len(test[0]),
        batch_size=BATCH_SIZE,
        seed=seed,
    )
