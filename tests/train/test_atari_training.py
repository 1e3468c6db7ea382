"""Training on Atari: what the buffer samples, what is learned from it, and that a run resumes where it stopped."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.agents import files as zoo
from surefoot.agents.networks import CNN, NATURE
from surefoot.agents.sb3 import read as sb3
from surefoot.agents.sb3.write import write_zip
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import CUT, ENDED
from surefoot.play.envs.atari.env import AtariEnvironment
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task
from surefoot.train.folder import TrainingCurve, TrainingFolder
from surefoot.train.off_policy import build_dqn, train_off_policy
from surefoot.train.presets import PAPER
from trainings import run_training
from zoo.training.atari import copy_weights, fresh_arrays
from zoo.training.q_learning import (
    ExploringEmulators,
    FastSettings,
    QLearner,
    QLearningLoop,
    TransitionBuffer,
    Transitions,
    games_of_emulators,
    train_fast,
)

CPU = torch.device("cpu")
TINY = FastSettings(
    total_steps=96,
    n_envs=2,
    buffer_size=200,
    learning_starts=40,
    updates=1,
    batch_size=4,
    exploration_steps=60,
    validation_interval=48,
    validation_episodes=1,
)


POISON = 251


def replay(rows=40, slots=3, steps=3, sigma=0.0, batch=64, shape=(2, 2), gamma=0.9):
    stream = Stream(np.random.SeedSequence(0), CPU)
    return TransitionBuffer(
        rows, slots, shape, 4, n_steps=steps, gamma=gamma, sigma=sigma, batch_size=batch, stream=stream
    )


def filled(count, length=9, end=ENDED, reward=lambda _, __: 0.0, **options):
    """A buffer whose frame tells its vector step; slot 1 and 2 are offset, so that episodes end at different times."""
    buffer = replay(**options)
    age = torch.tensor([0, 2, 5])
    for step in range(count):
        buffer.show(torch.full((3, 2, 2), step % 250, dtype=torch.uint8), age)
        over = torch.where(age == length - 1, end, 0).to(torch.uint8)
        rewards = torch.tensor([reward(step, int(a)) for a in age])
        buffer.add(torch.tensor([step % 5] * 3), rewards, over)
        age = torch.where(over != 0, 0, age + 1)
    buffer.show(torch.full((3, 2, 2), POISON, dtype=torch.uint8), age)  # the emulators are stepping
    return buffer


def steps_of(stack):
    return (stack[:, :, 0, 0] * 255).round().long()


# --- what is drawn --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [30, 95])
def test_stacks_hold_the_last_frames_of_their_episode(count):
    """Also when the ring has been written over; before an episode's first frame that frame is repeated."""
    buffer = filled(count, batch=2_000)
    drawn = buffer.draw()
    stacks = steps_of(drawn.state)
    newest = stacks[:, -1]
    assert newest.min() == max(0, count - 40 + 1) + 3
    assert newest.max() == count - 1 - 3
    assert torch.equal(drawn.action, newest % 5)
    # Slots' ages at vector step t: (t + offset) mod 9.
    fits = torch.zeros(len(stacks), dtype=torch.bool)
    for offset in (0, 2, 5):
        age = (newest + offset) % 9
        expected = torch.stack([newest - torch.minimum(age, torch.tensor(back)) for back in (3, 2, 1, 0)], dim=1)
        fits |= (stacks == expected).all(dim=1)
    assert fits.all()
    assert (stacks[:, 0] == stacks[:, 1]).any()
    assert steps_of(drawn.successor).max() < POISON


def test_rewards_are_summed_up_to_the_end_of_the_episode():
    buffer = filled(60, reward=lambda _, age: float(age), batch=3_000)
    drawn = buffer.draw()
    newest = steps_of(drawn.state)[:, -1]
    for row in range(200):
        options = []
        for offset in (0, 2, 5):
            age, total, going = (int(newest[row]) + offset) % 9, 0.0, 1.0
            for index in range(3):
                total += going * 0.9**index * age
                going = 0.0 if age == 8 else going
                age = (age + 1) % 9
            options.append((round(total, 4), round(0.9**3 * going, 4)))
        assert (round(float(drawn.reward[row]), 4), round(float(drawn.discount[row]), 4)) in options
    assert (drawn.weight == 1).all()
    assert 0 < float((drawn.discount == 0).float().mean()) < 1


