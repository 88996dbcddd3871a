"""The kernels, which need a compiler, that of images libjpeg-turbo too; the rest is in setup.cfg.

With ``ADAPTERS_KERNEL=required`` in the environment, a kernel that can't be built is an error.
"""

import os
import sys
import sysconfig

from setuptools import Extension, setup

# Python 3.10's stable ABI lacks the buffer protocol, and a Python without the GIL has none.
STABLE_ABI = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
SOURCES = "adapters/images/native"
UNITS = (
    *("batch", "crops", "gather", "huffman", "jpeg", "picture", "planes", "records", "resize"),
    "yuv",
)

setup(
    ext_modules=[
        Extension(
            "adapters.images._kernel",
            [f"{SOURCES}/{name}.c" for name in (*UNITS, "module")],
            depends=[f"{SOURCES}/{name}.h" for name in UNITS],
            libraries=["jpeg", "m"],
            # Nothing is contracted: crops are computed with Python's numbers, to the bit.
            extra_compile_args=[
                *("-std=c11", "-O3", "-fno-math-errno", "-ffp-contract=off"),
                "-fvisibility=hidden",
            ],
            # A library without what the kernel asks for is to be noticed when it is loaded.
            extra_link_args=["-Wl,-z,now"] if sys.platform == "linux" else [],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
            py_limited_api=STABLE_ABI,
            # Without a compiler or libjpeg's headers, the package installs and works without it;
            # a release asks for it.
            optional=os.environ.get("ADAPTERS_KERNEL") != "required",
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
