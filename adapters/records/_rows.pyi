from typing import Any

def gather(
    file: Any,
    numbers: Any,
    rows: Any,
    starts: Any,
    stride: int,
    kinds: Any,
    places: Any,
    lengths: Any,
    sizes: Any,
    varints: Any,
    columns: tuple[Any, ...],
    defaults: tuple[bytes | None, ...],
    /,
) -> bytes | None: ...
