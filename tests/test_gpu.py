"""What only a GPU can show: the captured update learns like SB3's, and play has the same law as on the CPU."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats
from stable_baselines3 import DDPG, DQN

from agents.test_networks import pixel_view, plainly
from stand_ins import KilledError
from surefoot.agents import files as zoo
from surefoot.attacks import captured
from surefoot.attacks.composed import Structured
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import UNDEFENDED, Smoothing, VictimBatch
from surefoot.compute import row_norms
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task
from surefoot.train import off_policy
from surefoot.train.off_policy import build_ddpg, build_dqn, train_off_policy
from surefoot.train.settings import DdpgSettings
from toys import (
    ALARM,
    balancer,
    constant,
    dependent,
    fixed,
    gate,
    geometric,
    geometric_mean,
    mean_off,
    not_normal,
    off,
    pay_first_choice,
    pay_steps,
    plan_for,
    recurrent,
    run_episodes,
    shifted,
    toy_task,
)
from train.test_train import PIXELS, TINY, same_updates, stop_at
from trainings import run_training
from zoo.training.captured import CAPTURED, GraphDDPG, GraphDQN

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:.*primarily intended to run on the CPU.*"),
]

TASK = get_task("cartpole-5")
SETTINGS = dataclasses.replace(TINY, learning_rate=0.01, hidden=(16, 16))


# --- learning -------------------------------------------------------------------------------------------------------


def learners(settings=SETTINGS):
    graph = build_dqn(TASK, 0.2, settings, 1, "cuda", GraphDQN)
    plain = build_dqn(TASK, 0.2, settings, 0, "cuda")
    assert type(plain) is DQN
    return graph, plain


def test_one_update_is_that_of_sb3():
    assert same_updates(*learners()) < 1e-5


def add(model, count, seed=None):
    """Put transitions into the buffer: all the same without a seed, so that it does not matter which are drawn."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rng = rng if seed is not None else np.random.default_rng(7)
        seen, following = rng.normal(size=(2, 1, 5, 4)).astype(np.float32)
        done = np.array([rng.random() < 0.3])
        action, reward = rng.integers(0, 2, (1, 1)), rng.normal(size=1)
        model.replay_buffer.add(
            seen, following, action, reward, done, [{"TimeLimit.truncated": bool(rng.random() < 0.5)}]
        )


def test_the_captured_graph_learns_like_eager_steps():
    graph, plain = learners()
    for model in (graph, plain):
        model.learn(1)
        model.replay_buffer.reset()
        add(model, 60)
    plain.policy.load_state_dict(graph.policy.state_dict())
    before = [parameter.detach().clone() for parameter in graph.q_net.parameters()]
    for steps in (1, 7):
        graph.train(steps, 32)
        plain.train(steps, 32)
        pairs = list(zip(graph.q_net.parameters(), plain.q_net.parameters(), before, strict=True))
        assert max(float((mine - its).detach().abs().max()) for mine, its, _ in pairs) < 1e-5
    assert max(float((mine - start).detach().abs().max()) for mine, _, start in pairs) > 0.02
    assert graph._n_updates == plain._n_updates == 8
    targets = zip(graph.q_net_target.parameters(), plain.q_net_target.parameters(), strict=True)
    assert all(torch.equal(mine, its) for mine, its in targets)


def pixel_learners():
    """Return a captured and a plain learner of pixels with the same weights and a buffer of equal transitions."""
    task = get_task("pong-1r")
    models = [build_dqn(task, 0.1, PIXELS, 1, "cuda", GraphDQN), build_dqn(task, 0.1, PIXELS, 0, "cuda")]
    seen, following = np.random.default_rng(7).normal(size=(2, 1, 4, 84, 84)).astype(np.float32)
    for model in models:
        model._setup_learn(1, None)
        model.replay_buffer.reset()
        for _ in range(40):
            model.replay_buffer.add(seen, following, np.array([[2]]), np.ones(1), np.zeros(1), [{}])
    models[1].policy.load_state_dict(models[0].policy.state_dict())
    return *models, seen


