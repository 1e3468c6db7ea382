"""Convolutional policies: what the network computes, how it is stored, and SB3's CnnPolicy in and out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from surefoot.agents import files as zoo
from surefoot.agents.fit import fit_to
from surefoot.agents.memory import FrameStack
from surefoot.agents.networks import CNN, NATURE, Sizes, check_fit, cnn_parts, cnn_policy
from surefoot.agents.sb3 import read as sb3
from surefoot.agents.sb3.write import _SpacesOnly, write_zip
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import Smoothing, VictimBatch
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel, View
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.tasks import emulators, get_task
from surefoot.runs.attacked import AttackGrid
from toys import plan_for
from zoo.training.atari import fresh_arrays, halved

SHAPE = (84, 84)


def pictures(rows, frames=4, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random((rows, frames, *SHAPE), dtype=np.float32))


def small(seed=0, half=True):
    arrays = fresh_arrays(4, 3, seed)
    return cnn_policy(halved(arrays) if half else arrays, NATURE, 4, SHAPE, 3, "small")


def test_the_network_is_the_one_of_mnih_et_al():
    arrays = fresh_arrays(4, 3, 0)
    layers = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
    heads = [nn.Linear(3136, 512), nn.Linear(512, 3)]
    names = ["conv0", "conv1", "conv2", "linear0", "linear1"]
    with torch.no_grad():
        for name, layer in zip(names, [*layers, *heads], strict=True):
            layer.weight.copy_(torch.from_numpy(arrays[f"{name}.weight"]))
            layer.bias.copy_(torch.from_numpy(arrays[f"{name}.bias"]))
        plain = nn.Sequential(
            *(part for layer in layers for part in (layer, nn.ReLU())), nn.Flatten(), heads[0], nn.ReLU(), heads[1]
        )
        expected, found = plain(pictures(5)), CNN(arrays, NATURE)(pictures(5))
    assert torch.allclose(expected, found, atol=1e-5)
    assert expected.std(dim=0).min() > 1e-3


def test_fresh_weights_are_spread_as_torchs():
    arrays, layer = fresh_arrays(4, 6, 1), nn.Linear(3136, 512)
    assert arrays["linear0.weight"].std() == pytest.approx(float(layer.weight.detach().std()), rel=0.01)
    assert np.abs(arrays["linear0.bias"]).max() <= 3136**-0.5
    assert not np.array_equal(arrays["conv0.weight"], fresh_arrays(4, 6, 2)["conv0.weight"])


def test_history_and_stacked_channels_are_the_same_input():
    policy = small()
    stack = pictures(3)
    assert torch.equal(policy.network(stack), policy.network(stack.unsqueeze(1)))


# --- on disk --------------------------------------------------------------------------------------------------------


def test_stored_in_half_precision_only_where_that_loses_nothing(tmp_path):
    for half, kind in ((True, np.float16), (False, np.float32)):
        policy = small(half=half)
        assert {array.dtype for array in cnn_parts(policy)[1].values()} == {np.dtype(kind)}
        zoo.save(policy, tmp_path / f"agent{half}", {})
        again = zoo.load(str(tmp_path / f"agent{half}"))
        assert again.sha256 == policy.sha256
        assert torch.equal(again.network(pictures(3)), policy.network(pictures(3)))
    assert small().sha256 != small(half=False).sha256
    assert (tmp_path / "agentTrue.npz").stat().st_size < 0.6 * (tmp_path / "agentFalse.npz").stat().st_size


def test_weights_too_large_for_half_precision_are_told():
    arrays = fresh_arrays(4, 3, 0)
    arrays["linear1.bias"][0] = 1e6
    with pytest.raises(InputError, match="too large for half precision"):
        halved(arrays)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"conv1.weight": np.zeros((64, 31, 4, 4), np.float32)}, "layer conv1 has shape .*expected 32 input channels"),
        ({"linear0.weight": np.zeros((512, 3135), np.float32)}, "layer linear0 has shape .*expected 3136 inputs"),
        ({"linear1.bias": np.zeros(4, np.float32)}, "layer linear1"),
        ({"conv0.weight": np.zeros((32, 4, 85, 8), np.float32)}, "does not fit into 84 x 84"),
        ({"more": np.zeros(1)}, "needs convolutions and linear layers over frames, got more"),
    ],
)
def test_layers_that_do_not_fit_are_told(change, match):
    with pytest.raises(InputError, match=match):
        check_fit({**fresh_arrays(4, 3, 0), **change}, NATURE, 4, SHAPE, 3)


def test_the_number_of_actions_is_checked():
    with pytest.raises(InputError, match="has 3 outputs, expected one for each of 6 actions"):
        cnn_policy(fresh_arrays(4, 3, 0), NATURE, 4, SHAPE, 6)
    with pytest.raises(InputError, match="needs convolutions"):
        cnn_policy(fresh_arrays(4, 3, 0), Sizes((), 2), 4, SHAPE, 3)


# --- Stable-Baselines3 ----------------------------------------------------------------------------------------------


def model(observations, **settings):
    return sb3_dqn()("CnnPolicy", _SpacesOnly(observations, Discrete(3)), buffer_size=1, device="cpu", **settings)


def sb3_dqn():
    from stable_baselines3 import DQN

    return DQN


@pytest.fixture(scope="module")
def pixel_model():
    torch.manual_seed(0)
    return model(Box(0, 255, (4, *SHAPE), np.uint8))


def test_a_cnn_policy_is_read_without_unpickling(tmp_path, pixel_model):
    """Bytes that SB3 divides by 255 are our pixels in [0, 1]: the same values, differentiable."""
    path = tmp_path / "agent.zip"
    pixel_model.save(path)
    policy = fit_to(sb3.read_zip(path), SHAPE)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, *SHAPE)).astype(np.uint8)
    with torch.no_grad():
        expected = pixel_model.q_net(torch.from_numpy(pixels))
    found = policy.network(torch.from_numpy(pixels).float() / 255)
    assert torch.allclose(found, expected, atol=1e-5)
    assert policy.differentiable
    assert (policy.spaces.n_stack, policy.spaces.shape, policy.spaces.n_actions) == (4, SHAPE, 3)
    assert sb3.from_model(pixel_model).sha256 == sb3.read_zip(path).sha256


def test_what_is_written_plain_sb3_loads(tmp_path):
    """Noisy pixels lie outside [0, 1] and are floats: SB3 must take them as they are."""
    policy = small()
    write_zip(policy, tmp_path / "agent.zip")
    loaded = sb3_dqn().load(tmp_path / "agent.zip", device="cpu")
    history = pictures(8) + 0.5 * torch.randn(8, 4, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        values = loaded.q_net(history)
    assert torch.allclose(values, policy.network(history), atol=1e-5)
    assert np.array_equal(loaded.predict(history.numpy(), deterministic=True)[0], policy.act(history).numpy())
    again = fit_to(sb3.read_zip(tmp_path / "agent.zip"), SHAPE)
    assert torch.equal(again.network(history), policy.network(history))
    write_zip(policy, tmp_path / "again.zip")
    assert (tmp_path / "agent.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"policy_kwargs": {"net_arch": [16], "activation_fn": nn.Tanh}}, "its activation is .*Tanh.*expected ReLU"),
        ({"policy_kwargs": {"normalize_images": False}}, "pixels are neither bytes that it scales nor floats"),
    ],
)
def test_what_would_act_otherwise_is_refused(tmp_path, settings, match):
    model(Box(0, 255, (4, *SHAPE), np.uint8), **settings).save(tmp_path / "agent.zip")
    with pytest.raises(InputError, match=match):
        sb3.read_zip(tmp_path / "agent.zip")


def test_hidden_layers_behind_the_convolutions_are_read(tmp_path):
    made = model(Box(0, 255, (4, *SHAPE), np.uint8), policy_kwargs={"net_arch": [16]})
    made.save(tmp_path / "agent.zip")
    policy = sb3.read_zip(tmp_path / "agent.zip")
    pixels = pictures(2)
    with torch.no_grad():
        expected = made.q_net.q_net(made.q_net.features_extractor(pixels))
    assert torch.allclose(policy.network(pixels), expected, atol=1e-5)


# --- noise and attacks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_noise_on_black_and_white_reaches_the_network_unclipped(level):
    """From the channel through the stack to the network's input: mean and spread as they were drawn."""
    sigma, stack, heard = 0.1, FrameStack(4), []
    channel = Channel(
        noise=Noise.of(sigma), n_envs=6, shape=SHAPE, stream=Stream(np.random.SeedSequence(0), torch.device("cpu"))
    )
    network = small().network
    network.convolutions[0].register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    seen = channel.send(torch.full((6, *SHAPE), level))
    network(stack.advance(stack.empty(seen), seen, episode_start=torch.ones(6, dtype=torch.bool)))
    noise = (heard[0][:, -1] - level).double()
    count = noise.numel()
    assert abs(float(noise.mean())) < 5 * sigma / count**0.5
    assert abs(float(noise.std()) / sigma - 1) < 5 / (2 * count) ** 0.5
    assert 0.49 < float((noise < 0).double().mean()) < 0.51


