"""Recognition of files: of a foreign format by the first bytes, of a replaced one by its inode."""

from __future__ import annotations

import os

from adapters.errors import FileChangedError

HEAD_BYTES = 512
"""Number of first bytes to check."""

_PAGES = (b"<!doctype", b"<html", b"<head", b"<?xml", b"<error")
_COMPRESSED = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"),
    b"\xff\x06\x00\x00sNaPpY": ("snappy", "snzip -d"),
    b"\x04\x22\x4d\x18": ("LZ4", "lz4 -d"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\x00": ("xz", "xz -d"),
}
# Of images in the ISO base media file format.
_BRANDS = {b"avif", b"avis", b"heic", b"heix", b"hevc", b"mif1", b"msf1"}
# Hadoop's own blocks have 256 KiB.
_MOST_BLOCK_BYTES = 1 << 26
_REWRITE = (
    'write the files again, with GZIP or without compression (Spark: .option("codec", '
    '"org.apache.hadoop.io.compress.GzipCodec"))'
)
_OTHERS = {
    b"PK\x03\x04": "a ZIP archive: unpack it first",
    b"PAR1": "a Parquet file: read it with pyarrow or pandas, and give the columns as arrays",
    b"ARROW1": "an Arrow file: read it with pyarrow, and give the columns as arrays",
    b"Obj\x01": "an Avro file: convert it",
    b"ORC": "an ORC file: read it with pyarrow, and give the columns as arrays",
    b"\x89HDF": "an HDF5 file: read it with h5py, and give the data sets as arrays",
    b"\x93NUMPY": "an array in NPY's format: numpy.load(..., mmap_mode='r') reads it",
    b"SQLite format 3": "an SQLite database",
    b"\xff\xd8\xff": "a JPEG: image files are for open_images",
    b"\x89PNG": "a PNG: image files are for open_images",
    b"%PDF": "a PDF",
}


def recognized(head: bytes) -> str | None:
    """Name the format of a file with these ``HEAD_BYTES`` bytes, and a remedy; None if unknown."""
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, which stands for the file: git lfs pull fetches it"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(_PAGES):
        return "a web page or a server's message: the download went wrong, repeat it"
    for begin, (name, command) in _COMPRESSED.items():
        if head.startswith(begin):
            return f"a file compressed with {name}: decompress it ({command}), or {_REWRITE}"
    if _is_hadoop_snappy(head):
        return f"a file compressed with snappy of Hadoop's kind: {_REWRITE}"
    if head[4:8] == b"ftyp" and head[8:12] in _BRANDS:
        name = "an AVIF" if head[8:11] == b"avi" else "a HEIC"
        return f"{name}: convert it to JPEG or PNG, or give decode= a function that decodes it"
    if head[257:262] == b"ustar":
        return "a tar archive: unpack it first"
    if head.startswith(b"PK\x03\x04") and b".npy" in head[30:]:
        return "an NPZ file: numpy.load reads it, give its arrays"
    return next((what for begin, what in _OTHERS.items() if head.startswith(begin)), None)


def supposed(head: bytes) -> str | None:
    """Name what ``recognized`` doesn't, as damage might look like it; None if unknown."""
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "what begins like a pickle: load it, and give what it holds"
    if head.startswith(b"\xff\xff\xff\xff") and head[6:8] == b"\0\0":
        return "what begins like an Arrow stream: read it with pyarrow, and give columns as arrays"
    text = head.decode("utf-8", "ignore")
    if not text or head.count(0) or not all(each.isprintable() or each.isspace() for each in text):
        return None
    if text.lstrip("\ufeff").lstrip().startswith(("{", "[")):
        return "JSON: load it, and give a list or arrays"
    return "text: a table of image files is for open_images, pandas reads others"


def _is_hadoop_snappy(head: bytes) -> bool:
    """True if the sizes of a block, its compressed first part, and that part are consistent."""
    size, packed = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    part = shift = 0
    for byte in head[8:13]:
        part |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return 0 < part <= size <= _MOST_BLOCK_BYTES and 0 < packed <= 32 + part * 7 // 6
    return False


def identity_of(file: str | int) -> tuple[str, int, int]:
    """Machine, device and inode of a path or descriptor; zeros if there is no such file."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return os.uname().nodename, 0, 0
    return os.uname().nodename, status.st_dev, status.st_ino


def check_unchanged(path: str, identity: tuple[str, int, int]) -> None:
    """Raise ``FileChangedError`` if this machine has another file of that name now, or none."""
    now = identity_of(path)
    if now[0] == identity[0] and (now != identity or not any(now[1:])):
        raise FileChangedError(f"{path} has changed since it was opened: open it again")