def test_the_captured_learner_of_pixels_learns_and_acts_like_sb3():
    graph, plain, seen = pixel_learners()
    before = [parameter.detach().clone() for parameter in graph.q_net.parameters()]
    first = graph.outputs(seen)
    for steps in (1, 7):
        graph.train(steps, 32)
        plain.train(steps, 32)
    mine = list(graph.q_net.parameters())
    gone, apart = (
        sum(float((one - other).detach().abs().sum()) for one, other in zip(mine, others, strict=True))
        for others in (before, plain.q_net.parameters())
    )
    assert apart < 0.01 * gone
    with torch.no_grad():
        expected = graph.q_net(torch.from_numpy(seen).cuda()).cpu().numpy()
    assert abs(graph.outputs(seen) - expected).max() < 1e-3 * abs(expected - first).max()


def test_the_captured_ddpg_learns_like_eager_steps():
    task, settings = get_task("mountain-car"), DdpgSettings(total_steps=2_000, learning_rate=0.01, hidden=(16, 16))
    graph = build_ddpg(task, 0.2, settings, 1, "cuda", GraphDDPG)
    plain = build_ddpg(task, 0.2, settings, 0, "cuda")
    assert type(plain) is DDPG
    rng = np.random.default_rng(7)
    seen, following = rng.normal(size=(2, 1, 5, 2)).astype(np.float32)
    for model in (graph, plain):
        model._setup_learn(1, None)
        for _ in range(60):  # all the same, so that it does not matter which are drawn
            model.replay_buffer.add(seen, following, np.array([[0.3]]), np.ones(1), np.zeros(1), [{}])
    plain.policy.load_state_dict(graph.policy.state_dict())
    before = [value.clone() for value in graph.policy.state_dict().values()]
    for steps in (1, 7):
        graph.train(steps, 32)
        plain.train(steps, 32)
        pairs = list(zip(graph.policy.state_dict().values(), plain.policy.state_dict().values(), before, strict=True))
        assert max(float((mine - its).abs().max()) for mine, its, _ in pairs) < 1e-5
    assert max(float((mine - start).abs().max()) for mine, _, start in pairs) > 0.02
    assert graph._n_updates == plain._n_updates == 8
    mine, its = (model.predict(seen[:, :], deterministic=True)[0] for model in (graph, plain))
    assert abs(mine - its).max() < 1e-5


def test_the_mirror_of_the_buffer_is_exact_even_when_it_wraps():
    graph, _ = learners(dataclasses.replace(SETTINGS, buffer_size=100))
    graph.learn(1)
    graph.replay_buffer.reset()
    for seed, count in enumerate((40, 0, 45, 30, 99)):
        add(graph, count, seed)
        graph.train(1, 16)
        filled = graph.replay_buffer.size()
        assert float(graph.size) == filled
        for name, column in graph._columns(np.arange(filled)).items():
            assert (graph.store[name][:filled].cpu().numpy() == column).all(), name
    buffer = graph.replay_buffer
    ended = graph.store["ended"].cpu().numpy()[:, 0]
    assert (ended == buffer.dones[:, 0] * (1 - buffer.timeouts[:, 0])).all()
    assert 0 < ended.sum() < buffer.dones.sum()


def test_training_resumes_on_the_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(off_policy, "CHECKPOINT_EVERY", 2)
    options = {"device": "cuda", "algorithms": CAPTURED}
    with pytest.raises(KilledError):
        run_training(train_off_policy, TASK, 0.2, TINY, tmp_path / "run", progress=stop_at(500), **options)
    run_training(train_off_policy, TASK, 0.2, TINY, tmp_path / "run", resume=True, **options)
    card = zoo.load_card(str(tmp_path / "run"))
    assert card["training"]["algorithm"] == "zoo.GraphDQN"
    assert [step for step, _ in card["curve"]] == [100, 200, 300, 400, 500, 600]
    zoo.load(str(tmp_path / "run"))


# --- playing --------------------------------------------------------------------------------------------------------


