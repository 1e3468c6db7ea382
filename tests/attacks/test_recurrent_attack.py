"""Algorithm 1 on agents with memory, batched, against a reference that follows the paper line by line.

The reference keeps its own memories, one episode at a time: the clean one is led by clean observations and the actions
really taken, the dirty one by what the agent has seen.
"""

from dataclasses import replace

import pytest
import torch

from attacks.test_dqn_attack import reference
from surefoot.attacks import victim
from surefoot.attacks.adaptive_pgd import AdaptivePGD
from surefoot.attacks.composed import Composed, ValueGapTiming
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import Smoothing, VictimBatch
from surefoot.noise import Noise
from surefoot.play import channel
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from toys import Recorded, plan_for, recurrent

SIGMA, SAMPLES, ETA, STEPS = 0.2, 3, 0.01, 3

SEED = 25  # an agent whose mind can be changed


class Mind:
    """One agent's memory, advanced with torch's own modules, one observation at a time."""

    def __init__(self, policy):
        self.policy = policy
        self.lstm = isinstance(policy.memory.cell, torch.nn.LSTMCell)
        self.state = (torch.zeros(1, 8), torch.zeros(1, 8)) if self.lstm else torch.zeros(1, 8)
        self.last = torch.zeros(1, 2)

    def after(self, seen):
        state = [part.expand(len(seen), -1) for part in (self.state if self.lstm else [self.state])]
        x = self.policy.memory.encoder(torch.cat((seen, self.last.expand(len(seen), -1)), dim=1))
        return self.policy.memory.cell(x, tuple(state) if self.lstm else state[0])

    def values(self, seen):
        state = self.after(seen)
        return self.policy.network(torch.cat(state, dim=1) if self.lstm else state)

    def advance(self, seen, action):
        with torch.no_grad():
            self.state, self.last = self.after(seen[None]), torch.eye(2)[[action]]

    def flat(self):
        return (torch.cat(self.state, dim=1) if self.lstm else self.state)[0]


class Both:
    """Runs the batched attack, and compares every memory and every proposal with the reference."""

    def __init__(self, sigma, lambda_q):
        self.attack = PaperAttack(lambda_q, smoothing=Smoothing(sigma, SAMPLES))
        self.sigma, self.minds, self.last = sigma, {}, {}
        self.gap, self.moves = 0.0, 0

    def propose(self, view):
        # The first steps of every episode are enough: the reference is slow.
        view = replace(
            view, stream=Recorded(view.stream), budget_left=torch.where(view.step < STEPS, view.budget_left, 0.0)
        )
        fast = self.attack.propose(view)
        pairs, able = 0, 0
        for row, (episode, step) in enumerate(zip(view.episode.tolist(), view.step.tolist(), strict=True)):
            if step == 0:
                self.minds[episode] = Mind(view.policy), Mind(view.policy)
            else:
                before, seen = self.last[episode], view.last_perturbation[row] + view.noise[row]
                self.minds[episode][0].advance(before, int(view.action[row]))
                self.minds[episode][1].advance(before + seen, int(view.action[row]))
                for mind, shown in zip(self.minds[episode], (view.clean, view.memory), strict=True):
                    self.gap = max(self.gap, float((mind.flat() - shown[row]).abs().max()))
            self.last[episode], left, slow, targets = view.observation[row], float(view.budget_left[row]), 0.0, []
            if int(2 * left / ETA + 1e-9) > 0:
                slow, targets = self._slow(view, row, view.stream.drawn, able, pairs)
                able, pairs = able + 1, pairs + len(targets)
            self.gap = max(self.gap, float((fast[row] - slow).abs().max()))
        self.moves += int((fast.norm(dim=1) > 1e-3).sum())
        return fast

    def _slow(self, view, row, drawn, able, pairs):
        place = {}
        silent = torch.zeros(1, 4)

        def of_target(action):
            index = pairs + place.setdefault(action, len(place))
            known = len(drawn) > 1 and index < len(drawn[1])
            return self.sigma * drawn[1][index][:, 0] if known else silent

        clean, dirty = self.minds[int(view.episode[row])]
        on_clean = self.sigma * drawn[0][able][:, 0] if drawn else silent
        left, o = float(view.budget_left[row]), view.observation[row]
        with torch.no_grad():
            known = clean.values(o + on_clean).mean(dim=0)
        return reference(known, dirty.values, o, left, self.attack.lambda_q, of_target)

    def describe(self):
        return {"name": "both"}


def compared(kind="gru", sigma=SIGMA, seed=SEED):
    both = Both(sigma, 0.01)
    task, deal = get_task("cartpole-1"), {"n_episodes": 4, "n_envs": 2, "episodes_per_env": 2}
    policy = recurrent(kind, seed=seed)
    play(Plan(task=task, policy=policy, noise=Noise.of(sigma), attacker=both, budget=0.2, seed=1, **deal))
    assert len(both.minds) == 4
    return both


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("sigma", [0.0, SIGMA])
def test_the_batched_attack_equals_the_reference_step_by_step(kind, sigma):
    both = compared(kind, sigma)
    assert both.gap < 2e-5
    assert both.moves >= 3


def clean_context_for_the_dirty(view, rows, smoothing, *, honest=VictimBatch.of):
    return honest(replace(view, memory=view.clean), rows, smoothing)


def without_the_last_action(view, rows, smoothing, *, honest=VictimBatch.of):
    return honest(replace(view, action=torch.zeros_like(view.step)), rows, smoothing)


@pytest.mark.parametrize("planted", [clean_context_for_the_dirty, without_the_last_action])
def test_a_wrong_context_is_noticed(planted, monkeypatch):
    monkeypatch.setattr(VictimBatch, "of", planted)
    assert compared().gap > 1e-3


def test_a_clean_memory_of_perturbed_observations_is_noticed(monkeypatch):
    honest = channel.Ledger.admit_perturbation

    def admit_perturbation(self, observation, rows, sent):
        self.offset = honest(self, observation, rows, sent)
        return self.offset

    def note_observation(self, rows):
        dirty = rows.observation.float() + self.offset
        self.clean = self.policy.memory.advance(self.clean, dirty, rows.action, rows.episode_start)

    monkeypatch.setattr(channel.Ledger, "admit_perturbation", admit_perturbation)
    monkeypatch.setattr(channel.Ledger, "note_observation", note_observation)
    assert compared().gap > 1e-3


def test_rows_and_samples_keep_their_own_state(monkeypatch):
    """Cut into many passes, the attack is the same."""
    plan = plan_for(
        get_task("cartpole-1"),
        recurrent(seed=SEED),
        SIGMA,
        4,
        attacker=Composed(ValueGapTiming(0.0, Smoothing(0.0)), AdaptivePGD(Smoothing(SIGMA, 3), iterations=3, tries=1)),
        budget=0.3,
    )
    whole = play(plan)
    monkeypatch.setattr(victim, "ROWS_AT_ONCE", {"cpu": 3})
    cut = play(plan)
    assert (whole.returns == cut.returns).all()
    assert abs(whole.budget_used - cut.budget_used).max() < 1e-4
    assert whole.budget_used.max() > 0
