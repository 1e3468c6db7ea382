"""What only a GPU can show: play has the same law as on the CPU, and captured steps learn like plain ones."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from surefoot.agents import files as zoo
from surefoot.attacks.composed import Structured
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task
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
from trainings import run_training
from zoo.training.q_learning import FAST, train_fast

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:.*primarily intended to run on the CPU.*"),
]

TASK = get_task("cartpole-5")
# Made when the file is read, so that a machine without a GPU notices settings that are gone.
FEW_STEPS = dataclasses.replace(FAST["freeway"], n_envs=4, buffer_size=800, batch_size=16, updates=2)
SHORT = dataclasses.replace(
    FAST["pong-1r"],
    total_steps=800,
    n_envs=8,
    buffer_size=4_000,
    learning_starts=200,
    batch_size=16,
    validation_interval=400,
    validation_episodes=4,
)


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
    # Only results grow: return, length and budget used of each episode, and as much again while they are read.
    assert peak(8 * 16_384) - once < 7 * 16_384 * 6 * 8


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
        loop.run_until(curve, 40 * settings.n_envs, None)
        players.close()
        if not capture:
            learner.learn = lambda _fraction, own=learner: own.take_steps()
        for _ in range(steps + (0 if capture else 3)):  # capturing warms up with three real steps
            learner.learn(0.0)
        torch.cuda.synchronize()
        learners.append(learner)
    return learners


def test_the_captured_steps_of_the_fast_training_are_the_plain_ones():
    """The same random numbers, the same weights but for the order of sums in half precision."""
    captured, plain = captured_and_plain(FEW_STEPS, steps=4)
    moved = [
        float((one - other).norm() / (one.norm() + 1e-12))
        for one, other in zip(captured.online.state_dict().values(), plain.online.state_dict().values(), strict=True)
    ]
    assert max(moved) < 2e-2
    assert captured.updates == 8


def test_a_short_fast_training_on_a_gpu(tmp_path):
    first = run_training(train_fast, get_task("pong-1r"), 0.1, SHORT, tmp_path / "run", device="cuda")
    longer = dataclasses.replace(SHORT, total_steps=1_200)
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