def test_noise_has_the_right_law():
    stream = Stream(np.random.SeedSequence(3), torch.device("cuda"))
    channel = Channel(noise=Noise.of(0.3), n_envs=2_000, shape=(4,), stream=stream)
    clean = torch.zeros(2_000, 4, device="cuda")
    noise = torch.stack([channel.send(clean) for _ in range(25)]).cpu().numpy()
    assert not not_normal(noise, 0.3)
    assert not_normal(noise * 1.02, 0.3)
    assert not dependent(noise[1:], noise[:-1])
    other = Channel(
        noise=Noise.of(0.3), n_envs=2_000, shape=(4,), stream=Stream(np.random.SeedSequence(4), torch.device("cuda"))
    )
    assert not dependent(noise[0], other.send(clean).cpu().numpy())


def test_play_repeats_bit_for_bit():
    plan = plan_for(TASK, balancer(5), 0.4, 3_000, seed=5, device="cuda", n_envs=1_024)
    one, two = play(plan), play(plan, workers=2)
    assert one.returns.tobytes() == two.returns.tobytes()
    assert play(dataclasses.replace(plan, seed=6)).returns.tobytes() != one.returns.tobytes()


def test_play_has_the_law_of_the_cpu():
    """Kolmogorov-Smirnov (conservative for atoms) and means, two samples, at level ALARM."""
    gpu = play(Plan(task=TASK, policy=balancer(5), noise=Noise.of(0.4), n_episodes=20_000, device="cuda")).returns
    cpu = play(Plan(task=TASK, policy=balancer(5), noise=Noise.of(0.4), n_episodes=4_000, seed=1)).returns
    other = play(Plan(task=TASK, policy=balancer(5), noise=Noise.of(0.45), n_episodes=20_000, device="cuda")).returns
    assert stats.ks_2samp(gpu, cpu).pvalue > ALARM
    assert stats.ttest_ind(gpu, cpu, equal_var=False).pvalue > ALARM
    assert stats.ks_2samp(other, cpu).pvalue < ALARM


def test_the_worst_case_is_attained():
    task = toy_task(fixed(1), pay_first_choice, clean=(0.0, 5.0))
    plan = plan_for(task, gate(0.9, 0.3, 2), 0.3, 200_000, device="cuda", attacker=Structured(), budget=0.3)
    played = play(plan)
    assert not off(played.returns.sum(), len(played), shifted(0.9, 1))
    assert (played.budget_used <= 0.3 * (1 + 1e-6)).all()


def test_short_episodes_are_not_favoured():
    task = toy_task(geometric(0.1, 80), pay_steps, ceiling=80.0, done_check_interval=8)
    played = run_episodes(task, constant(), 0.1, 30_000, device="cuda", n_envs=1_000, episodes_per_env=10)
    mean, variance = geometric_mean(0.1, 80)
    assert not mean_off(played.returns, mean, variance, 80)


def test_memory_does_not_grow_with_the_episodes():
    def peak(episodes):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        run_episodes(TASK, balancer(5), 0.4, episodes, device="cuda", n_envs=16_384)
        return torch.cuda.max_memory_allocated()

    once = peak(16_384)
    assert peak(8 * 16_384) < 1.05 * once


# --- Atari ----------------------------------------------------------------------------------------------------------


def captured_and_plain(settings, steps):
    """Two learners with the same weights, buffer and random numbers; one replays a graph, the other does not."""
    from surefoot.train.folder import TrainingCurve
    from zoo.training.q_learning import ExploringEmulators, QLearner, QLearningLoop

    task, learners = get_task("freeway"), []
    for capture in (True, False):
        learner, curve = QLearner(task, 0.1, settings, torch.device("cuda"), 0), TrainingCurve()
        players = ExploringEmulators(task, 0.1, settings, torch.device("cuda"), 0, 0, 2)
        waiting = dataclasses.replace(settings, learning_starts=10**9)
        loop = QLearningLoop(waiting, learner, players)
        loop.run_until(curve, 40 * settings.slots, None)
        loop.close()
        if not capture:
            learner.learn = lambda _fraction, own=learner: own.take_steps()
        for _ in range(steps + (0 if capture else 3)):  # capturing warms up with three real steps
            learner.learn(0.0)
        torch.cuda.synchronize()
        learners.append(learner)
    return learners


