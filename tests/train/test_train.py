"""Training: what it writes, that it repeats, keeps the strictly best, stops, resumes, and sees the noise."""

import csv
import dataclasses
import io
import json

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import DQN

from stand_ins import KilledError
from surefoot.agents import files as zoo
from surefoot.agents.networks import weights_hash
from surefoot.cli.main import main
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import get_task
from surefoot.train import off_policy, selection
from surefoot.train.deployed import policy_from_weights
from surefoot.train.folder import TrainingCurve, TrainingFolder, TrainingRun, has_checkpoint
from surefoot.train.off_policy import (
    build_ddpg,
    build_dqn,
    kept_weights,
    load_checkpoint,
    save_checkpoint,
    train_off_policy,
    training_environment,
)
from surefoot.train.presets import PAPER
from surefoot.train.settings import DdpgSettings, DqnSettings
from toys import not_normal
from trainings import run_training

TASK = get_task("cartpole-5")
TINY = DqnSettings(
    total_steps=600,
    validation_interval=100,
    validation_episodes=4,
    buffer_size=1_000,
    learning_starts=100,
    batch_size=16,
    train_interval=50,
    gradient_steps=2,
    hidden=(8,),
)


def tiny(out, **more):
    own = {field.name for field in dataclasses.fields(TINY)}
    settings = dataclasses.replace(TINY, **{name: more.pop(name) for name in list(more) if name in own})
    return run_training(train_off_policy, more.pop("task", TASK), more.pop("sigma", 0.2), settings, out, **more)


def curve_of(out):
    return [
        [float(cell) for cell in row]
        for row in csv.reader(io.StringIO((out / "curve.csv").read_text()))
        if row[0] != "step"
    ]


