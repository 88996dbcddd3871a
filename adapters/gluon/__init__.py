"""The face towards MXNet: ``gluon_loader``.

The only room that imports mxnet, by ``import_mxnet``.
"""

from __future__ import annotations

from adapters.gluon.importing import import_mxnet

import_mxnet()

from adapters.gluon.loader import Loader, gluon_loader  # noqa: E402

__all__ = ["Loader", "gluon_loader", "import_mxnet"]