def test_the_captured_steps_of_the_fast_training_are_the_plain_ones():
    """The same random numbers, the same weights but for the order of sums in half precision."""
    from zoo.training.q_learning import FAST

    settings = dataclasses.replace(FAST["freeway"], slots=4, buffer_size=800, batch_size=16, updates=2)
    captured, plain = captured_and_plain(settings, steps=4)
    moved = [
        float((one - other).norm() / (one.norm() + 1e-12))
        for one, other in zip(captured.online.state_dict().values(), plain.online.state_dict().values(), strict=True)
    ]
    assert max(moved) < 2e-2
    assert captured.updates == 8


def test_a_short_fast_training_on_a_gpu(tmp_path):
    from zoo.training.q_learning import FAST, train_fast

    settings = dataclasses.replace(
        FAST["pong-1r"],
        total_steps=800,
        slots=8,
        buffer_size=4_000,
        learning_starts=200,
        batch_size=16,
        validation_interval=400,
        validation_episodes=4,
    )
    first = run_training(train_fast, get_task("pong-1r"), 0.1, settings, tmp_path / "run", device="cuda")
    longer = dataclasses.replace(settings, total_steps=1_200)
    second = run_training(train_fast, get_task("pong-1r"), 0.1, longer, tmp_path / "run", device="cuda", resume=True)
    assert zoo.load(str(tmp_path / "run")).sha256 == second.sha256
    assert first.spaces.n_actions == second.spaces.n_actions == 6


def tiny_student(**changes):
    from zoo.training.student import STUDENT

    tiny = {"n_envs": 8, "buffer_size": 4_000, "learning_starts": 200, "batch_size": 16, "validation_episodes": 4}
    return dataclasses.replace(STUDENT["freeway"], **{**tiny, **changes})


def test_the_captured_steps_of_a_student_are_the_plain_ones():
    """The same random numbers, the same weights but for the order of sums in half precision."""
    from zoo.training.student import StudentLearner

    found, random = [], torch.Generator().manual_seed(0)
    frames, values = torch.randint(256, (40, 8, 84, 84), generator=random), torch.randn((40, 8, 3), generator=random)
    for capture in (True, False):
        student = StudentLearner(get_task("freeway"), 0.2, tiny_student(capture=capture), torch.device("cuda"), 0)
        for step in range(40):
            student.buffer.show(frames[step].to(torch.uint8).cuda(), torch.full((8,), step).cuda())
            student.buffer.label(values[step].cuda())
        for _ in range(4 if capture else 7):  # capturing warms up with three real steps
            student.learn(0.0)
        torch.cuda.synchronize()
        found.append(student)
    pairs = zip(*(student.online.state_dict().values() for student in found), strict=True)
    assert max(float((one - other).norm() / (one.norm() + 1e-12)) for one, other in pairs) < 2e-2
    assert float(found[0].shown[0]) > 0


def test_a_short_training_of_a_student_on_a_gpu(tmp_path):
    from zoo.training.student import train_student

    task, settings = get_task("freeway"), tiny_student(total_steps=800, validation_interval=400)
    options = {"teacher": zoo.load("freeway-s0"), "device": "cuda", "processes": 2}
    run_training(train_student, task, 0.2, settings, tmp_path / "run", **options)
    longer = dataclasses.replace(settings, total_steps=1_200)
    second = run_training(train_student, task, 0.2, longer, tmp_path / "run", **options, resume=True)
    assert zoo.load(str(tmp_path / "run")).sha256 == second.sha256
    assert zoo.load_card(str(tmp_path / "run"))["training"]["updates"] > 2 * (1_200 - 2 * 200) / 8
    assert play(Plan(task=task, policy=second, noise=Noise.of(0.2), n_episodes=4, device="cuda")).returns.min() >= 0