def scripted(monkeypatch, means):
    """Let validation say these means, in turn; the last one for ever."""
    left, asked = list(means), []

    def script(plan):
        asked.append((plan.policy, plan.purpose))
        mean = left.pop(0) if len(left) > 1 else left[0]
        return Episodes.from_returns([mean] * plan.n_episodes, sigma=plan.noise.sigma, floor=0)

    monkeypatch.setattr(selection, "play", script)
    return asked


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One training run for all tests that only read what it wrote: its folder, agent and progress."""
    out, said = tmp_path_factory.mktemp("trained") / "run", []
    policy = tiny(out, seed=3, command="the command", preset="tiny", progress=lambda *words: said.append(words))
    return out, policy, said


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """One training run whose validations said 10, 30, 30, 20, 30, 5: its folder, agent, and what was validated."""
    out = tmp_path_factory.mktemp("validated") / "run"
    with pytest.MonkeyPatch.context() as patch:
        asked = scripted(patch, [10, 30, 30, 20, 30, 5])
        return out, tiny(out), asked


# --- what it writes -------------------------------------------------------------------------------------------------


def test_it_writes_an_agent_and_a_curve(trained):
    out, policy, said = trained
    found = sorted(path.name for path in out.iterdir())
    assert found == ["agent.json", "agent.npz", "curve.csv"]
    again, card = zoo.load(str(out)), zoo.load_card(str(out))
    assert again.sha256 == policy.sha256 == card["sha256"]
    assert policy.name == card["name"] == "cartpole-5-s0.2"
    assert (card["task"], card["sigma"]) == ("cartpole-5", 0.2)
    training = card["training"]
    assert training["settings"] == TINY.as_dict()
    assert (training["seed"], training["command"], training["preset"]) == (3, "the command", "tiny")
    assert training["steps"] == 600
    rows = curve_of(out)
    assert [row[0] for row in rows] == [100, 200, 300, 400, 500, 600]
    assert [row[1] for row in rows] == [mean for _, mean in card["curve"]]
    assert training["best_validation"] == max(row[1] for row in rows)
    assert [step for step, _, _ in said] == [100, 200, 300, 400, 500, 600]
    assert "torch" in card["versions"]
    assert len(play(Plan(task=TASK, policy=again, noise=Noise.of(0.2), n_episodes=10))) == 10


def test_it_repeats_with_the_seed_and_not_without(trained, tmp_path):
    out, policy, _ = trained
    again, other = tiny(tmp_path / "again", seed=3), tiny(tmp_path / "other", seed=2, total_steps=300)
    assert again.sha256 == policy.sha256 != other.sha256
    assert (tmp_path / "again" / "curve.csv").read_bytes() == (out / "curve.csv").read_bytes()
    assert curve_of(tmp_path / "other") != curve_of(out)[:3]


# --- validation -----------------------------------------------------------------------------------------------------


def test_only_strictly_better_replaces_the_best(validated):
    out, policy, asked = validated
    training = zoo.load_card(str(out))["training"]
    assert (training["best_step"], training["best_validation"]) == (200, 30)
    hashes = [weights_hash(arrays, layout) for layout, arrays in (zoo.parts_of(policy) for policy, _ in asked)]
    assert policy.sha256 == hashes[1]
    assert hashes[1] not in hashes[2:]


ENDLESS = dataclasses.replace(TASK, scoring=dataclasses.replace(TASK.scoring, ceiling=None))


@pytest.mark.parametrize(
    ("means", "options", "expected"),
    [
        ([10, 199.9, 200, 200], {}, (300, 300, 3)),
        ([1e9], {"task": ENDLESS}, (600, 100, 6)),  # without a ceiling nothing is perfect
        ([10, 200], {"stop_when_perfect": PAPER["pong-1r"].stop_when_perfect}, (600, 200, 6)),  # Pong goes on
    ],
)
def test_it_stops_at_the_first_perfect_validation(tmp_path, monkeypatch, means, options, expected):
    asked = scripted(monkeypatch, means)
    tiny(tmp_path / "run", **options)
    training = zoo.load_card(str(tmp_path / "run"))["training"]
    assert (training["steps"], training["best_step"], len(asked)) == expected


def test_each_validation_plays_episodes_of_its_own(validated):
    """Streams of two purposes, or of two rounds, share no random number (tests/play/test_streams.py)."""
    _, _, asked = validated
    assert [stream for _, stream in asked] == [(Purpose.VALIDATION, k) for k in range(1, 7)]


def test_validation_is_played_through_the_channel_that_certifies(trained):
    out, policy, _ = trained
    training = zoo.load_card(str(out))["training"]
    played = selection.run_validation(
        TrainingRun(task=TASK, noise=Noise.of(0.2), out=out, seed=3), policy, 4, number=training["best_step"] // 100
    )
    assert played.sigma == 0.2
    assert played.returns.mean() == training["best_validation"]


# --- refusals -------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="is not empty; give another out="):
        tiny(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("resume", [True, False])
def test_a_trained_agent_is_not_overwritten(tmp_path, resume):
    (tmp_path / "agent.json").write_text("{}")
    with pytest.raises(InputError, match="already holds a trained agent; give another out="):
        tiny(tmp_path, resume=resume)


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to "):
        tiny(tmp_path / "file" / "run")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sigma": -0.1}, "sigma must be a finite number >= 0"),
        ({"sigma": float("nan")}, "sigma must be a finite number >= 0"),
        ({"seed": -1}, "a training seed must be between 0 and 4294967295, got -1"),
        ({"seed": 2**32}, "a training seed must be between 0 and 4294967295, got 4294967296"),
        ({"total_steps": 50}, r"total_steps must be at least validation_interval \(100\), got 50"),
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"repeats": 2, "seed": 2**32 - 1}, "a training seed must be between 0 and 4294967294"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_made(tmp_path, options, match):
    with pytest.raises(InputError, match=match):
        tiny(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


# --- resuming -------------------------------------------------------------------------------------------------------


def stop_at(step):
    def progress(now, of, best):
        if now == step:
            raise KilledError

    return progress


def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(off_policy, "CHECKPOINT_EVERY", 2)
    asked = scripted(monkeypatch, [10, 40, 30, 20, 39, 41, 5])
    with pytest.raises(KilledError):
        tiny(tmp_path / "run", progress=stop_at(500))
    assert (tmp_path / "run" / "checkpoint.pt").exists()  # of step 400
    assert [row[:2] for row in curve_of(tmp_path / "run")] == [[100, 10], [200, 40], [300, 30], [400, 20]]
    assert not (tmp_path / "run" / "agent.json").exists()
    with pytest.raises(InputError, match="is not empty; give resume=True"):
        tiny(tmp_path / "run")
    policy = tiny(tmp_path / "run", resume=True)
    assert [row[:2] for row in curve_of(tmp_path / "run")] == [
        [100, 10],
        [200, 40],
        [300, 30],
        [400, 20],
        [500, 41],
        [600, 5],
    ]
    training = zoo.load_card(str(tmp_path / "run"))["training"]
    assert (training["steps"], training["best_step"], training["best_validation"]) == (600, 500, 41)
    assert policy.sha256 == weights_hash(*reversed(zoo.parts_of(asked[5][0])))
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_kill_costs_no_more_than_the_time_between_checkpoints(tmp_path, monkeypatch):
    """On Atari ten validations take half an hour: a checkpoint is also written when the last one is old."""
    monkeypatch.setattr(off_policy, "CHECKPOINT_SECONDS", 0.0)
    scripted(monkeypatch, [10, 40, 30])
    with pytest.raises(KilledError):
        tiny(tmp_path / "run", progress=stop_at(300))
    assert [row[:2] for row in curve_of(tmp_path / "run")] == [[100, 10], [200, 40]]


def test_the_best_before_the_kill_stays_the_best(tmp_path, monkeypatch):
    monkeypatch.setattr(off_policy, "CHECKPOINT_EVERY", 2)
    asked = scripted(monkeypatch, [50, 40, 30])
    with pytest.raises(KilledError):
        tiny(tmp_path / "run", progress=stop_at(300))
    policy = tiny(tmp_path / "run", resume=True)
    assert policy.sha256 == weights_hash(*reversed(zoo.parts_of(asked[0][0])))


@pytest.mark.parametrize("begun", [False, True])
def test_resuming_without_a_checkpoint_does_not_restart_silently(tmp_path, begun):
    if begun:
        with pytest.raises(KilledError):
            tiny(tmp_path / "run", progress=stop_at(100))
    left = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        InputError, match="contains no checkpoint to resume from; start without resume=True, with an empty"
    ):
        tiny(tmp_path / "run", resume=True)
    assert sorted(tmp_path.rglob("*")) == left


def test_the_command_says_what_an_interrupt_leaves(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(PAPER, "cartpole-5", TINY)
    played = []

    def interrupted(plan):
        played.append(plan)
        if len(played) == 2:
            raise KeyboardInterrupt
        return Episodes.from_returns([1.0, 2.0], sigma=plan.noise.sigma, floor=0)

    monkeypatch.setattr(selection, "play", interrupted)
    call = ["train", "cartpole-5", "--sigma", "0.2", "--preset", "paper", "--device", "cpu", "--quiet"]
    assert main([*call, "--out", str(tmp_path / "run")]) == 130
    said = capsys.readouterr().err
    assert f"interrupted; a checkpoint is kept in {tmp_path / 'run'}. Run the same command with --resume" in said
    assert has_checkpoint(tmp_path / "run")


def test_a_checkpoint_holds_everything(tmp_path):
    one = build_dqn(TASK, 0.2, TINY, 0, "cpu")
    one.learn(300)
    curve = TrainingCurve([(200, 10.0, 1.0, 0.5)], 10.0, 200, kept_weights(one))
    folder = TrainingFolder(tmp_path, resume=False)
    folder.curve = curve
    save_checkpoint(folder, one)
    other, resumed = build_dqn(TASK, 0.2, TINY, 9, "cpu"), TrainingFolder(tmp_path, resume=True)
    load_checkpoint(resumed, other)
    read = resumed.curve
    assert (read.steps, read.seconds) == (300, curve.seconds)
    assert (read.rows, read.best, read.best_step) == (curve.rows, curve.best, curve.best_step)
    assert all((read.best_weights[name] == array).all() for name, array in curve.best_weights.items())
    assert (other.num_timesteps, other._n_updates, other._n_calls) == (300, one._n_updates, one._n_calls)
    assert other.exploration_rate == one.exploration_rate
    for mine, its in zip(one.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(mine, its)
    moments = [model.policy.optimizer.state_dict()["state"] for model in (one, other)]
    assert moments[0].keys() == moments[1].keys()
    assert all(torch.equal(moments[0][k][n], moments[1][k][n]) for k in moments[0] for n in moments[0][k])
    assert other.replay_buffer.size() == one.replay_buffer.size() == 300
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        assert (getattr(other.replay_buffer, name)[:300] == getattr(one.replay_buffer, name)[:300]).all()


PIXELS = dataclasses.replace(
    PAPER["pong-1r"],
    total_steps=400,
    buffer_size=40,
    learning_starts=20,
    validation_interval=200,
    validation_episodes=1,
)


def pixel_model(seed):
    return build_dqn(get_task("pong-1r"), 0.1, PIXELS, seed, "cpu")


def resumed_pixels(tmp_path, monkeypatch, steps=90):
    """Return a model of pixels after some steps, and what its checkpoint is loaded into; with what was learned from."""
    one = pixel_model(0)
    one.learn(400, lambda *_: one.num_timesteps < steps)
    save_checkpoint(TrainingFolder(tmp_path, resume=False), one)
    learned = []
    monkeypatch.setattr(DQN, "train", lambda model, *_, **__: learned.append(model.num_timesteps))
    other = pixel_model(9)
    load_checkpoint(TrainingFolder(tmp_path, resume=True), other)
    return one, other, learned


def test_a_checkpoint_of_pixels_is_small_and_its_buffer_is_collected_again(tmp_path, monkeypatch):
    one, other, learned = resumed_pixels(tmp_path, monkeypatch)
    stored = TrainingFolder(tmp_path, resume=True).load_checkpoint().arrays
    assert [len(stored[f"buffer.{name}"]) for name in ("observations", "next_observations")] == [0, 0]
    assert (other.num_timesteps, other._n_updates, other._n_calls) == (90, one._n_updates, one._n_calls)
    assert other.exploration_rate == one.exploration_rate
    assert other.gradient_steps == one.gradient_steps == 1
    assert other.replay_buffer.full
    assert other.replay_buffer.observations[:, 0].std(axis=(1, 2, 3)).min() > 0  # every place was written
    assert not learned
    for mine, its in zip(one.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(mine, its)
    other.learn(10, reset_num_timesteps=False)
    assert learned
    assert min(learned) > 90


def test_a_checkpoint_of_another_task_is_refused(tmp_path):
    save_checkpoint(TrainingFolder(tmp_path, resume=False), build_dqn(TASK, 0.2, TINY, 0, "cpu"))
    other = build_dqn(get_task("cartpole-1"), 0.2, TINY, 0, "cpu")
    with pytest.raises(InputError, match="contains a checkpoint of another task or version"):
        load_checkpoint(TrainingFolder(tmp_path, resume=True), other)


# --- stopping and repeating -----------------------------------------------------------------------------------------


def test_only_cartpole_stops_at_a_perfect_validation_and_only_freeway_is_the_best_of_several_runs():
    """The paper's logs of the other tasks go on."""
    stops = {task for task, settings in PAPER.items() if settings.stop_when_perfect}
    assert stops == {"cartpole-5", "cartpole-1"}
    repeats = {task: settings.repeats for task, settings in PAPER.items()}
    assert repeats == {**dict.fromkeys(repeats, 1), "freeway": 5}


