"""An agent with memory through the whole command: certified, recorded, verified."""

import numpy as np
import torch

from surefoot.agents import files as zoo
from surefoot.agents.memory import Recurrent
from surefoot.cli import main as cli
from surefoot.verification.verify import verify
from toys import recurrent


def command(*arguments):
    assert cli.main([str(argument) for argument in arguments]) == 0


def test_a_recurrent_agent_is_certified_recorded_and_verified(tmp_path, monkeypatch):
    agent, run = tmp_path / "agent.json", tmp_path / "run"
    policy = recurrent("lstm", encoder=0, last_action=False, seed=7)
    zoo.save(policy, tmp_path / "agent", {"task": "cartpole-1", "sigma": 0.2})
    command(
        "certify",
        "cartpole-1",
        "--agent",
        agent,
        "--sigma",
        0.2,
        "--episodes",
        200,
        "--seed",
        0,
        "--out",
        run,
        "--record",
        "--quiet",
    )
    with np.load(run / "replay.npz") as tape:  # one episode without and one under attack
        assert len(tape["quiet_seen"]) > 1
        assert tape["attacked_budget_used"].max() > 0
    verdict = verify(run, agent=str(agent), blocks=None, fresh=8)
    assert verdict.verified
    assert any("bit for bit" in check.detail for check in verdict.checks)
    # The same run by an agent that forgets is another run.
    honest = Recurrent.advance
    monkeypatch.setattr(Recurrent, "advance", lambda self, memory, *rest: honest(self, torch.zeros_like(memory), *rest))
    assert not verify(run, agent=str(agent), blocks=None, fresh=8).verified