def test_a_convolutional_agent_acts_on_a_gpu_as_on_a_cpu():
    """Values agree to the rounding of tensor cores; actions wherever the best is better than that."""
    from surefoot.agents.networks import NATURE, cnn_policy
    from zoo.training.atari import fresh_arrays, halved

    policy = cnn_policy(halved(fresh_arrays(4, 6, 0)), NATURE, 4, (84, 84), 6)
    stack = torch.rand((64, 4, 84, 84), generator=torch.Generator().manual_seed(0))
    expected = policy.network(stack)
    found = policy.to("cuda").network(stack.cuda()).cpu()
    policy.to("cpu")
    assert torch.allclose(found, expected, atol=5e-3)


def test_half_precision_searches_in_the_same_direction():
    """What an attack on pixels computes on a GPU, against the whole network in full precision on a CPU."""
    policy = zoo.load("pong-1r-s0.1")
    view, actions = pixel_view(policy, [5, 0, 7, 3], "cuda"), torch.tensor([0, 2, 1, 5])
    batch = VictimBatch.of(view, torch.arange(4, device="cuda"), Smoothing(0.1, 128))
    moved = view.observation + 0.1
    values, gradient = (found.cpu() for found in batch.values_and_gradient(moved, actions.cuda()))
    assert batch.first_layer_output.dtype == torch.float16
    noise = batch.noise.cpu()
    plain = VictimBatch(
        policy.to("cpu"), batch.context.cpu(), None, batch.episode_start.cpu(), noise, 10**6, batch.clean.cpu()
    )
    expected, uphill = plainly(plain, moved.cpu(), actions)
    assert torch.allclose(values, expected, atol=5e-3)
    assert torch.cosine_similarity(gradient.flatten(1), uphill.flatten(1)).min() > 0.99


def test_gradients_that_overflow_in_half_precision_are_computed_again(monkeypatch):
    """Of an agent whose values change ten thousand times as fast: searched with and without a graph."""
    policy = zoo.load("pong-1r-s0.1")
    with torch.no_grad():
        for parameter in list(policy.network.parameters())[-2:]:
            parameter.mul_(10_000)
    view, actions = pixel_view(policy, [5, 9, 7, 3], "cuda"), torch.tensor([0, 2, 1, 5], device="cuda")
    rows = torch.arange(4, device="cuda")
    batch = VictimBatch.of(view, rows, Smoothing(0.1, 128))
    _, gradient = batch.values_and_gradient(view.observation, actions)
    assert not batch.scaled_gradient(view.observation, actions, batch.scale())[1].isfinite().all(), "none overflows"
    plain = VictimBatch(policy, batch.context, None, None, batch.noise, 10**6, batch.clean)
    _, uphill = plainly(plain, view.observation, actions)
    alike, (steep,) = torch.cosine_similarity(gradient.flatten(1), uphill.flatten(1)), row_norms(uphill).nonzero().T
    assert len(steep) > 1
    assert alike[steep].min() > 0.99
    attack = PaperAttack(0.0, smoothing=Smoothing(0.1, 128), low=(0.0,), high=(1.0,))
    ends = [attack.climb(view, rows, actions)[0]]
    monkeypatch.setattr("surefoot.attacks.dqn.can_capture", lambda _: False)
    ends.append(attack.climb(view, rows, actions)[0])
    policy.to("cpu")
    assert all(found.isfinite().all() for found in ends)


@pytest.mark.parametrize(("agent", "smoothing"), [("pong-1r-s0", UNDEFENDED), ("pong-1r-s0.1", Smoothing(0.1, 128))])
def test_a_replayed_search_finds_what_the_search_finds(agent, smoothing, monkeypatch):
    """Algorithm 1 with its gradient step as a CUDA graph, against the same without one."""
    policy, attack = zoo.load(agent), PaperAttack(0.0, smoothing=smoothing, low=(0.0,), high=(1.0,))
    rows, actions = torch.arange(4, device="cuda").repeat_interleave(6), torch.arange(6, device="cuda").repeat(4)

    def found():
        view = pixel_view(policy, [5, 9, 7, 3], "cuda")  # with the same noise every time
        view.budget_left.copy_(torch.tensor([0.05, 0.2, 0.4, 3.0]))
        return attack.climb(view, rows, actions)

    before = captured._climb_of.cache_info().hits
    twice = [found(), found()]
    assert captured._climb_of.cache_info().hits == before + 1, "it was not replayed"
    monkeypatch.setattr("surefoot.attacks.dqn.can_capture", lambda _: False)
    ends, reached = found()
    policy.to("cpu")
    assert reached.any()
    for again in twice:
        assert float((again[1] == reached).float().mean()) > 0.9, "but for ties, which rounding decides"
        both = again[1] & reached
        assert float((again[0] - ends)[both].flatten(1).norm(dim=1).median()) < 0.005