def test_the_best_of_several_runs_is_kept(tmp_path, monkeypatch):
    asked, said = scripted(monkeypatch, [10, 20, 30, 25, 30, 5]), []
    options = {"total_steps": 200, "seed": 4, "repeats": 3}
    policy = tiny(tmp_path / "run", progress=lambda *words: said.append(words), **options)
    card = zoo.load_card(str(tmp_path / "run"))
    assert policy.sha256 == card["sha256"] == weights_hash(*reversed(zoo.parts_of(asked[2][0])))  # the first of equals
    assert (card["training"]["seed"], card["training"]["best_validation"]) == (5, 30)
    assert card["training"]["settings"]["repeats"] == 3
    assert [(one["seed"], one["best_validation"]) for one in card["candidates"]] == [(4, 20), (5, 30), (6, 30)]
    assert [one["curve"] for one in card["candidates"]] == [
        [[100, 10.0], [200, 20.0]],
        [[100, 30.0], [200, 25.0]],
        [[100, 30.0], [200, 5.0]],
    ]
    assert [row[1] for row in curve_of(tmp_path / "run")] == [30, 25]
    assert [words[:2] for words in said] == [(step, 600) for step in range(100, 700, 100)]
    with pytest.raises(InputError, match="already holds a trained agent"):
        tiny(tmp_path / "run", resume=True, **options)


