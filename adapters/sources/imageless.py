"""Records without an image, and how to leave them out."""

from __future__ import annotations

from collections.abc import Iterable

from adapters.errors import ContentError, RecordError
from adapters.records import RecordFiles
from adapters.sources.contents import Images


def without_images(files: RecordFiles, content: Images) -> tuple[int, int]:
    """Count the records at the beginning and at the end with no bytes for an image.

    It reads all of these. insightface's files begin with a record that says where the others end,
    and end with one record per person.
    """
    size = len(files)
    first = _until_an_image(files, content, range(size))
    return first, _until_an_image(files, content, range(size - 1, first - 1, -1))


def how_to_leave_out(files: RecordFiles, content: Images) -> str | None:
    """Advice on leaving out records without an image; None if neither end has any."""
    first, last = without_images(files, content)
    size = len(files)
    if first == size:
        return f"none of the {size} records holds one"
    if not first + last:
        return None
    return (
        f"the first {first} and the last {last} of the {size} records hold none, like the header "
        "and the identities in insightface's files: leave them out with "
        f".select(range({first}, {size - last}))"
    )


def _until_an_image(files: RecordFiles, content: Images, numbers: Iterable[int]) -> int:
    count = 0
    for number in numbers:
        if not is_without_image(files, content, number):
            break
        count += 1
    return count


def is_without_image(files: RecordFiles, content: Images, number: int) -> bool:
    """True if the record is sound except for an image of no bytes."""
    shard, own = files.locate(number)
    try:
        return not len(content.split(shard.read(own), shard.format)[0])
    except (ContentError, RecordError):
        return False
