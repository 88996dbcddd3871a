"""A module of functions, as a program imports its own."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from tests.gluon import drawing as inner  # noqa: F401  # A module within a module.

SCALE = 2.0


def noise(x: Any) -> Any:
    return x + mx.nd.random.normal(shape=(1,))


def twice(x: Any) -> Any:
    return x * SCALE