def test_each_of_several_runs_is_the_run_of_its_seed(trained, tmp_path):
    """Twin: had all the same seed, the second would be the first."""
    tiny(tmp_path / "run", seed=2, total_steps=300, repeats=2)
    assert curve_of(tmp_path / "run" / "repeat-1") == curve_of(trained[0])[:3]
    assert curve_of(tmp_path / "run" / "repeat-0") != curve_of(trained[0])[:3]


@pytest.mark.parametrize(("at", "missing"), [(100, 4), (300, 2)])
def test_several_runs_are_resumed(tmp_path, monkeypatch, at, missing):
    """Killed in the second: the first is not trained again; before a first checkpoint the second is restarted."""
    monkeypatch.setattr(off_policy, "CHECKPOINT_EVERY", 2)
    asked = scripted(monkeypatch, [10, 20, 30, 25, 5])
    with pytest.raises(KilledError):
        tiny(tmp_path / "run", total_steps=400, repeats=2, progress=stop_at(400 + at))
    assert has_checkpoint(tmp_path / "run")
    assert has_checkpoint(tmp_path / "run" / "repeat-1") is (at == 300)
    with pytest.raises(InputError, match="is not empty; give resume=True"):
        tiny(tmp_path / "run", total_steps=400, repeats=2)
    before = len(asked)
    tiny(tmp_path / "run", total_steps=400, repeats=2, resume=True)
    assert len(asked) - before == missing
    card = zoo.load_card(str(tmp_path / "run"))
    assert [len(one["curve"]) for one in card["candidates"]] == [4, 4]


