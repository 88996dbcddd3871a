"""Gluon front end: ``gluon_loader``, also named ``DataLoader``, and ``Resume``.

Only this package imports mxnet, through ``import_mxnet``.
"""

from __future__ import annotations

from adapters.gluon.importing import import_mxnet

import_mxnet()

from adapters.gluon.loader import DataLoader, gluon_loader  # noqa: E402
from adapters.gluon.resume import Resume  # noqa: E402

__all__ = ["DataLoader", "Resume", "gluon_loader", "import_mxnet"]
