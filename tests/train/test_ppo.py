"""PPO: what it writes, that it learns, resumes to the bit, selects by certified value, and never leaks."""

import csv
import dataclasses

import numpy as np
import pytest
import stable_baselines3
import torch

from stand_ins import KilledError
from surefoot.agents import files as zoo
from surefoot.agents.memory import Recurrent
from surefoot.agents.resolve import as_policy
from surefoot.cli.main import main
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose, Stream, training_seeds
from surefoot.play.tasks import get_task
from surefoot.proof.forecast import forecast
from surefoot.train import ppo, selection
from surefoot.train.actors import deployed_weights
from surefoot.train.deployed import policy_from_weights
from surefoot.train.folder import TrainingCurve, TrainingFolder, TrainingRun
from surefoot.train.ppo import Batch, Players, PpoLearner, PpoProgress, Running, discount_at, train_ppo
from surefoot.train.presets import PPO
from surefoot.train.settings import PpoSettings, settings_of_env
from trainings import run_training

CPU = torch.device("cpu")
CARTPOLE, CAR = get_task("cartpole-5"), get_task("mountain-car")
SHORT_CAR = dataclasses.replace(CAR, scoring=dataclasses.replace(CAR.scoring, max_steps=30))
TINY = PpoSettings(
    total_steps=4_000,
    validations=4,
    validation_episodes=40,
    width=8,
    critic_width=8,
    n_envs=32,
    minibatches=2,
    epochs=1,
)
KINDS = [(CARTPOLE, ""), (CARTPOLE, "gru"), (SHORT_CAR, "frames=1"), (SHORT_CAR, "gru")]
POLE = make_task("CartPole-v1", max_steps=60)
PENDULUM = make_task("Pendulum-v1", max_steps=40)
UNBOUNDED = dataclasses.replace(PENDULUM, spaces=dataclasses.replace(PENDULUM.spaces, low=(-np.inf,), high=(np.inf,)))
# Environments that step one by one, and go on from one iteration to the next.
ONE_BY_ONE = {"n_envs": 8, "n_steps": 24, "sequence": 10, "validation_episodes": 20, "total_steps": 1_000}


def tiny(out, task=CARTPOLE, sigma=0.2, **more):
    own = {field.name for field in dataclasses.fields(TINY)}
    settings = dataclasses.replace(TINY, **{name: more.pop(name) for name in list(more) if name in own})
    return run_training(train_ppo, task, sigma, settings, out, **more)


def learner_of(task, memory, sigma=0.3, **more):
    settings = dataclasses.replace(TINY, memory=memory, **more)
    learner = PpoLearner(task, Noise.of(sigma), settings, 0, CPU)
    # Any actor but the first, which prefers nothing.
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in learner.actor.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def players_of(learner, teacher=None):
    return Players(learner.task, learner.actor, learner.settings, training_seeds(0, 0)[0], teacher)


def episodes_of(learner, teacher=None, **more):
    players = players_of(learner, teacher)
    batch, _ = players.collect(learner.noise, Stream(training_seeds(0, 0)[1], CPU), **more)
    players.close()
    return batch


# --- it learns ------------------------------------------------------------------------------------------------------


def test_it_learns_cartpole_in_seconds(tmp_path):
    policy = tiny(tmp_path / "run", total_steps=120_000, width=32, n_envs=128, epochs=3)
    played = play(Plan(task=CARTPOLE, policy=policy, noise=Noise.of(0.2), n_episodes=100))
    assert played.returns.mean() > 100  # 22 before training


