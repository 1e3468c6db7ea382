"""Fine-tuning of students: what is kept of a rollout, how actions are judged, and who sees the clean frames."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.agents import files as zoo
from surefoot.agents.memory import FrameStack
from surefoot.agents.networks import NATURE, cnn_policy
from surefoot.play.envs.atari.emulators import CUT, ENDED
from surefoot.play.tasks import get_task
from trainings import run_training
from zoo.training.atari import fresh_arrays, halved
from zoo.training.fine_tune import FineTuneLearner, FineTuneLoop, FineTuneSettings, Rollout, train_fine_tune

CPU = torch.device("cpu")
TINY = FineTuneSettings(
    total_steps=64, n_envs=2, horizon=16, updates=2, batch_size=8, validation_interval=32, validation_episodes=1
)
FREEWAY = get_task("freeway")


def policy(n_stack, name, seed=0, task=FREEWAY):
    widths, n_actions = (8, 8, 8, 16), task.spaces.n_actions
    arrays = halved(fresh_arrays(n_stack, n_actions, seed, widths))
    return cnn_policy(arrays, NATURE, n_stack, task.spaces.shape, n_actions, name)


def actor(settings=TINY):
    return FineTuneLearner(FREEWAY, settings, policy(3, "student"), policy(4, "teacher", 1), CPU, 0)


def tuning(learner, sigma=0.3):
    return FineTuneLoop(FREEWAY, sigma, learner.settings, learner, seed=0, first_step=0, processes=1)


# --- rollouts -------------------------------------------------------------------------------------------------------


def test_a_rollout_gives_back_the_stacks_that_were_seen():
    """Over three rollouts and many starts of episodes; stacks reach back into the rollout before."""
    random = torch.Generator().manual_seed(0)
    kept, stacks = Rollout(TINY, (2, 2), 5, 3, CPU), (FrameStack(5), FrameStack(3))
    noisy, clean = (stack.empty(torch.zeros((2, 2, 2))) for stack in stacks)
    age, slots = torch.zeros(2, dtype=torch.int64), torch.arange(2)
    for _ in range(3):
        kept.begin()
        shown = []
        for step in range(16):
            frames = torch.randint(256, (2, 2, 2), generator=random).to(torch.uint8)
            seen = torch.randn((2, 2, 2), generator=random)
            noisy = stacks[0].advance(noisy, seen, episode_start=age == 0)
            clean = stacks[1].advance(clean, frames / 255, episode_start=age == 0)
            shown.append((noisy, clean))
            kept.show(step, frames, seen, age)
            age = torch.where(torch.rand(2, generator=random) < 0.2, 0, age + 1)
        for step, (expected, plain) in enumerate(shown):
            steps = torch.full((2,), step)
            assert torch.equal(kept.seen_stacks(steps, slots), expected)
            assert torch.allclose(kept.clean_stacks(steps, slots), plain)


def test_advantages_are_sums_of_discounted_surprises():
    random = torch.Generator().manual_seed(0)
    kept = Rollout(TINY, (2, 2), 2, 2, CPU)
    kept.value.copy_(torch.randn((17, 2), generator=random))
    kept.reward.copy_(torch.randn((17, 2), generator=random))
    kept.over[5, 0], kept.over[9, 1] = ENDED, CUT
    kept.judge(0.9, 0.8)
    value, reward, expected = kept.value.numpy(), kept.reward.numpy(), np.zeros((16, 2))
    for slot, end, kind in ((0, 5, ENDED), (1, 9, CUT)):
        for step in range(16):
            for ahead in range(step, 16):
                last = ahead == end
                after = value[ahead + 1, slot] if not last else value[ahead, slot] if kind == CUT else 0.0
                surprise = reward[ahead, slot] + 0.9 * after - value[ahead, slot]
                expected[step, slot] += (0.9 * 0.8) ** (ahead - step) * surprise
                if last:
                    break
    assert np.allclose(kept.target[:16] - kept.value[:16], expected, atol=1e-5)
    scaled = (expected - expected.mean()) / expected.std(ddof=1)
    assert np.allclose(kept.advantage[:16], scaled, atol=1e-4)


# --- learning -------------------------------------------------------------------------------------------------------


def filled(learner):
    """A rollout in which the student saw bright and dark pictures; bright ones want action 2, dark ones action 0."""
    random, kept = torch.Generator().manual_seed(0), learner.rollout
    kept.begin()
    for step in range(16):
        bright = torch.randint(2, (2,), generator=random)
        frames = (60 + 120 * bright).to(torch.uint8).view(2, 1, 1).expand(2, 84, 84)
        kept.show(step, frames, frames / 255, torch.zeros(2, dtype=torch.int64))
        kept.action[step] = torch.randint(3, (2,), generator=random)
        kept.reward[step], kept.over[step] = (kept.action[step] == 2 * bright).float(), ENDED
        with torch.no_grad():
            chances = learner.online(frames.view(2, 1, 84, 84).expand(2, 3, 84, 84) / 255).log_softmax(dim=1)
        kept.log_prob[step] = chances.gather(1, kept.action[step].unsqueeze(1)).squeeze(1)
    kept.judge(0.9, 0.8)
    return learner


def test_the_loss_is_ppos():
    learner = filled(actor())
    kept = learner.rollout
    kept.log_prob += torch.linspace(-0.3, 0.3, kept.log_prob.numel()).view_as(kept.log_prob)  # some beyond the clip
    step, slot = torch.arange(16).repeat_interleave(2), torch.arange(2).repeat(16)
    with torch.no_grad():
        chances = learner.online(kept.seen_stacks(step, slot)).softmax(dim=1)
        ratio = chances.gather(1, kept.action[step, slot].unsqueeze(1)).squeeze(1) / kept.log_prob[step, slot].exp()
        good = kept.advantage[step, slot]
        gain = torch.where(good > 0, ratio.clamp(max=1.1), ratio.clamp(min=0.9)) * good
        values = learner.critic(kept.clean_stacks(step, slot)).max(dim=1).values
        error = (values - kept.target[step, slot]).square().mean()
        entropy = torch.distributions.Categorical(chances).entropy().mean()
    expected = error - gain.mean() - 0.01 * entropy
    assert float(learner.loss(step, slot).detach()) == pytest.approx(float(expected), rel=1e-4)
    assert ((ratio > 1.1) & (good > 0)).any()


def test_rewarded_actions_become_likelier():
    learner = filled(actor(replace(TINY, learning_rate=2e-3, clip=10.0, batch_size=32, averaging=0.5)))
    pictures = torch.tensor([60.0, 180.0]).view(2, 1, 1, 1).expand(2, 3, 84, 84) / 255
    before = learner.online(pictures).softmax(dim=1).detach()
    for _ in range(40):
        learner.learn(0.0)
    after = learner.average(pictures).softmax(dim=1)
    assert after[0, 0] > before[0, 0] + 0.2
    assert after[1, 2] > before[1, 2] + 0.2


def test_clean_frames_reach_the_critic_alone():
    """Scrambled in the rollout, they change values and not actions."""
    done = []
    for scramble in (False, True):
        learner = actor()
        course, show = tuning(learner), learner.rollout.show
        if scramble:
            learner.rollout.show = lambda step, clean, seen, age, show=show: show(step, 255 - clean, seen, age)
        try:
            course.collect_rollout()
        finally:
            course.close()
        done.append(learner.rollout)
    plain, scrambled = done
    assert torch.equal(plain.action, scrambled.action)
    assert torch.equal(plain.log_prob, scrambled.log_prob)
    assert torch.equal(plain.seen, scrambled.seen)
    assert not torch.allclose(plain.value, scrambled.value, atol=1e-4)
    noise = plain.seen[2:18] - plain.clean[3:19] / 255
    assert float(noise.std()) == pytest.approx(0.3, rel=0.02)


# --- a training -----------------------------------------------------------------------------------------------------


def test_a_fine_tuned_agent_is_an_ordinary_one(tmp_path):
    student, out, watched = policy(3, "student"), tmp_path / "run", []
    options = {"teacher": policy(4, "teacher", 1), "init_from": student, "device": "cpu", "processes": 1}
    run_training(train_fine_tune, FREEWAY, 0.3, TINY, out, **options, watch=lambda line, _: watched.append(line))
    watched = [line for line in watched if line.startswith("validation")]  # others come by the clock
    tuned, card = zoo.load(str(out)), json.loads((out / "agent.json").read_text())
    assert (tuned.spaces.n_stack, tuned.name) == (3, "freeway-student-s0.3")
    assert card["training"]["started_from"] == {"name": "student", "sha256": student.sha256}
    assert (card["training"]["steps"], card["training"]["updates"]) == (64, 4)
    assert watched == ["validation before training", "validation at step 32", "validation at step 64"]
    # Equals do not replace the first: nothing was won, so the student stays.
    assert (card["training"]["best_step"], tuned.sha256) == (0, student.sha256)
    longer = replace(TINY, total_steps=96)
    run_training(train_fine_tune, FREEWAY, 0.3, longer, out, **options, resume=True)
    assert json.loads((out / "agent.json").read_text())["training"]["updates"] == 6
