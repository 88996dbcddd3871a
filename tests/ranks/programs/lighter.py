"""Imported before MXNet: without scikit-learn, which takes seconds in each of many processes."""

import sys

sys.modules["sklearn"] = None  # type: ignore[assignment]
