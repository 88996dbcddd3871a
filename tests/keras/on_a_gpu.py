"""A plugin of pytest: Keras on JAX reads as it does on a GPU, a batch ahead of the trainer.

``pytest -p tests.keras.on_a_gpu tests/keras``: on a machine without one, too, as that is told by
the name of JAX's backend alone.
"""

from __future__ import annotations

import jax

jax.default_backend = lambda: "gpu"
