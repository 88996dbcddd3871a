"""A plugin of pytest: the package finds one of Keras's private names gone when it is imported.

``pytest -p tests.keras.without_a_name tests/keras/test_validation.py``: what holds where our own
adapter reads shall hold where Keras's does.
"""

from __future__ import annotations

from tests.keras.programs.moved import breaks

with breaks()["_standardize_batch"]:
    import adapters.keras  # noqa: F401
