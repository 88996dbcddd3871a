"""The kernel, which needs a compiler and libjpeg-turbo; the rest is in setup.cfg.

Of the environment:

ADAPTERS_KERNEL=required    a kernel that can't be built is an error; else the package is without it
ADAPTERS_JPEG=PREFIX        the kernel has PREFIX/lib/libjpeg.a in it, whose names nobody else sees,
                            and is required; else it uses the system's library
"""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

# Python 3.10's stable ABI lacks the buffer protocol, and a Python without the GIL has none.
STABLE_ABI = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
SOURCES = "adapters/images/native"
UNITS = (
    *("arguments", "batch", "checksums", "codes", "colours", "crcs", "crops", "decode", "floats"),
    *("frame", "gather", "huffman", "idct", "jpeg", "picture", "raw", "records", "resize"),
    *("tints", "vectors", "ycc"),
)
PREFIX = os.environ.get("ADAPTERS_JPEG")
LINUX = sys.platform == "linux"
if PREFIX:
    JPEG = Path(PREFIX).resolve()
    for needed in (JPEG / "lib/libjpeg.a", JPEG / "include/jpeglib.h", JPEG / "include/jpegint.h"):
        if not needed.is_file():
            sys.exit(
                f"ADAPTERS_JPEG must be a folder that packaging/libjpeg.sh made, got {PREFIX!r}: "
                f"there is no {needed}"
            )

setup(
    ext_modules=[
        Extension(
            "adapters.images._kernel",
            [f"{SOURCES}/{name}.c" for name in (*UNITS, "module")],
            depends=[f"{SOURCES}/{name}.h" for name in (*UNITS, "ahead")],
            include_dirs=[str(JPEG / "include")] if PREFIX else [],
            extra_objects=[str(JPEG / "lib/libjpeg.a")] if PREFIX else [],
            libraries=["m"] if PREFIX else ["jpeg", "m"],
            # Nothing is contracted: crops are computed with Python's numbers, to the bit.
            extra_compile_args=[
                *("-std=c11", "-O3", "-fno-math-errno", "-ffp-contract=off"),
                "-fvisibility=hidden",
            ],
            extra_link_args=[
                # A library without what the kernel asks for is to be noticed when it is loaded.
                *(["-Wl,-z,now"] if LINUX else []),
                # Another libjpeg in the process, such as MXNet's, isn't to be bound to.
                *(["-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic"] if LINUX and PREFIX else []),
            ],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
            py_limited_api=STABLE_ABI,
            # Without a compiler or libjpeg's headers, the package installs and works without it;
            # a release asks for it.
            optional=os.environ.get("ADAPTERS_KERNEL") != "required" and not PREFIX,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
