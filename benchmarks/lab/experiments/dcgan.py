"""A DCGAN for 28x28 digits: the networks of Keras's examples with half as many filters.

Both networks learn in the same step, with one Adam. The generator's loss is computed by the
discriminator with its weights held fast, and the discriminator's of digits through which nothing
goes back to the generator, so one backward pass gives each network its own gradients. That way one
model serves TensorFlow, JAX and PyTorch, with Keras's own train step.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

from benchmarks.harness.keras_training import TimedModel

LATENT = 128
LEARNING_RATE = 2e-4
BETA = 0.5  # Adam's first, as the DCGAN paper has it
SLOPE = 0.2  # of the leaky ReLUs


class Dcgan(TimedModel):
    """Takes digits, -1 to 1; its losses are added while it runs.

    Args:
        layout: "NHWC" or "NCHW", of the digits.
        seed: Of the noise that the generator makes digits of.
    """

    def __init__(self, layout: str, seed: int) -> None:
        super().__init__()
        self.generator = make_generator(layout)
        self.discriminator = make_discriminator(layout)
        self.noise = keras.random.SeedGenerator(seed)

    def call(self, digits: Any) -> Any:
        """What the discriminator says of the digits, above 0 for real ones."""
        noise = keras.random.normal((ops.shape(digits)[0], LATENT), seed=self.noise)
        made = self.generator(noise)
        of_real = self.discriminator(digits)
        of_made = self.discriminator(ops.stop_gradient(made))
        held = [ops.stop_gradient(each.value) for each in self.discriminator.trainable_variables]
        fooled, _ = self.discriminator.stateless_call(held, [], made)
        # Binary cross entropy: of real digits with 1, of made ones with 0, and for the generator
        # of made ones with 1.
        self.add_loss(ops.mean(ops.softplus(-of_real)) + ops.mean(ops.softplus(of_made)))
        self.add_loss(ops.mean(ops.softplus(-fooled)))
        return of_real


def make_dcgan(layout: str, seed: int) -> Dcgan:
    """The model, compiled."""
    model = Dcgan(layout, seed)
    model.compile(optimizer=keras.optimizers.Adam(LEARNING_RATE, beta_1=BETA))
    return model


def make_generator(layout: str) -> Any:
    """From noise (batch, 128) to digits."""
    start = (64, 7, 7) if layout == "NCHW" else (7, 7, 64)
    return keras.Sequential(
        [
            keras.Input((LATENT,)),
            layers.Dense(7 * 7 * 64),
            layers.Reshape(start),
            layers.Conv2DTranspose(64, 4, strides=2, padding="same"),
            layers.LeakyReLU(SLOPE),
            layers.Conv2DTranspose(64, 4, strides=2, padding="same"),
            layers.LeakyReLU(SLOPE),
            layers.Conv2D(1, 7, padding="same", activation="tanh"),
        ],
        name="generator",
    )


def make_discriminator(layout: str) -> Any:
    """From digits to one number each; has no weights but those that it trains."""
    return keras.Sequential(
        [
            keras.Input((1, 28, 28) if layout == "NCHW" else (28, 28, 1)),
            layers.Conv2D(64, 3, strides=2, padding="same"),
            layers.LeakyReLU(SLOPE),
            layers.Conv2D(64, 3, strides=2, padding="same"),
            layers.LeakyReLU(SLOPE),
            layers.Flatten(),
            layers.Dense(1),
        ],
        name="discriminator",
    )
