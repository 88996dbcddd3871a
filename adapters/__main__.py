"""``python -m adapters`` is ``adapters``."""

from __future__ import annotations

import sys

from adapters.cli.main import main

sys.exit(main())