def test_the_command_trains_several_seeds(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(PAPER, "cartpole-5", dataclasses.replace(TINY, total_steps=200))
    scripted(monkeypatch, [10, 20, 30, 25])
    call = ["train", "cartpole-5", "--sigma", "0.2", "--preset", "paper", "--device", "cpu", "--json", "--quiet"]
    assert main([*call, "--repeats", "2", "--out", str(tmp_path / "run")]) == 0
    card = json.loads(capsys.readouterr().out)
    assert [(one["seed"], one["best_validation"]) for one in card["candidates"]] == [(0, 20), (1, 30)]
    assert (card["training"]["seed"], card["training"]["settings"]["repeats"]) == (1, 2)
    assert main([*call, "--repeats", "0", "--out", str(tmp_path / "none")]) == 2
    assert "repeats must be at least 1, got 0" in capsys.readouterr().err


# --- what the learner sees ------------------------------------------------------------------------------------------


class Still(gymnasium.Env):
    """Shows 0.5 for ever; episodes are cut at the step limit and never end otherwise."""

    observation_space = Box(-1.0, 1.0, (3,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(3, 0.5, dtype=np.float32), {}

    def step(self, action):
        return np.full(3, 0.5, dtype=np.float32), 1.0, False, False, {}


@pytest.fixture
def still():
    gymnasium.register("Still-v0", Still, max_episode_steps=7)
    yield make_task("Still-v0", floor=0.0, ceiling=7.0)
    del gymnasium.registry["Still-v0"]


@pytest.mark.parametrize("frames", [1, 4])
def test_the_buffer_holds_the_noise_unwrapped(still, frames):
    stacked = dataclasses.replace(still, spaces=dataclasses.replace(still.spaces, n_stack=frames))
    model = build_dqn(stacked, 0.4, TINY, 0, "cpu")
    model.learn(1_000)
    buffer = model.replay_buffer
    assert buffer.observations.dtype == np.float32
    newest = buffer.observations[:, 0].reshape(1_000, frames, 3)[:, -1] - np.float32(0.5)
    assert not not_normal(newest, 0.4)
    assert not_normal(np.clip(newest + 0.5, -1, 1) - 0.5, 0.4)  # clipped to the space
    assert not_normal((255 * (newest + 0.5)).astype(np.int64).astype(np.uint8) / 255 - 0.5, 0.4)  # wrapped in uint8


def test_the_next_observation_is_the_one_that_is_seen_next(still):
    """An observation keeps its noise from the transition that ends with it to the one that begins with it."""
    model = build_dqn(still, 0.4, TINY, 0, "cpu")
    model.learn(100)
    buffer = model.replay_buffer
    going = buffer.dones[:99, 0] == 0
    assert (buffer.next_observations[:99][going] == buffer.observations[1:100][going]).all()
    assert (buffer.next_observations[:99][~going] != buffer.observations[1:100][~going]).any()


def test_a_cut_is_not_an_end(still):
    """Every episode is cut at step 7: all are over, all are timeouts, and the sampled ``dones`` are all zero."""
    model = build_dqn(still, 0.4, TINY, 0, "cpu")
    model.learn(140)
    buffer = model.replay_buffer
    assert buffer.dones[:140].sum() == buffer.timeouts[:140].sum() == 20
    assert buffer.sample(1_000).dones.sum() == 0


def test_a_fall_is_an_end():
    model = build_dqn(TASK, 0.2, TINY, 0, "cpu")
    model.learn(300)
    buffer = model.replay_buffer
    assert buffer.dones[:300].sum() > 3
    assert buffer.timeouts[:300].sum() == 0
    assert buffer.sample(1_000).dones.sum() > 0


def test_training_frames_are_the_ones_that_are_played():
    """The environment's stack is the channel's: the first observation repeated, noise included."""
    environment = training_environment(TASK, 0.2)
    first = environment.reset(seed=0)[0]
    assert first.shape == (5, 4)
    assert (first == first[-1]).all()
    second = environment.step(0)[0]
    assert (second[:4] == first[1:]).all()
    assert (second[4] != first[4]).all()
    environment.close()


def test_the_settings_reach_the_learner():
    settings = dataclasses.replace(TINY, gamma=0.9, learning_rate=0.003, target_interval=17, exploration_final=0.05)
    model = build_dqn(TASK, 0.2, settings, 0, "cpu")
    assert (model.gamma, model.learning_rate, model.target_update_interval) == (0.9, 0.003, 17)
    assert (model.exploration_initial_eps, model.exploration_final_eps) == (1.0, 0.05)
    assert (model.batch_size, model.buffer_size, model.learning_starts) == (16, 1_000, 100)
    assert (model.train_freq.frequency, model.gradient_steps, model.exploration_fraction) == (50, 2, 0.16)
    widths = [layer.out_features for layer in model.q_net.q_net if isinstance(layer, torch.nn.Linear)]
    assert widths == [8, 2]


def test_exported_weights_act_as_the_learner():
    model = build_dqn(TASK, 0.2, TINY, 0, "cpu")
    policy = policy_from_weights(TASK.spaces, kept_weights(model), "x")
    histories = np.random.default_rng(0).normal(size=(200, 5, 4)).astype(np.float32)
    assert (model.predict(histories, deterministic=True)[0] == policy.act(torch.from_numpy(histories)).numpy()).all()


def test_an_exported_actor_and_its_critic_compute_what_the_learner_computes():
    """Attacks ask the critic: with another function between its layers they would look for other actions."""
    task = get_task("mountain-car")
    model = build_ddpg(task, 0.2, DdpgSettings(hidden=(16, 8), buffer_size=10), 0, "cpu")
    policy = policy_from_weights(task.spaces, kept_weights(model), "x")
    rng = np.random.default_rng(0)
    histories = rng.normal(size=(50, task.spaces.n_stack, 2)).astype(np.float32)
    actions = torch.from_numpy(rng.uniform(-1, 1, (50, 1)).astype(np.float32))
    seen = torch.from_numpy(histories)
    assert np.allclose(model.predict(histories, deterministic=True)[0], policy.act(seen).numpy(), atol=1e-5)
    values = model.critic.q_networks[0](torch.cat((seen.flatten(1), actions), dim=1)).squeeze(1)
    assert torch.allclose(policy.critic(seen, actions), values, atol=1e-5)