def test_a_second_attack_on_a_gpu_searches_with_the_agents_weights():
    """Between two runs the weights move to the CPU and back, while other memory is taken."""
    policy = zoo.load("pong-1r-s0.1")
    attack = PaperAttack(0.0, smoothing=Smoothing(0.1, 16), low=(0.0,), high=(1.0,))
    rows, actions = torch.arange(4, device="cuda").repeat_interleave(6), torch.arange(6, device="cuda").repeat(4)
    found, kept = [], []
    for _ in range(3):
        view = pixel_view(policy, [5, 9, 7, 3], "cuda")
        found.append(attack.climb(view, rows, actions))
        policy.to("cpu")
        kept.append([torch.full_like(part, torch.nan, device="cuda") for part in policy.network.parameters()])
    for ends, reached in found[1:]:
        assert torch.equal(reached, found[0][1])
        assert torch.allclose(ends, found[0][0], atol=1e-3)


def test_atari_on_a_gpu_plays_the_games_of_a_cpu():
    """Frames and rewards do not depend on where the network is: always up gives the same points."""
    from toys import from_callable

    task = get_task("freeway")
    policy = from_callable(lambda _: 1, shape=task.spaces.shape, n_actions=3)
    here, there = (
        run_episodes(task, policy, 0.0, 6, n_envs=3, episodes_per_env=2, device=device).returns
        for device in ("cpu", "cuda")
    )
    assert np.array_equal(here, there)


def test_two_processes_share_a_gpu_without_changing_anything():
    """Emulators of one run while the agent of the other acts."""
    from surefoot.agents.networks import NATURE, cnn_policy
    from zoo.training.atari import fresh_arrays, halved

    policy = cnn_policy(halved(fresh_arrays(4, 3, 0)), NATURE, 4, (84, 84), 3)
    plan = plan_for(get_task("freeway"), policy, 0.1, 8, n_envs=2, episodes_per_env=2, device="cuda")
    assert np.array_equal(play(plan).returns, play(plan, workers=2).returns)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_recurrent_agents_remember_the_same_on_the_gpu(kind):
    """Step by step from the same observations and actions, restarts included."""
    policy, generator = recurrent(kind), torch.Generator().manual_seed(0)
    memory, action = policy.memory.empty(torch.zeros(64, 4)), None
    seen = torch.randn(30, 64, 4, generator=generator)
    episode_start = torch.rand(30, 64, generator=generator) < 0.1
    episode_start[0] = True
    there = recurrent(kind).to("cuda")
    for step in range(30):
        known = None if action is None else action.to("cuda")
        again = there.memory.advance(memory.to("cuda"), seen[step].to("cuda"), known, episode_start[step].to("cuda"))
        memory = policy.memory.advance(memory, seen[step], action, episode_start[step])
        assert torch.allclose(memory, again.cpu(), atol=2e-3)  # TF32
        action = policy.act(memory)


def test_a_block_of_a_recurrent_agent_on_the_gpu_repeats_itself():
    plan = Plan(task=TASK, policy=recurrent(), noise=Noise.of(0.2), n_episodes=20_000, device="cuda")
    one, two = play(plan), play(plan)
    assert (one.returns == two.returns).all()
    slow = play(dataclasses.replace(plan, device="cpu"))
    assert stats.ks_2samp(one.returns, slow.returns).pvalue > ALARM
