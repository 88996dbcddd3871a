from typing import Any

MOST_PIXELS: int
HUFFMAN_IS_OWN: int

def decode(
    buffers: Any,
    pieces: Any,
    rows: Any,
    crops: Any,
    key: Any,
    counters: Any,
    out: Any,
    shape: tuple[int, ...],
    channels_first: bool,
    table: Any,
    /,
) -> bytes: ...
