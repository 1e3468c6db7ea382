"""Runs that stop by themselves: block after block of one stream or of several in turn, until there is a reason."""

from types import SimpleNamespace

import pytest

from surefoot.episodes import Episodes
from surefoot.runs.sequential import run_until


def stream(*blocks):
    """Return blocks of a run; Ctrl-C where a block is None."""
    for returns in blocks:
        if returns is None:
            raise KeyboardInterrupt
        yield Episodes.from_returns(returns, sigma=0.2, floor=0, ceiling=9)


def monitor_that_stops_at(most):
    def reason_to_stop(*returns):
        return "enough" if sum(map(len, returns)) >= most else None

    return SimpleNamespace(so_far="so far", reason_to_stop=reason_to_stop)


@pytest.mark.parametrize(
    ("most", "streams", "found", "reason"),
    [
        (99, ([[1], [2], [3]], [[4]]), [[1, 2, 3], [4]], "all played"),
        (99, ([[4]], [[1], [2], [3]]), [[4], [1, 2, 3]], "all played"),
        (4, ([[1], [2], [3]], [[4], [5], [6]]), [[1, 2], [4, 5]], "enough"),
        (99, ([[1], [2], None], [[4], [5], [6]]), [[1, 2], [4, 5]], "stopped by hand"),
    ],
)
def test_no_stream_is_cut_off_by_another_that_ends_before_it(most, streams, found, reason):
    """A reason to stop, or Ctrl-C, ends all of them; what was run until then counts, each return in its own stream."""
    told = []
    records, why = run_until(
        monitor_that_stops_at(most),
        *(stream(*blocks) for blocks in streams),
        planned=7,
        progress=lambda *shown: told.append(shown),
    )
    assert [record.returns.tolist() for record in records] == found
    assert why == reason
    assert told[0] == (0, 7, "so far")
    assert told[-1] == (sum(map(len, found)), 7, "so far")


def test_ctrl_c_before_every_stream_has_a_block_is_no_result():
    with pytest.raises(KeyboardInterrupt):
        run_until(monitor_that_stops_at(9), stream([1.0]), stream(None), planned=2)