# --- what it writes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "memory"), KINDS)
def test_it_writes_an_agent_that_everybody_loads(tmp_path, task, memory):
    said = []
    options = {"memory": memory, "seed": 3, "command": "it", "preset": "ppo"}
    policy = tiny(tmp_path / "run", task, **options, progress=lambda *facts: said.append(facts[:2]))
    card, again = zoo.load_card(str(tmp_path / "run")), zoo.load(str(tmp_path / "run"))
    assert again.sha256 == policy.sha256 == card["sha256"]
    assert isinstance(again.memory, Recurrent) == (memory == "gru")
    training = card["training"]
    assert (training["seed"], training["command"], training["preset"], training["budget"]) == (3, "it", "ppo", 0.4)
    assert training["settings"] == dataclasses.replace(TINY, memory=memory).as_dict()
    with (tmp_path / "run" / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [step for step, _ in said]
    assert max(float(row["certified"]) for row in rows) == training.get("best_certified", training["best_validation"])
    assert training["steps"] >= TINY.total_steps > said[-2][0]


def test_frames_with_discrete_actions_are_an_sb3_file_too(tmp_path):
    policy = tiny(tmp_path / "run")
    model = stable_baselines3.PPO.load(tmp_path / "run" / "agent.zip", device="cpu")
    stacks = torch.randn(300, 5, 4, generator=torch.Generator().manual_seed(0))
    acted = policy.act(stacks).numpy()
    assert set(acted) == {0, 1}
    assert np.array_equal(model.predict(stacks.numpy(), deterministic=True)[0], acted)
    assert torch.equal(as_policy(tmp_path / "run" / "agent.zip", CARTPOLE.spaces).act(stacks), policy.act(stacks))
    tiny(tmp_path / "gru", memory="gru")
    assert not (tmp_path / "gru" / "agent.zip").exists()


def test_what_is_deployed_is_the_most_likely_action(tmp_path):
    for task, memory in KINDS:
        learner = learner_of(task, memory)
        batch = episodes_of(learner)
        learner._measure_scales(batch)
        features = learner.actor.memory(batch.inputs)
        center = learner.actor.head.linear(features)
        expected = center.argmax(-1) if task.spaces.n_actions else learner.actor.head.to_action(center)
        n_stack = learner.settings.n_stack(task)
        policy = policy_from_weights(
            task.spaces, deployed_weights(learner.actor), "it", n_stack=n_stack, activation="tanh"
        )
        shape = task.spaces.shape
        if memory == "gru":
            state = torch.zeros(TINY.n_envs, learner.settings.width)
            for step, inputs in enumerate(batch.inputs):
                done = inputs[:, shape[0] :]
                action = done if task.spaces.n_actions is None else done.argmax(-1)
                state = policy.memory.advance(state, inputs[:, : shape[0]], None if step == 0 else action)
                assert torch.allclose(policy.act(state).float(), expected[step].float(), atol=1e-5)
        else:
            found = policy.act(batch.inputs.flatten(0, 1))
            assert torch.allclose(found.float(), expected.flatten(0, 1).float(), atol=1e-5)


# --- the actor does not see what is clean ---------------------------------------------------------------------------


def scrambled(batch):
    """Return the batch with another clean observation everywhere."""
    wide = batch.clean.shape[-1]
    other = 7 * torch.randn_like(batch.clean)
    known = torch.cat((other, batch.known[..., wide:]), dim=-1)
    return dataclasses.replace(batch, clean=other, known=known)


def log_probs(learner, batch):
    features = learner.actor.memory(batch.inputs)
    return learner.actor.head.evaluate(features, batch.chosen, Stream(training_seeds(0, 9)[2], CPU))[0]


@pytest.mark.parametrize(("task", "memory"), KINDS)
def test_the_clean_observation_reaches_the_critic_and_not_the_actor(task, memory):
    learner = learner_of(task, memory)
    batch = episodes_of(learner)
    other = scrambled(batch)
    assert torch.equal(log_probs(learner, other), log_probs(learner, batch))
    assert torch.allclose(log_probs(learner, batch), batch.log_prob, atol=1e-4)
    assert not torch.allclose(learner.critic(other.known), learner.critic(batch.known))


@pytest.mark.parametrize("memory", ["", "gru"])
@pytest.mark.parametrize("leaks", [False, True])
def test_all_that_the_actor_is_given_came_through_the_channel(monkeypatch, memory, leaks):
    """With noise that hides everything, what the actor is given must not follow the clean observation."""
    if leaks:
        monkeypatch.setattr(ppo.Channel, "send", lambda own, observation, rows=None: observation)
    learner = learner_of(CARTPOLE, memory, sigma=1e4)
    batch = episodes_of(learner)
    given = batch.inputs[..., -1, :] if memory == "" else batch.inputs[..., :4]
    follows = np.corrcoef(given[..., 2].flatten(), batch.clean[..., 2].flatten())[0, 1]
    assert (abs(follows) > 0.9) == leaks


def test_noise_on_actions_is_executed_within_their_limits_and_not_remembered():
    """Standard deviation of what is added, where nothing is clipped: within five standard errors."""
    learner = learner_of(SHORT_CAR, "gru")
    players = players_of(learner)
    step, executed, chosen = players.env.step, [], []

    def watched(actions):
        executed.append(actions)
        chosen.append(players.acted)
        assert torch.equal(players.acted, players.acted.clamp(-1, 1))
        return step(actions)

    players.env.step = watched
    players.collect(Noise.of(0.3, 0.05), Stream(training_seeds(0, 0)[1], CPU))
    added = torch.cat(executed) - torch.cat(chosen)
    assert torch.cat(executed).abs().max() <= 1
    inside = torch.cat(chosen).abs() < 0.75  # five sigmas from either limit
    assert inside.sum() > 100
    assert float(added[inside].std()) == pytest.approx(0.05, rel=5 / (2 * float(inside.sum())) ** 0.5)
    assert torch.equal(players.last_action, learner.actor.head.to_memory(players.acted))


def test_without_the_clean_critic_nobody_sees_it():
    learner = learner_of(CARTPOLE, "", clean_critic=False)
    batch = episodes_of(learner)
    assert torch.equal(batch.known[..., :4], batch.inputs[..., -1, :])
    assert torch.equal(episodes_of(learner_of(CARTPOLE, "")).known[..., :4], batch.clean)


# --- the arithmetic -------------------------------------------------------------------------------------------------


def batch_of(reward, alive):
    reward, alive = torch.tensor(reward).T, torch.tensor(alive).T
    known = torch.zeros(*alive.shape, 4 + 1 + TINY.width)
    ends = alive * (1 - torch.cat((alive[1:], torch.zeros_like(alive[:1]))))
    unused = ("inputs", "memory", "chosen", "log_prob", "decided", "wanted", "clean", "advantage", "target")
    rest = dict.fromkeys(unused, alive)
    return Batch(**rest, known=known, reward=reward, alive=alive, over=ends, episode_start=alive > 1)


def test_advantages_are_those_of_the_definition():
    """Episodes of three and one steps with values of 0: the targets are lambda-weighted sums of rewards."""
    learner = learner_of(CARTPOLE, "")
    for parameter in learner.critic.parameters():
        torch.nn.init.zeros_(parameter)
    batch = batch_of([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    learner.reward_scale = unit = 10 / 200
    found = learner._with_advantages(batch, batch.known[0])
    trace = TINY.trace
    targets = [unit * (1 + trace + trace**2), unit * (1 + trace), unit, unit]
    assert torch.allclose(found.target[:, 0], torch.tensor(targets[:3]))
    assert torch.allclose(found.target[0, 1], torch.tensor(unit))
    centered = np.array(targets) - np.mean(targets)
    assert learner.spread * unit == pytest.approx(np.sqrt(np.mean(centered**2)), rel=1e-3)
    assert torch.allclose(found.advantage[:, 0], torch.tensor(centered[:3] / (learner.spread * unit)).float())


def test_the_last_step_counts_on_nothing():
    """The value behind an end is 0, however sure the critic is."""
    learner = learner_of(CARTPOLE, "")
    for parameter in learner.critic.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.constant_(learner.critic.layers[-1].bias, 5.0)
    learner.reward_scale = unit = 10 / 200
    batch = batch_of([[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]])
    found = learner._with_advantages(batch, batch.known[0])
    assert torch.allclose(found.target[:, 1], torch.tensor([unit + (5.0 + TINY.trace * (unit - 5.0)), unit]))
    assert torch.allclose(found.target[0, 0], torch.tensor(unit))


def test_steps_shrink_with_the_spread_of_the_advantages():
    learner = learner_of(CARTPOLE, "")
    rates = []
    for spread, fraction in ((1.0, 0.0), (0.5, 0.0), (0.15, 0.0), (0.15, 0.5)):
        learner.spread = spread
        learner._set_learning_rate(fraction)
        rates.append(learner.optimizer.param_groups[0]["lr"] / TINY.learning_rate)
    assert rates == pytest.approx([1, 1, 0.5, 0.25])


@pytest.mark.parametrize(("iteration", "kept"), [(1, 1 / 11), (10, 0.5), (1_000, TINY.averaging)])
def test_the_average_keeps_most_of_the_past_but_little_of_the_first_weights(iteration, kept):
    learner = learner_of(CARTPOLE, "")
    for average in learner.average.parameters():
        average.zero_()
    learner.iteration = iteration - 1
    batch = episodes_of(learner)
    learner.learn(batch, batch.known[-1], Stream(training_seeds(0, 0)[2], CPU), 0.0)
    for average, now in zip(learner.average.parameters(), learner.actor.parameters(), strict=True):
        assert torch.allclose(average, (1 - kept) * now, rtol=1e-4)


def test_single_steps_are_those_that_were_run():
    learner = learner_of(CARTPOLE, "")
    batch = episodes_of(learner)
    flat = batch.single_steps()
    assert flat.alive.shape == (1, int(batch.alive.sum()))
    assert bool((flat.alive == 1).all())
    assert float(flat.reward.sum()) == float(batch.reward.sum()) == float(batch.alive.sum())


# --- environments that go on from one iteration to the next ---------------------------------------------------------


def segments_of(learner, count, teacher=None):
    """Return several collections of the same players, side by side in time, and what the critic knows at the end."""
    players = players_of(learner, teacher)
    parts = []
    for iteration in range(count):
        batch, after = players.collect(learner.noise, Stream(training_seeds(0, iteration)[1], CPU))
        parts.append(batch)
    players.close()
    columns = [field.name for field in dataclasses.fields(Batch)]
    return Batch(*(torch.cat([getattr(part, name) for part in parts]) for name in columns)), after


@pytest.mark.parametrize("task", [POLE, PENDULUM], ids=["tensors", "one by one"])
@pytest.mark.parametrize("memory", ["frames=3", "gru"])
def test_an_episode_goes_on_in_the_next_iteration_and_a_new_one_remembers_nothing(task, memory):
    learner = learner_of(task, memory, **ONE_BY_ONE)
    batch, _ = segments_of(learner, 4)
    assert torch.equal(batch.episode_start[1:], batch.over[:-1] > 0)
    assert bool(batch.episode_start[0].all())
    assert batch.episode_start[1:].sum() >= 8
    left = batch.known[..., task.spaces.shape[0]]
    assert torch.equal(left == 1, batch.episode_start)
    running = ~batch.episode_start[1:]
    expected = (left[:-1] - 1 / task.scoring.max_steps)[running]
    assert torch.allclose(left[1:][running], expected, atol=1e-6)
    if memory == "gru":
        assert bool((batch.memory[batch.episode_start] == 0).all())
        assert bool((batch.inputs[batch.episode_start][:, task.spaces.shape[0] :] == 0).all())
    else:
        stacks = batch.inputs[batch.episode_start]
        assert torch.equal(stacks[:, 0], stacks[:, 2])
        assert torch.equal(batch.inputs[1:, :, :2][running], batch.inputs[:-1, :, 1:][running])


@pytest.mark.parametrize("task", [POLE, PENDULUM], ids=["tensors", "one by one"])
def test_sequences_hold_every_step_once_and_begin_with_what_was_remembered(task):
    learner = learner_of(task, "gru", **ONE_BY_ONE)
    batch, _ = segments_of(learner, 3)
    parts = batch.sequences(learner.settings.sequence)
    assert parts.alive.shape[0] == 10
    assert parts.alive.sum() == batch.alive.sum()
    kept = parts.alive > 0
    assert torch.equal(parts.reward[kept].sort().values, batch.reward.flatten().sort().values)
    # No sequence goes on behind the end of an episode.
    assert not bool((parts.episode_start & kept)[1:].any())
    features = learner.actor.memory(parts.inputs, parts.memory[0])
    log_prob = learner.actor.head.evaluate(features, parts.chosen, Stream(training_seeds(0, 9)[2], CPU))[0]
    assert torch.allclose(log_prob[kept], parts.log_prob[kept], atol=1e-4)
    forgotten = learner.actor.head.evaluate(
        learner.actor.memory(parts.inputs), parts.chosen, Stream(training_seeds(0, 9)[2], CPU)
    )[0]
    assert not torch.allclose(forgotten[kept], parts.log_prob[kept], atol=1e-4)


def test_the_step_after_the_last_counts_unless_the_episode_is_over():
    learner = learner_of(CARTPOLE, "", n_steps=2, gamma=0.9)
    for parameter in learner.critic.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.constant_(learner.critic.layers[-1].bias, 5.0)
    batch = batch_of([[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]])
    batch = dataclasses.replace(batch, over=torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    found = learner._with_advantages(batch, batch.known[0])
    assert torch.allclose(found.target[1], torch.tensor([1.0, 1.0 + 0.9 * 5.0]))
    first = 1.0 + 0.9 * (5.0 + TINY.trace * (found.target[1] - 5.0))
    assert torch.allclose(found.target[0], first)


def ending_in_the_middle(learner):
    """Return a batch of environments that go on: their episodes end at any step."""
    generator = torch.Generator().manual_seed(0)
    reward = torch.randn(7, 5, generator=generator)
    batch = batch_of(reward.T.tolist(), torch.ones(5, 7).tolist())
    known = torch.randn(batch.known.shape, generator=generator)
    return dataclasses.replace(batch, known=known, over=(torch.rand(7, 5, generator=generator) < 0.3).float())


def test_advantages_do_not_reach_beyond_the_end_of_an_episode():
    """Against a loop over each environment from its last step to its first."""
    learner = learner_of(CARTPOLE, "", n_steps=7, gamma=0.9, trace=0.8)
    batch = ending_in_the_middle(learner)
    after = torch.randn(5, batch.known.shape[-1], generator=torch.Generator().manual_seed(1))
    found = learner._with_advantages(batch, after)
    values = torch.cat((learner.critic(batch.known), learner.critic(after).unsqueeze(0))).detach()
    for row in range(5):
        ahead = 0.0
        for step in reversed(range(7)):
            ahead = float(batch.reward[step, row] * learner.reward_scale - values[step, row]) + (
                float(1 - batch.over[step, row]) * 0.9 * (float(values[step + 1, row]) + 0.8 * ahead)
            )
            assert float(found.target[step, row]) == pytest.approx(ahead + float(values[step, row]), abs=1e-5)


def test_rewards_are_scaled_by_what_episodes_have_earned_so_far():
    """Sums that end with their episode and go on in the next iteration; observations with the noise on them."""
    learner = learner_of(CARTPOLE, "", n_steps=7, n_envs=5, gamma=0.9)
    batch = dataclasses.replace(ending_in_the_middle(learner), clean=torch.randn(7, 5, 4))
    sums = []
    so_far = np.zeros(5)
    for _ in range(2):
        learner._measure_scales(batch)
        for reward, over in zip(batch.reward.numpy(), batch.over.numpy(), strict=True):
            so_far = 0.9 * so_far + reward
            sums.append(so_far)
            so_far = so_far * (1 - over)
    assert learner.reward_scale == pytest.approx(1 / np.std(sums), rel=1e-4)
    spread = (batch.clean.double().var(dim=(0, 1), unbiased=False) + 0.3**2).sqrt()
    for network in (learner.actor.memory, learner.average.memory, learner.critic):
        assert torch.allclose(network.normalize.scale.double(), 1 / spread, rtol=1e-3)


def progress_of(learner, out, **more):
    run = TrainingRun(task=learner.task, noise=learner.noise, out=out, **more)
    return PpoProgress(run, learner.settings, learner, run.open_folder())


def test_the_average_is_validated_on_episodes_of_its_own_and_its_training_goes_on_from_there(tmp_path, monkeypatch):
    """As it would be deployed, for a certificate of as many episodes each time, at a fifth of what was learned from."""
    learner = learner_of(POLE, "", **ONE_BY_ONE | {"validation_episodes": 2_000})
    learner.learn(episodes_of(learner), torch.zeros(8, 4 + 1 + TINY.width), Stream(training_seeds(0, 0)[2], CPU), 0.0)
    learner.iteration = 7
    given = []

    def validate(run, curve, policy, weights, n_episodes, **options):
        given.append((policy, weights, n_episodes, options))
        curve.add(np.ones(2), 0.0, weights, 1.0)

    monkeypatch.setattr(ppo, "validate", validate)
    progress = progress_of(learner, tmp_path / "run")
    progress.n_learned = 300
    progress._validate()
    ((policy, weights, n_episodes, options),) = given
    assert (options["number"], options["n_expected"], n_episodes) == (7, 2_000, 60)
    for name, array in deployed_weights(learner.average).items():
        assert np.array_equal(weights[name], array)
    assert policy.sha256 == progress.make_policy(deployed_weights(learner.average), "candidate").sha256
    # What was validated does not pay for the next one.
    assert progress._affordable_episodes() == 0

    resumed = learner_of(POLE, "", **ONE_BY_ONE)
    progress_of(resumed, tmp_path / "run", resume=True).restore()
    assert resumed.iteration == 7
    assert resumed.widest == learner.widest > 0
    assert resumed.reward_scale == learner.reward_scale
    for name, network in learner.networks.items():
        for key, array in network.state_dict().items():
            assert torch.equal(resumed.networks[name].state_dict()[key], array), (name, key)


def test_the_entropy_is_that_of_the_policy_and_not_of_what_was_chosen_before():
    """After tanh: against the entropy of samples in narrow bins."""
    head = learner_of(PENDULUM, "").actor.head
    features = torch.zeros(20_000, TINY.width)
    with torch.no_grad():
        head.log_std.fill_(-1.0)
        fresh, _ = head.draw(features, Stream(training_seeds(0, 1)[2], CPU))
        entropies = []
        for chosen in (fresh, fresh + 3.0):
            entropies.append(float(head.evaluate(features, chosen, Stream(training_seeds(0, 2)[2], CPU))[1].mean()))
    shares, edges = np.histogram(torch.tanh(fresh).numpy(), bins=200, density=True)
    density = shares[shares > 0]
    expected = -float((density * np.log(density)).sum() * (edges[1] - edges[0]))
    assert entropies == pytest.approx([expected] * 2, abs=0.05)


def test_held_actions_are_repeated_and_not_learned_from():
    learner = learner_of(POLE, "gru", **ONE_BY_ONE)
    batch = episodes_of(learner, hold=0.9)
    held = batch.decided == 0
    assert 0.6 < held.float().mean() < 0.95
    assert not bool((held & batch.episode_start).any())
    assert torch.equal(batch.chosen[1:][held[1:]], batch.chosen[:-1][held[1:]])
    assert bool((episodes_of(learner).decided == 1).all())


def test_running_statistics_are_those_of_everything_so_far():
    generator = torch.Generator().manual_seed(0)
    values = 3 + 2 * torch.randn(60, 5, 4, generator=generator)
    weights = (torch.rand(60, 5, generator=generator) < 0.7).float()
    running = Running((4,), CPU)
    for part in (slice(0, 10), slice(10, 60)):
        running.add(values[part], weights[part])
    kept = values[weights > 0].double()
    assert running.count == len(kept)
    assert torch.allclose(running.mean, kept.mean(0))
    assert torch.allclose(running.var, kept.var(0, unbiased=False))


def test_a_constant_feature_does_not_drown_the_others_in_rounding():
    """One feature is 300 at every step and has no noise: the agent acts alone as it does among many rows."""
    learner = learner_of(POLE, "gru", **ONE_BY_ONE)
    learner.noise = Noise.of([0.2, 0.2, 0.2, 0.0])
    learner.observed.mean[3], learner.observed.var[3] = 300.0, 0.0
    learner.set_scales()
    assert float(learner.actor.memory.normalize.scale[3]) == pytest.approx(1 / 3)
    encoder = deployed_weights(learner.actor)
    seen = torch.tensor([0.1, 0.2, 0.3, 300.0, 0.0, 1.0])
    exact = learner.actor.memory.linear(torch.cat((learner.actor.memory.normalize(seen[:4]), seen[4:])))
    folded = torch.from_numpy(encoder["encoder0.weight"]) @ seen + torch.from_numpy(encoder["encoder0.bias"])
    assert torch.allclose(folded, exact.detach(), atol=1e-4)


# --- a teacher ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaks", [False, True])
def test_a_teacher_is_asked_about_what_is_clean_and_the_agent_is_not(leaks):
    """At a noise that hides everything the teacher's answers are those of clean episodes, unless it is given noise."""
    teacher = zoo.load("cartpole-5-s0.2")
    learner = learner_of(POLE, "gru", sigma=50.0, **ONE_BY_ONE | {"n_steps": 60})
    batch = episodes_of(learner, teacher, taught=1.0)
    frames = batch.clean[:5]
    if leaks:
        frames = batch.inputs[:5, :, :4]
    stack = frames[:1].expand(5, -1, -1)
    for step in range(5):
        stack = torch.cat((stack[1:], frames[step : step + 1]))
        agrees = torch.equal(teacher.act(stack.transpose(0, 1)), batch.wanted[step])
        if not agrees:
            break
    assert agrees != leaks
    assert int(batch.over.sum()) == 8  # eight poles that stand until the sixtieth step, although the agent sees nothing
    assert torch.equal(batch.inputs[1:, :, 4:].argmax(-1), batch.wanted[:-1])
    unaided = episodes_of(learner, teacher)
    assert int(unaided.over.sum()) > 8


@pytest.mark.parametrize(("memory", "task", "name"), [("gru", POLE, "cartpole-5-s0.2")])
def test_a_teacher_is_imitated_with_noise(tmp_path, memory, task, name):
    options = {**ONE_BY_ONE, "n_envs": 32, "total_steps": 24_000, "width": 32, "epochs": 4, "minibatches": 4}
    more = {"memory": memory, "imitation": 1.0, "learning_rate": 5e-3, "validations": 2}
    policy = tiny(tmp_path / "run", task, imitated=zoo.load(name), **options, **more)
    assert zoo.load_card(str(tmp_path / "run"))["training"]["init_from"]["name"] == name
    played = play(Plan(task=task, policy=policy, noise=Noise.of(0.2), n_episodes=100))
    assert played.returns.mean() > 50  # of 60; 22 before


def test_the_error_of_imitation_is_that_of_the_definition():
    discrete = learner_of(CARTPOLE, "gru").actor.head
    features = torch.randn(3, 7, TINY.width)
    wanted = torch.randint(2, (3, 7))
    logits = discrete.linear(features)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view(3, 7)
    assert torch.allclose(discrete.imitation_error(features, wanted), expected, atol=1e-6)
    continuous = learner_of(PENDULUM, "gru", **ONE_BY_ONE).actor.head
    action = continuous.to_action(continuous.linear(features))
    assert torch.allclose(continuous.imitation_error(features, action), torch.zeros(3, 7))
    # Torques range from -2 to 2: one unit is half of half their range.
    assert torch.allclose(continuous.imitation_error(features, action + 1), torch.full((3, 7), 0.25), atol=1e-5)
    continuous.explore_little()
    assert float(continuous.log_std.detach().exp().max()) == pytest.approx(0.2)


# --- resuming and repeating -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["", "gru"])
def test_a_resumed_training_gives_the_same_agent(tmp_path, memory):
    whole = tiny(tmp_path / "whole", memory=memory, seed=5)

    def kill(done, of, curve):
        if len(curve.rows) == 3:
            raise KilledError

    with pytest.raises(KilledError):
        tiny(tmp_path / "parts", memory=memory, seed=5, progress=kill)
    assert not (tmp_path / "parts" / "agent.json").exists()
    parts = tiny(tmp_path / "parts", memory=memory, seed=5, resume=True)
    assert parts.sha256 == whole.sha256
    assert (tmp_path / "parts" / "curve.csv").read_bytes() == (tmp_path / "whole" / "curve.csv").read_bytes()
    other = tiny(tmp_path / "other", memory=memory, seed=6)
    assert other.sha256 != whole.sha256


def test_a_training_that_goes_on_has_the_statistics_of_all_its_steps(tmp_path):
    tiny(tmp_path / "run", PENDULUM, memory="gru", **ONE_BY_ONE)
    first = (tmp_path / "run" / "curve.csv").read_text()
    tiny(tmp_path / "run", PENDULUM, memory="gru", **ONE_BY_ONE | {"total_steps": 2_000}, resume=True)
    assert (tmp_path / "run" / "curve.csv").read_text().startswith(first)
    checkpoint = TrainingFolder(tmp_path / "run", resume=True).load_checkpoint()
    steps = zoo.load_card(str(tmp_path / "run"))["training"]["steps"]
    assert steps >= 2_000
    assert checkpoint.counters["observed.count"] == checkpoint.counters["returned.count"] == steps
    # Of a pendulum cosine and sine are within [-1, 1].
    assert abs(checkpoint.arrays["observed.mean"][:2]).max() < 1


def test_the_command_starts_from_an_sb3_model(tmp_path, capsys):
    model = stable_baselines3.SAC(
        "MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs={"net_arch": [8]}, device="cpu"
    )
    model.save(tmp_path / "sac.zip")
    small = [f"--set={name}={value}" for name, value in {**ONE_BY_ONE, "width": 8, "epochs": 1}.items()]
    setup = ["--env", "Pendulum-v1", "--max-steps", "40", "--sigma", "0.1,0.1,0.4", "--quiet"]
    out = str(tmp_path / "run")
    assert main(["train", *setup, *small, "--init-from", str(tmp_path / "sac.zip"), "--out", out]) == 0
    said = capsys.readouterr().out
    assert "--sigma 0.1,0.1,0.4" in said
    card = zoo.load_card(out)
    begun = card["training"]["init_from"]
    assert (card["sigma"], begun["name"]) == (0.1, "sac")
    # What is worse than what it was made from is not taken for an improvement.
    assert f"sac, from which it started, {begun['certified']:.2f}" in " ".join(said.split())
    assert ("Warning: it is not better" in said) == (begun["certified"] > card["training"]["best_certified"])
    assert isinstance(zoo.load(out).memory, Recurrent)


def test_a_checkpoint_of_another_memory_is_refused(tmp_path):
    tiny(tmp_path / "run")
    with pytest.raises(InputError, match="contains a checkpoint of another task or version"):
        tiny(tmp_path / "run", memory="gru", resume=True)


def test_a_time_limit_ends_it(tmp_path):
    tiny(tmp_path / "run", total_steps=10**12, validations=1, time_limit=0.5 / 60)
    training = zoo.load_card(str(tmp_path / "run"))["training"]
    assert 0.5 <= training["seconds"] < 30
    assert len(zoo.load_card(str(tmp_path / "run"))["curve"]) == 1


# --- selection ------------------------------------------------------------------------------------------------------


def test_the_best_certified_value_is_kept_and_not_the_best_mean(tmp_path, monkeypatch):
    """The second of three validations has the best mean, the third fails more rarely, which the budget rewards."""
    scripts = [[150.0] * 40, [200.0] * 36 + [20.0] * 4, [180.0] * 40, [150.0] * 40]
    played, policies = [], []

    def script(plan):
        returns = scripts[min(len(played), 3)]
        policies.append(plan.policy.sha256)
        played.append(plan)
        return Episodes.from_returns(returns, sigma=plan.noise.sigma, floor=0.0, ceiling=200.0)

    monkeypatch.setattr(selection, "play", script)
    policy = tiny(tmp_path / "run", for_budget=0.3)
    training = zoo.load_card(str(tmp_path / "run"))["training"]
    assert policy.sha256 == policies[2]
    assert training["best_validation"] == 180
    third = Episodes.from_returns(scripts[2], sigma=0.2, floor=0.0, ceiling=200.0)
    assert training["best_certified"] == forecast(third, budget=0.3, alpha=0.05, n_episodes=40).limit
    assert [plan.purpose for plan in played] == sorted({plan.purpose for plan in played})
    assert {plan.purpose[0] for plan in played} == {Purpose.VALIDATION}


def test_without_noise_the_best_mean_is_kept(tmp_path):
    tiny(tmp_path / "run", sigma=0.0, total_steps=1_000)
    training = zoo.load_card(str(tmp_path / "run"))["training"]
    assert training["budget"] == 0
    assert "best_certified" not in training


def test_values_of_another_rule_are_not_compared():
    """Resumed with a budget: the mean of an earlier validation must not outlast every certified value."""
    curve, returns = TrainingCurve(), np.array([90.0, 110.0])
    curve.add(returns, 0.0, {"by": np.array("mean")})
    curve.add(returns, 0.0, {"by": np.array("bound")}, 30.0)
    assert (curve.best, str(curve.best_weights["by"])) == (30.0, "bound")
    curve.add(returns, 0.0, {"by": np.array("worse")}, 20.0)
    assert str(curve.best_weights["by"]) == "bound"


@pytest.mark.parametrize(("certified", "kept"), [(30.0, "later"), (None, "first")])
def test_of_equal_certified_values_the_later_is_kept_and_of_equal_means_the_first(certified, kept):
    """Equal certified values mean that nothing failed, and training had longer since then."""
    curve = TrainingCurve()
    for curve.steps, by in ((10, "first"), (20, "later")):
        curve.add(np.array([90.0, 110.0]), 0.0, {"by": np.array(by)}, certified)
    assert str(curve.best_weights["by"]) == kept
    assert curve.best_step == {"first": 10, "later": 20}[kept]


@pytest.mark.parametrize(("total_steps", "validated"), [(1_000, 1), (11_000, 2)])
def test_validations_that_learning_cannot_afford_are_left_out(tmp_path, total_steps, validated):
    """30 episodes are a fifth of 150 of 40 steps: of four validations in 11,000 steps, one and the last."""
    tiny(tmp_path / "run", PENDULUM, **ONE_BY_ONE | {"total_steps": total_steps})
    rows = zoo.load_card(str(tmp_path / "run"))["curve"]
    assert len(rows) == validated
    assert rows[-1][0] >= total_steps


# --- which sigma ----------------------------------------------------------------------------------------------------


def test_the_command_selects_sigma(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(selection, "N_PILOT", 50)
    monkeypatch.setitem(PPO, "cartpole-5", dataclasses.replace(TINY, total_steps=1_000))
    call = ["train", "cartpole-5", "--for-budget", "0.2", "--memory", "frames=3", "--out", str(tmp_path / "run")]
    assert main(call) == 0
    card, shown = zoo.load_card(str(tmp_path / "run")), capsys.readouterr().out
    assert f"Sigma {card['sigma']:g}: of the pretrained agents cartpole-5-" in shown
    assert (card["training"]["budget"], zoo.load(str(tmp_path / "run")).spaces.n_stack) == (0.2, 3)
    for wrong, match in (
        ([], "train needs --sigma, the noise to train with, or --for-budget"),
        (["--for-budget", "0"], "--for-budget must be > 0 to select sigma, got 0"),
    ):
        assert main(["train", "cartpole-5", *wrong]) == 2
        assert match in capsys.readouterr().err


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sigma": -1.0}, "sigma must be a finite number >= 0"),
        ({"memory": "lstm"}, "memory must be gru or frames=K with a whole number K, got 'lstm'"),
        ({"memory": "frames=0"}, "memory must be gru or frames=K"),
        ({"time_limit": 0.0}, "the time limit must be > 0 minutes, got 0.0"),
        ({"n_envs": 1}, r"n_envs must be at least minibatches \(2\), got 1"),
        ({"gamma": 0.99, "last_gamma": 0.9}, r"last_gamma must be 0, or at least gamma \(0.99\) and below 1, got 0.9"),
        ({"last_gamma": 1.0}, "last_gamma must be 0, or at least gamma"),
        ({"task": get_task("freeway")}, "takes vectors as observations, those of freeway have shape"),
        ({"task": PENDULUM}, "whole episodes need environments that are tensors, Pendulum-v1 has none; give n_steps="),
        ({"task": UNBOUNDED, "n_steps": 4}, "training needs finite bounds of continuous actions"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(tmp_path, more, message):
    with pytest.raises(InputError, match=message):
        tiny(tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


def test_the_horizon_grows_by_the_same_factor_in_equal_times_and_then_stays():
    settings = PpoSettings(gamma=0.9, last_gamma=0.999, growth=0.5)
    horizons = [1 / (1 - discount_at(fraction, settings)) for fraction in (0.0, 0.25, 0.5, 1.0)]
    assert horizons == pytest.approx([10, 100, 1_000, 1_000])
    assert discount_at(0.3, PpoSettings(gamma=0.9)) == 0.9


def test_advantages_and_scales_are_those_of_the_discount_of_the_time():
    learner = learner_of(CARTPOLE, "", n_steps=2, gamma=0.5, last_gamma=0.9, growth=0.5)
    batch = episodes_of(learner)
    learner.learn(batch, batch.known[0], Stream(training_seeds(0, 0)[2], CPU), 0.0)
    assert learner.gamma == 0.5
    learner.learn(batch, batch.known[0], Stream(training_seeds(0, 0)[2], CPU), 0.6)
    assert learner.gamma == 0.9
    found = learner._with_advantages(batch, batch.known[0])
    ahead = learner.critic(batch.known[0])
    # Of the last step nothing but its reward and the critic's value of what follows is known.
    expected = batch.reward[-1] * learner.reward_scale + 0.9 * ahead * (1 - batch.over[-1])
    assert torch.allclose(found.target[-1], expected, atol=1e-5)


def test_environments_that_are_trained_for_minutes_end_with_the_horizon_of_their_episodes():
    assert settings_of_env(POLE).last_gamma == pytest.approx(1 - 1 / 120)
    # Not below the first discount.
    assert settings_of_env(make_task("CartPole-v1", max_steps=10)).last_gamma == settings_of_env(POLE).gamma
