"""How often a training is saved."""

from __future__ import annotations

import numpy as np
import pytest

from adapters.resuming import Schedule


@pytest.mark.parametrize("every", [30, np.int64(30), np.float32(30), "30 s"])
def test_seconds_may_be_any_number(every):
    assert Schedule(every).seconds == 30.0


@pytest.mark.parametrize("every", [True, np.True_, None, [30]])
def test_what_is_no_number_is_refused(every):
    with pytest.raises(TypeError, match="every must be a number or a text"):
        Schedule(every)