def test_the_papers_attack_stays_inside_the_box():
    attack = PaperAttack(0.0, low=(0.0,), high=(1.0,))
    attack_of_task = (
        AttackGrid(base=Plan(task=get_task("freeway"), policy=small(), noise=Noise.of(0.0)), budgets=[0.5])
        .plan(0.5, 0.06)
        .attacker
    )
    assert (attack_of_task.low, attack_of_task.high) == ((0.0,), (1.0,))
    start = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    moved = attack.take_step(start, torch.tensor([[-1.0, 1.0], [1.0, 0.0]]), start, torch.ones(2).double())
    assert torch.equal(moved[0], start[0])
    assert moved[1, 0] > 0.5


def pixel_view(policy, steps, device="cpu"):
    """What an adversary sees of some rows, at different steps of their episodes."""
    rows = len(steps)
    seen, clean = pictures(rows, seed=1), pictures(rows, seed=2)
    now, zeros = pictures(rows, 1, seed=3)[:, 0], torch.zeros(rows, *SHAPE)
    stream = Stream(np.random.SeedSequence(0), torch.device(device))
    parts = {
        "episode": torch.arange(rows),
        "step": torch.tensor(steps),
        "observation": now,
        "memory": seen,
        "clean": clean,
        "last_perturbation": zeros,
        "noise": zeros,
        "budget_left": torch.full((rows,), 0.5, dtype=torch.float64),
    }
    moved = {name: part.to(device) for name, part in parts.items()}
    return View(**moved, state=None, action=None, policy=policy.to(torch.device(device)), stream=stream)


