"""Students: what they are taught, on which frames they act, and that what is saved is an ordinary agent."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.agents import files as zoo
from surefoot.agents.networks import CNN, NATURE, cnn_policy
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task
from trainings import run_training
from zoo.training.atari import fresh_arrays
from zoo.training.student import (
    LabeledBuffer,
    StudentLearner,
    StudentLoop,
    StudentSettings,
    train_student,
)

CPU = torch.device("cpu")
TINY = StudentSettings(
    total_steps=96,
    n_envs=4,
    n_stack=3,
    widths=(8, 8, 8, 16),
    buffer_size=200,
    learning_starts=16,
    updates=1,
    rounds=1,
    batch_size=4,
    validation_interval=48,
    validation_episodes=1,
)


def teacher(task, seed=0):
    spaces = get_task(task).spaces
    return cnn_policy(fresh_arrays(4, spaces.n_actions, seed), NATURE, 4, spaces.shape, spaces.n_actions, "teacher")


def lessons(sigma=0.3, demonstrations=0.0, **changes):
    settings, task = replace(TINY, **changes), get_task("freeway")
    learner = StudentLearner(task, sigma, settings, CPU, 0)
    return StudentLoop(
        task,
        sigma,
        settings,
        learner,
        teacher("freeway"),
        seed=0,
        first_step=0,
        processes=1,
        demonstrations=demonstrations,
    )


# --- what is learned ------------------------------------------------------------------------------------------------


def test_the_loss_is_regret_error_and_entropy():
    student = StudentLearner(get_task("freeway"), 0.0, TINY, CPU, 0)
    stacks, values = torch.rand((5, 3, 84, 84)), torch.randn((5, 3))
    with torch.no_grad():
        output = student.online(stacks)
        policy = output[:, :3].softmax(dim=1)
        regret = values.max(dim=1).values.mean() - (policy * values).sum(dim=1).mean()
        error = ((output[:, 3:] - values) ** 2).mean()
        entropy = torch.distributions.Categorical(policy).entropy().mean()
    expected = 10 * regret + error - 0.05 * entropy
    assert float(student.loss(stacks, values).detach()) == pytest.approx(float(expected), rel=1e-4)
    student.rate.mul_(0.5)
    assert float(student.loss(stacks, values).detach()) == pytest.approx(float(expected + 0.025 * entropy), rel=1e-4)


def test_a_student_learns_what_its_teacher_says_of_what_it_sees():
    """A bright picture wants action 2, a dark one action 0, said by labels alone, through the noise."""
    settings = replace(TINY, widths=(16, 16, 16, 32), batch_size=16, learning_rate=2e-3, averaging=0.8)
    student = StudentLearner(get_task("freeway"), 0.1, settings, CPU, 0)
    random = torch.Generator().manual_seed(0)
    for _ in range(48):
        bright = torch.randint(2, (4,), generator=random)
        frames = (60 + 120 * bright).to(torch.uint8).view(4, 1, 1).expand(4, 84, 84)
        student.buffer.show(frames, torch.zeros(4, dtype=torch.int64))
        student.buffer.label(torch.nn.functional.one_hot(2 * bright, 3).float())
    for _ in range(120):
        student.learn(0.0)
    pictures = torch.tensor([60.0, 180.0]).view(2, 1, 1, 1).expand(2, 3, 84, 84) / 255
    network = CNN(student.agent_weights(), NATURE)
    assert network(pictures).argmax(dim=1).tolist() == [0, 2]


def test_labels_belong_to_the_newest_frame_of_their_stack():
    buffer = LabeledBuffer(
        30, 2, (2, 2), 3, n_actions=2, sigma=0.0, batch_size=500, stream=Stream(np.random.SeedSequence(0), CPU)
    )
    for step in range(70):
        slots = torch.tensor([step, step + 100])
        buffer.show(slots.to(torch.uint8).view(2, 1, 1).expand(2, 2, 2), torch.tensor([step % 7, step]))
        buffer.label(torch.stack((slots.float(), -slots.float()), dim=1))
    stacks, values = buffer.draw()
    newest = (stacks[:, -1, 0, 0] * 255).round()
    assert torch.equal(newest, values[:, 0])
    assert torch.equal(values[:, 1], -values[:, 0])
    # Slot 0 begins an episode every seven steps, and its first frame fills the stack.
    first = values[(values[:, 0] < 100) & (values[:, 0] % 7 == 0), 0]
    assert len(first) > 0
    for stack, value in zip(stacks, values[:, 0], strict=True):
        back = min(2, int(value) % 7) if value < 100 else 2
        assert (stack[0] * 255).round().eq(value - back).all()


# --- who sees what --------------------------------------------------------------------------------------------------


def test_the_teacher_sees_clean_frames_and_the_student_noisy_ones():
    class_ = lessons(sigma=0.3)
    try:
        seen, shown = [], []
        class_.teacher.network.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0].clone()))
        act = class_.choose_actions
        class_.choose_actions = lambda stacks, values, fraction: (
            seen.append(stacks.clone()),
            act(stacks, values, fraction),
        )[1]
        frames = []
        for _ in range(6):
            frames.append(class_.emulators.frames.clone())
            class_.step(0.5, learns=False)
        clean = torch.stack(frames[-4:], dim=1) / 255
        assert torch.equal(shown[-1], clean)
        noise = seen[-1] - clean[:, -3:]
        assert float(noise.std()) == pytest.approx(0.3, rel=0.02)
        assert torch.equal(class_.learner.buffer.frames[5], frames[5])
        with torch.no_grad():
            assert torch.allclose(class_.learner.buffer.values[5], class_.teacher.network(clean), atol=1e-6)
    finally:
        class_.emulators.close()


def test_clean_frames_do_not_reach_the_students_actions():
    """Scrambled in the teacher's stack, they change the labels and not the actions."""
    done = []
    for scramble in (False, True):
        class_ = lessons()
        if scramble:
            advance = class_.memory.advance
            class_.memory.advance = lambda memory, frames, *rest, f=advance: f(memory, 1 - frames, *rest)
        try:
            for _ in range(4):
                class_.step(0.5, learns=False)
            done.append((class_.emulators.action.clone(), class_.emulators.history, class_.learner.buffer.values[3]))
        finally:
            class_.emulators.close()
    assert torch.equal(done[0][0], done[1][0])
    assert torch.equal(done[0][1], done[1][1])
    assert not torch.equal(done[0][2], done[1][2])