def test_a_cut_episode_is_neither_an_end_nor_goes_on():
    """A step limit ends no game: transitions across it count nothing, and no zero is learned there."""
    cut, ended = filled(60, end=CUT, batch=3_000).draw(), filled(60, end=ENDED, batch=3_000).draw()
    share = float((cut.weight == 0).float().mean())
    assert share == pytest.approx(3 / 9, abs=0.05)
    assert torch.allclose(cut.discount[cut.weight == 1], torch.tensor(0.9**3))
    assert (ended.weight == 1).all()
    assert torch.equal(cut.weight == 0, ended.discount == 0)


# --- noise ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 255])
def test_black_and_white_frames_come_out_with_all_their_noise(level):
    """From the buffer's bytes to the network's input: mean and spread as drawn, on both sides of black and white.

    Levels of five standard errors; noise that went through a byte would fail by hundreds.
    """
    sigma, heard = 0.1, []
    buffer = replay(rows=12, slots=2, sigma=sigma, batch=40, shape=(84, 84))
    for step in range(12):
        buffer.show(torch.full((2, 84, 84), level, dtype=torch.uint8), torch.tensor([step, step]))
        buffer.add(torch.zeros(2, dtype=torch.int64), torch.zeros(2), torch.zeros(2, dtype=torch.uint8))
    network = CNN(fresh_arrays(4, 3, 0), NATURE)
    network.convolutions[0].register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    drawn = buffer.draw()
    network(drawn.state)
    noise = heard[0].double() - level / 255
    assert abs(float(noise.mean())) < 5 * sigma / noise.numel() ** 0.5
    assert abs(float(noise.std()) / sigma - 1) < 5 / (2 * noise.numel()) ** 0.5
    assert float(noise.min()) < -3 * sigma
    assert float(noise.max()) > 3 * sigma
    through_bytes = ((level / 255 + noise) * 255).to(torch.uint8).double() / 255 - level / 255
    assert abs(float(through_bytes.mean())) > 50 * sigma / noise.numel() ** 0.5 or through_bytes.std() > 2 * sigma


# --- learning -------------------------------------------------------------------------------------------------------


