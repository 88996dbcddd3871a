"""A pytest plugin that puts ``gluon_loader`` in the place of ``gluon.data.DataLoader``."""

from __future__ import annotations

from typing import Any

from adapters import gluon_loader  # Before MXNet, see there.
from tests.peers.outcomes import note_replacement

import mxnet as mx  # isort: skip


def _loader(*arguments: Any, **keywords: Any) -> Any:
    note_replacement()
    return gluon_loader(*arguments, **keywords)


mx.gluon.data.DataLoader = _loader
