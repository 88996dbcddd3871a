"""A plugin of pytest's: libmxnet.so, which shows all its own libjpeg, is there before the kernel.

Pillow's, OpenCV's and simplejpeg's are loaded before that, with LD_BIND_NOW=1 in the environment:
Pillow binds to MXNet's libjpeg otherwise, and fails. The kernel, which is loaded last, must not.

It also says what the kernel under test is; one that isn't whole ends the run.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import platform
import sys
from pathlib import Path

import pytest


def _load_mxnet() -> str:
    found = importlib.util.find_spec("mxnet")
    if found is None or found.origin is None:
        return "libmxnet.so isn't there"
    try:
        library = ctypes.CDLL(str(Path(found.origin).with_name("libmxnet.so")), ctypes.RTLD_GLOBAL)
    except OSError as error:
        # MXNet's wheel for aarch64 needs Arm's Performance Libraries, which no package index has.
        if platform.machine() == "x86_64":
            raise
        return f"libmxnet.so can't be loaded: {error}"
    own = "with" if hasattr(library, "jpeg_std_error") else "without"
    return f"libmxnet.so is loaded, {own} libjpeg's names"


def pytest_configure(config: pytest.Config) -> None:
    """Load all in that order, and look."""
    if os.environ.get("LD_BIND_NOW") != "1":
        pytest.exit("LD_BIND_NOW must be 1 in the environment", returncode=1)
    for name in ("PIL._imaging", "cv2", "simplejpeg"):
        importlib.import_module(name)
    beside = _load_mxnet()
    from adapters.images.kernel import load, trouble

    kernel = load()
    if kernel is None or not kernel.HUFFMAN_IS_OWN or trouble() is not None:
        pytest.exit(f"the kernel isn't whole: {kernel}, {trouble()}", returncode=1)
    print(f"{kernel.__file__}: on, with its own Huffman decoding; {beside}", file=sys.stderr)