def plainly(scene, moved, actions):
    """Values and gradients through the whole network, stack by stack."""
    here = moved.clone().requires_grad_()
    values = scene.policy.network(scene.memory_after(here))
    if scene.noise is not None:
        values = values.unflatten(0, scene.noise.shape[:2]).mean(dim=1)
    wanted = torch.log_softmax(values, dim=1).gather(1, actions.unsqueeze(1)).sum()
    return values.detach(), torch.autograd.grad(wanted, here)[0]


@pytest.mark.parametrize("smoothing", [Smoothing(), Smoothing(0.1, 3)])
@pytest.mark.parametrize("steps", [[5, 9, 7], [0, 9, 0]])
def test_the_first_convolution_is_taken_apart_without_changing_anything(smoothing, steps, monkeypatch):
    view, actions = pixel_view(small(), steps), torch.tensor([0, 2, 1])
    monkeypatch.setattr("surefoot.attacks.victim.NUMBERS_AT_ONCE", {"cpu": 7 * 4 * 84 * 84})  # several passes
    scene = VictimBatch.of(view, torch.arange(3), smoothing)
    assert scene.first_layer_output is not None
    moved = view.observation + 0.5 * pictures(3, 1, seed=4)[:, 0]
    for part, some in ((scene, slice(None)), (scene.select_rows(torch.tensor([2, 1])), torch.tensor([2, 1]))):
        expected, found = (
            plainly(part, moved[some], actions[some]),
            part.values_and_gradient(moved[some], actions[some]),
        )
        for one, two in zip(expected, found, strict=True):
            assert torch.allclose(one, two, rtol=1e-4, atol=1e-5 * float(one.abs().max()))
    still = plainly(part, view.observation[some], actions[some])[0]
    assert (expected[0] - still).abs().max() > 1e-3, "the change must matter"


def wrong_fresh(network, change, _fresh):
    return FIRST_OF_CHANGE(network, change, None)


def wrong_pixels(network, change, episode_start):
    return FIRST_OF_CHANGE(network, change.flip(-1), episode_start)


FIRST_OF_CHANGE = CNN.first_of_change


@pytest.mark.parametrize("planted", [wrong_fresh, wrong_pixels])
def test_an_error_in_taking_the_convolution_apart_would_be_seen(planted, monkeypatch):
    view, actions = pixel_view(small(), [0, 9, 0]), torch.tensor([0, 2, 1])
    scene = VictimBatch.of(view, torch.arange(3), Smoothing(0.1, 3))
    moved = view.observation + 0.5 * pictures(3, 1, seed=4)[:, 0]
    expected = plainly(scene, moved, actions)
    monkeypatch.setattr(CNN, "first_of_change", planted)
    for one, two in zip(expected, scene.values_and_gradient(moved, actions), strict=True):
        assert not torch.allclose(one, two, rtol=1e-4, atol=1e-5 * float(one.abs().max()))


def test_searches_that_do_not_fit_the_memory_are_made_in_turn(monkeypatch):
    view, attack = pixel_view(small(), [5, 9, 7, 0, 3]), PaperAttack(0.0, step=0.2)
    at_once, searches, climb = attack.propose(view), [], PaperAttack.climb
    monkeypatch.setattr("surefoot.attacks.victim.NUMBERS_OF_SCENE", {"cpu": 3 * 4 * 84 * 84})
    monkeypatch.setattr(PaperAttack, "climb", lambda *given: searches.append(len(given[2])) or climb(*given))
    in_turn = attack.propose(view)
    assert torch.allclose(at_once, in_turn, atol=1e-6)
    assert at_once.abs().max() > 0.01
    assert len(searches) > 1
    assert max(searches) == 3


@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_an_attacked_round_of_freeway_spends_its_budget_and_no_more(sigma):
    task = get_task("freeway")
    adversary = PaperAttack(0.0, step=0.1, smoothing=Smoothing(sigma, 2), low=(0.0,), high=(1.0,))
    short = plan_for(six_steps_of(task), small(), sigma, 1, attacker=adversary, budget=0.3)
    played = play(short)
    assert 0 < played.budget_used[0] <= 0.3
    assert played.lengths.tolist() == [6]


def six_steps_of(task):
    """Return a game of Atari whose episodes are cut after six steps."""
    backend = emulators(replace(task.cartridge, limit=6))
    return replace(task, scoring=replace(task.scoring, max_steps=6), backend=backend)
