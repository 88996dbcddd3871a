"""The kernel, which needs a compiler and libjpeg-turbo; the rest is in setup.cfg.

Of the environment:

ADAPTERS_KERNEL=required    a kernel that can't be built is an error; else the package is without it
ADAPTERS_JPEG=PREFIX        the kernel has PREFIX/lib/libjpeg.a in it, and is required

Otherwise it has the system's libjpeg.a in it, if that is there with jpegint.h and links, as on
Debian and Ubuntu; else it uses the system's shared library, whose own Huffman decoding is slower.
"""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

# Python 3.10's stable ABI lacks the buffer protocol, and a Python without the GIL has none.
STABLE_ABI = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
SOURCES = "adapters/images/native"
UNITS = (
    *("batch", "checksums", "colours", "crcs", "crops", "decode", "floats", "gather", "raw"),
    *("records", "resize"),
    *(f"jpeg/{name}" for name in ("frame", "huffman", "idct", "jpeg", "ycc")),
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

# A library without what the kernel asks for is to be noticed when it is loaded.
LINKING = ["-Wl,-z,now"] if LINUX else []
# Another libjpeg in the process, such as MXNet's, isn't to be bound to.
HIDING = ["-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic"] if LINUX else []
MACROS = [("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else []


class BuildKernel(build_ext):
    """Links libjpeg-turbo statically if that can be done.

    Our Huffman decoding is put into a private slot of libjpeg. Its place is certain only in a
    library that is linked with the header it was built with.
    """

    def build_extension(self, ext: Extension) -> None:
        """Build the kernel."""
        try:
            ext.libraries = ["m"] if PREFIX else [":libjpeg.a", "m"]
            ext.define_macros = [*MACROS, ("HAVE_JPEGINT", "1")]
            ext.extra_link_args = [*LINKING, *HIDING]
            super().build_extension(ext)
        except (CompileError, LinkError):
            if PREFIX:
                raise
            ext.libraries, ext.define_macros, ext.extra_link_args = ["jpeg", "m"], MACROS, LINKING
            super().build_extension(ext)


setup(
    ext_modules=[
        Extension(
            "adapters.images._kernel",
            [f"{SOURCES}/{name}.c" for name in (*UNITS, "module")],
            depends=[str(header) for header in sorted(Path(SOURCES).rglob("*.h"))],
            include_dirs=[str(JPEG / "include")] if PREFIX else [],
            extra_objects=[str(JPEG / "lib/libjpeg.a")] if PREFIX else [],
            # Nothing is contracted: crops are computed with Python's numbers, to the bit.
            extra_compile_args=[
                *("-std=c11", "-O3", "-fno-math-errno", "-ffp-contract=off"),
                "-fvisibility=hidden",
            ],
            py_limited_api=STABLE_ABI,
            # Without a compiler or libjpeg's headers, the package installs and works without it;
            # a release asks for it.
            optional=os.environ.get("ADAPTERS_KERNEL") != "required" and not PREFIX,
        )
    ],
    cmdclass={"build_ext": BuildKernel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
