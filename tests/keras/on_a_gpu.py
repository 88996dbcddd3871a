"""A plugin of pytest: Keras on JAX reads as it does on a GPU, several batches by one transfer.

``pytest -p tests.keras.on_a_gpu tests/keras``: on a machine without one, too, as that is told by
the name of JAX's backend alone.
"""

from __future__ import annotations

import jax

from adapters.keras import device, reading

jax.default_backend = lambda: "gpu"
# The batches of tests are few, and a busy machine must not make them slow.
device.MOST_BATCHES, device.LEAST_BATCHES, reading.QUICK_SECONDS = 3, 0, 60
