"""What bets were decided, for the tests that no outcome decides about a bet on itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from surefoot.proof.planning.hedged_bets import HedgedPlanner


def bets_before(last: int, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Do ``work()``; return guesses and bet sizes of all bets with hedges that it makes on outcomes before ``last``."""
    made = []
    plan = HedgedPlanner.next_bet

    def kept(self, past, account):
        bet = plan(self, past, account)
        if bet is not None and bet.hedge is not None and bet.last <= last:
            made.append((bet.first, [part.tolist() for part in bet.guesses], bet.hedge[1].tolist()))
        return bet

    with monkeypatch.context() as patch:
        patch.setattr(HedgedPlanner, "next_bet", kept)
        work()
    return made
