"""Files cut short, in either format: an error, or the records that are there whole."""

from __future__ import annotations

import pytest

from adapters.errors import RecordError
from tests.records.materials import (
    FEW,
    FORMATS,
    encoded,
    forget_indexes,
    index_written,
    read,
    rewritten,
    written,
)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("index", ["none", "older", "newer"])
def test_a_file_cut_anywhere_is_an_error_or_its_first_records(index, verify, format, tmp_path):
    path = written(tmp_path, format, FEW)
    content = path.read_bytes()
    if index != "none":
        index_written(path)
    whole = [len(encoded(format, FEW[:count])) for count in range(len(FEW) + 1)]
    for size in range(len(content)):
        rewritten(path, content[:size], index == "newer")
        if size in whole:
            assert read(path, format, verify) == FEW[: whole.index(size)]
        else:
            with pytest.raises(RecordError, match=rf"{path.name}, record \d, byte \d+: expected"):
                read(path, format, verify)
        forget_indexes(path, index != "none")