# --- a training -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("student") / "run"
    run_training(
        train_student,
        get_task("freeway"),
        0.3,
        TINY,
        out,
        teacher=teacher("freeway"),
        device="cpu",
        processes=2,
    )
    return out


def test_a_student_is_an_ordinary_agent_with_its_card(trained):
    out = trained
    policy, card = zoo.load(str(out)), json.loads((out / "agent.json").read_text())
    assert (policy.spaces.n_stack, policy.spaces.n_actions, policy.name) == (3, 3, "freeway-student-s0.3")
    assert card["training"]["teacher"]["name"] == "teacher"
    assert card["training"]["settings"] == TINY.as_dict()
    assert card["training"]["updates"] == 96 // 4 - 16 // 4
    assert "certified" in (out / "curve.csv").read_text().splitlines()[0]  # which chooses the weights, at twice sigma
    assert policy.network(torch.rand((2, 3, 84, 84))).shape == (2, 3)


def test_more_noise_begins_with_a_student_of_less(trained, tmp_path):
    policy = zoo.load(str(trained))
    student = StudentLearner(get_task("freeway"), 0.4, TINY, CPU, 1)
    student.begin_with(policy)
    stacks = torch.rand((4, 3, 84, 84))
    assert torch.allclose(student.online(stacks)[:, :3], policy.network(stacks), atol=1e-6)
    assert (student.average(stacks)[:, 3:] == 0).all()
    settings = replace(TINY, total_steps=48, learning_starts=10**6)
    run_training(
        train_student,
        get_task("freeway"),
        0.4,
        settings,
        tmp_path / "run",
        teacher=teacher("freeway"),
        device="cpu",
        init_from=policy,
    )
    card = json.loads((tmp_path / "run" / "agent.json").read_text())
    assert card["training"]["started_from"] == {"name": "freeway-student-s0.3", "sha256": policy.sha256}
    assert zoo.load(str(tmp_path / "run")).sha256 == policy.sha256  # it has not learned yet


def test_a_training_of_a_student_resumes(trained):
    out = trained
    before = json.loads((out / "agent.json").read_text())["training"]
    settings = replace(TINY, total_steps=144)
    run_training(
        train_student, get_task("freeway"), 0.3, settings, out, teacher=teacher("freeway"), device="cpu", resume=True
    )
    after = json.loads((out / "agent.json").read_text())["training"]
    assert (before["steps"], after["steps"]) == (96, 144)
    assert after["updates"] > before["updates"]
