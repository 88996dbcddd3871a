from typing import Any

def gather(
    file: Any,
    starts: Any,
    numbers: Any,
    kinds: Any,
    places: Any,
    lengths: Any,
    sizes: Any,
    varints: Any,
    columns: tuple[Any, ...],
    defaults: tuple[bytes | None, ...],
    /,
) -> bytes | None: ...