def batch(rows=6, seed=0):
    random = torch.Generator().manual_seed(seed)
    return Transitions(
        state=torch.rand((rows, 4, 84, 84), generator=random),
        action=torch.arange(rows) % 3,
        reward=torch.linspace(-1, 1, rows),
        successor=torch.rand((rows, 4, 84, 84), generator=random),
        discount=torch.tensor([0.97, 0.0] * (rows // 2)),
        weight=torch.tensor([1.0] * (rows - 1) + [0.0]),
    )


def test_the_loss_is_double_q_learnings():
    learner = QLearner(get_task("freeway"), 0.0, TINY, CPU, seed=3)
    copy_weights(CNN(fresh_arrays(4, 3, 99), NATURE), learner.target)
    drawn = batch()
    with torch.no_grad():
        best = learner.online(drawn.successor).argmax(dim=1)
        following = learner.target(drawn.successor)[torch.arange(6), best]
        goal = drawn.reward + drawn.discount * following
        errors = learner.online(drawn.state)[torch.arange(6), drawn.action] - goal
        huber = torch.where(errors.abs() < 1, errors**2 / 2, errors.abs() - 0.5)
        expected = huber[:5].sum() / 6
        plain = learner.target(drawn.successor).max(dim=1).values
    assert float(learner.loss(drawn).detach()) == pytest.approx(float(expected), rel=1e-5)
    assert not torch.equal(plain, following)


def test_what_to_do_is_learned_from_what_is_seen():
    """A bright picture wants action 2, a dark one action 0: buffer, noise, loss and optimiser together find it out."""
    settings = replace(TINY, batch_size=16, learning_rate=5e-4, n_envs=4)
    learner, random = QLearner(get_task("freeway"), 0.1, settings, CPU, 0), torch.Generator().manual_seed(0)
    for _ in range(40):
        bright = torch.randint(2, (4,), generator=random)
        frames = (60 + 120 * bright).to(torch.uint8).view(4, 1, 1).expand(4, 84, 84)
        learner.buffer.show(frames, torch.zeros(4, dtype=torch.int64))
        action = torch.randint(3, (4,), generator=random)
        learner.buffer.add(action, (action == 2 * bright).float(), torch.full((4,), ENDED, dtype=torch.uint8))
    for _ in range(40):
        learner.learn(0.0)
    pictures = torch.tensor([60.0, 180.0]).view(2, 1, 1, 1).expand(2, 4, 84, 84) / 255
    with torch.no_grad():
        assert learner.online(pictures).argmax(dim=1).tolist() == [0, 2]
        assert learner.online(pictures).max() < 1.5


def test_players_and_buffer_agree_with_the_emulators():
    """What is booked is what was played; a goal ends the bootstrapping and the network sees the noisy stack."""
    task = get_task("pong-full")
    learner, curve = QLearner(task, 0.1, TINY, CPU, 0), TrainingCurve()
    players = ExploringEmulators(task, 0.1, TINY, CPU, 0, 0, 1)
    QLearningLoop(replace(TINY, learning_starts=10**6), learner, players).run_until(curve, 160, None)
    buffer = learner.buffer
    assert curve.steps == 160
    assert int(buffer.head) == buffer.written == 80
    assert torch.equal(buffer.age[:80, 0], torch.arange(80))  # a goal ends no game
    goals = buffer.reward[:80] != 0
    assert goals.any()
    assert set(buffer.reward[:80][goals].tolist()) <= {-1.0, 1.0}
    assert (buffer.over[:80][goals] == ENDED).all()
    assert (buffer.over[:80][~goals] == 0).all()
    players.close()


# --- resuming -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("fast") / "run"
    seen = []
    policy = run_training(
        train_fast,
        get_task("pong-1r"),
        0.1,
        TINY,
        out,
        device="cpu",
        processes=1,
        progress=lambda *facts: seen.append(facts),
    )
    return out, policy, seen


def test_a_training_leaves_an_agent_that_everybody_loads(trained, tmp_path):
    out, policy, seen = trained
    assert [facts[0] for facts in seen] == [48, 96]
    loaded = zoo.load(str(out))
    assert loaded.sha256 == policy.sha256
    card = json.loads((out / "agent.json").read_text())
    assert (card["task"], card["sigma"], card["training"]["steps"]) == ("pong-1r", 0.1, 96)
    assert card["training"]["settings"] == TINY.as_dict()
    assert len(card["curve"]) == 2
    write_zip(loaded, tmp_path / "agent.zip")
    assert sb3.read_zip(tmp_path / "agent.zip").spaces.n_actions == 6


def test_a_checkpoint_restores_what_was_learned(trained):
    task, out = get_task("pong-1r"), trained[0]
    learner, folder = QLearner(task, 0.1, TINY, CPU, 5), TrainingFolder(out, resume=True)
    assert learner.load_checkpoint(folder) is None
    curve = folder.curve
    assert (curve.steps, len(curve.rows), learner.updates > 0) == (96, 2, True)
    again = QLearner(task, 0.1, TINY, CPU, 6)
    learner.save_checkpoint(folder, {"name": "x", "sha256": "y"})
    assert again.load_checkpoint(folder) == {"name": "x", "sha256": "y"}
    assert torch.equal(again.target.linear[0].weight, learner.online.linear[0].weight)
    assert (folder.curve.rows, folder.curve.best_step) == (curve.rows, curve.best_step)
    assert all((folder.curve.best_weights[name] == array).all() for name, array in curve.best_weights.items())
    learner.save_checkpoint(folder, None)
    for one, other in zip(learner.online.parameters(), again.online.parameters(), strict=True):
        assert torch.equal(one, other)
        states = learner.optimizer.state[one], again.optimizer.state[other]
        assert all(torch.equal(states[0][key], states[1][key]) for key in ("step", "exp_avg", "exp_avg_sq"))
        assert states[1]["exp_avg"].stride() == states[1]["exp_avg_sq"].stride() == other.stride()
    assert not torch.equal(learner.online.linear[0].weight, learner.average.linear[0].weight)
    assert torch.equal(learner.average.linear[0].weight, again.average.linear[0].weight)
    again.buffer.draw = lambda: replace(batch(), action=torch.arange(6))
    again.learn(0.5)
    assert float(again.optimizer.param_groups[0]["lr"]) == pytest.approx(0.55 * TINY.learning_rate)


def test_a_training_run_is_resumed_with_more_steps(trained):
    out, _, _ = trained
    longer = replace(TINY, total_steps=144)
    run_training(train_fast, get_task("pong-1r"), 0.1, longer, out, device="cpu", processes=1, resume=True)
    card = json.loads((out / "agent.json").read_text())
    assert [row[0] for row in card["curve"]] == [48, 96, 144]
    assert card["training"]["steps"] == 144


def test_every_second_emulator_may_play_another_task_of_the_game():
    one, full = get_task("pong-1r"), get_task("pong-full")
    settings = replace(TINY, n_envs=4, beside="pong-full")
    assert games_of_emulators(one, settings) == [one.cartridge, full.cartridge] * 2
    assert games_of_emulators(one, TINY) == [one.cartridge] * 2
    for other in ("freeway", "cartpole-5"):
        with pytest.raises(InputError, match=f"{other} is not a task of the same game as pong-1r"):
            games_of_emulators(one, replace(TINY, beside=other))


# --- the paper's own training ---------------------------------------------------------------------------------------


def test_the_papers_table_for_atari():
    ours = PAPER["pong-1r"]
    assert (ours.total_steps, ours.validation_interval, ours.validation_episodes) == (10_000_000, 100_000, 100)
    assert (ours.learning_rate, ours.gamma, ours.buffer_size, ours.learning_starts) == (1e-4, 0.99, 10_000, 100_000)
    assert (ours.exploration_fraction, ours.exploration_initial, ours.exploration_final) == (0.1, 1.0, 0.01)
    assert (ours.target_interval, ours.batch_size, ours.train_interval, ours.gradient_steps) == (1_000, 32, 4, 1)
    assert PAPER["freeway"] == replace(ours, repeats=5)
    assert PAPER["pong-full"] == replace(ours, validation_episodes=10)


def test_sb3s_own_training_keeps_noise_out_of_bytes(tmp_path):
    """One short run of the paper's way: its buffer holds floats with all their noise, its agent is convolutional."""
    settings = replace(
        PAPER["pong-1r"],
        total_steps=24,
        validation_interval=24,
        validation_episodes=1,
        buffer_size=30,
        learning_starts=8,
        batch_size=4,
    )
    task = get_task("pong-1r")
    policy = run_training(train_off_policy, task, 0.1, settings, tmp_path / "run", progress=lambda *_: None)
    assert isinstance(policy.network, CNN)
    assert zoo.load(str(tmp_path / "run")).sha256 == policy.sha256
    model = build_dqn(task, 0.1, settings, 0, "cpu")
    model.learn(20)
    frames = model.replay_buffer.observations[:20, 0, -1]
    assert frames.dtype == np.float32
    still = frames[:, 40:44, 2:6].astype(np.float64)  # the field next to the paddles does not change
    clean = AtariEnvironment(task.cartridge)
    clean.reset(seed=0)
    noise = still - clean.step(0)[0][40:44, 2:6].astype(np.float64) / 255
    assert abs(noise.mean()) < 5 * 0.1 / noise.size**0.5
    assert abs(noise.std() / 0.1 - 1) < 5 / (2 * noise.size) ** 0.5
