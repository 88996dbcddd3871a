from typing import Any

MOST_PIXELS: int
CROP_NUMBERS: int

def decode(
    jpegs: list[Any],
    crops: Any,
    out: Any,
    shape: tuple[int, ...],
    channels_first: bool,
    table: Any,
    /,
) -> bytes: ...
