"""`loop_over` runs every value, fails if one fails, and names all that did."""

import pytest
from looped import loop_over


def test_every_failure_is_reported():
    seen = []

    @loop_over("value", range(4))
    @loop_over("kind", ["assert", "raises"])
    def check(value, kind):
        seen.append((value, kind))
        if kind == "assert":
            assert value < 2
        elif value == 3:
            with pytest.raises(KeyError):
                pass  # a failure that is no Exception

    with pytest.raises(BaseExceptionGroup, match="2 of 4 values of value failed") as caught:
        check()
    assert len(seen) == 8
    assert [error.__notes__ for error in caught.value.exceptions] == [["value = 2"], ["value = 3"]]
    (first, second) = caught.value.exceptions
    assert [error.__notes__ for error in first.exceptions] == [["kind = 'assert'"]]
    assert [error.__notes__ for error in second.exceptions] == [["kind = 'assert'"], ["kind = 'raises'"]]
