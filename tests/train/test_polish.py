"""Polishing: the last layer is searched by certified value, the rest of the network stays, nothing gets worse."""

import numpy as np
import pytest
import torch

from surefoot.agents import files as zoo
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from trainings import run_training
from zoo.training import polish as polishing
from zoo.training.polish import PolishSettings, find_directions, last_layer, observe_features, polish

TASK, SIGMA = get_task("cartpole-1"), 0.1
SMALL = PolishSettings(rounds=2, pairs=4, n_episodes=20, observed=40, validation_episodes=50)


def careless(name="cartpole-1-hand-s0.1"):
    """Return an agent that pushes towards the tilt of the pole, however fast it falls and wherever the cart is."""
    inner = 0.1 * np.eye(4)  # tanh is nearly linear there
    outer = np.zeros((2, 4))
    outer[1, 2] = 10.0
    return zoo.hashed(
        Policy(MLP([inner, outer], [np.zeros(4), np.zeros(2)], "tanh"), Spaces(shape=(4,), n_actions=2), name=name)
    )


def polished(out, agent=None, sigma=SIGMA, settings=SMALL, **more):
    return run_training(polish, TASK, sigma, settings, out, init_from=agent or careless(), **more)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return the folder of one polished agent, and the agent."""
    out = tmp_path_factory.mktemp("polished") / "run"
    return out, polished(out, seed=3)


def mean_of(policy):
    plan = Plan(task=TASK, policy=policy, noise=Noise.of(SIGMA), n_episodes=300, seed=1)
    return float(play(plan).returns.mean())


def test_the_search_finds_what_the_agent_lacks(done):
    out, after = done
    before = careless()
    assert mean_of(before) < 60
    assert mean_of(after) > mean_of(before) + 20
    training = zoo.load_card(str(out))["training"]
    assert training["init_from"] == {"name": before.name, "sha256": before.sha256}
    assert len(training["added"]) == 4
    assert training["best_step"] == training["steps"] > 0
    assert zoo.load(str(out)).sha256 == after.sha256


def test_only_the_last_layer_changes(done):
    before, after = careless().network.linear, done[1].network.linear
    assert torch.equal(before[0].weight, after[0].weight)
    assert torch.equal(before[-1].weight[0], after[-1].weight[0])
    assert not torch.equal(before[-1].weight[1], after[-1].weight[1])


def test_a_seed_gives_one_agent(tmp_path, done):
    assert polished(tmp_path / "again", seed=3).sha256 == done[1].sha256
    assert polished(tmp_path / "other", seed=4).sha256 != done[1].sha256


def test_what_is_worse_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(polishing, "search_numbers", lambda *_: (np.full(4, -5.0), 1))
    agent = careless()
    assert polished(tmp_path / "run", agent).sha256 == agent.sha256
    card = zoo.load_card(str(tmp_path / "run"))
    assert card["training"]["added"] == [0, 0, 0, 0]
    assert card["curve"][0][1] > card["curve"][1][1]


def test_what_is_added_is_a_multiple_of_the_guessed_observation():
    agent = careless()
    features, clean = observe_features(TASK, Noise.of(SIGMA), agent, 50, 0)
    ways = find_directions(agent, features, clean)
    guessed = torch.cat((features, torch.ones(len(features), 1)), dim=1) @ ways.guess
    error = (guessed - clean).std(dim=0)
    # One noisy frame: no guess is worse than the mean, and one of what moves less than the noise is hardly better.
    assert (error <= clean.std(dim=0) + 1e-6).all()
    numbers = np.array([0.3, -0.2, 0.1, 0.5])
    last, other = last_layer(agent.network, ""), last_layer(ways.add_to(agent, numbers).network, "")
    change = (features.float() @ (other.weight - last.weight).T + other.bias - last.bias).double()
    expected = guessed @ (torch.from_numpy(numbers) * ways.unit[0])
    assert torch.allclose(change[:, 1], expected, atol=1e-4)
    assert not change[:, 0].any()
    tilt = 10 * features[:, 2]
    assert torch.allclose(ways.unit[0], tilt.std() / guessed.std(dim=0))
    assert ways.add_to(agent, np.zeros(4)).sha256 == agent.sha256


def test_a_recurrent_agent_is_polished(tmp_path):
    settings = PolishSettings(rounds=1, pairs=1, n_episodes=10, observed=10, validation_episodes=10)
    agent = zoo.load("cartpole-5-gru-s0.4")
    run_training(polish, get_task("cartpole-5"), 0.35, settings, tmp_path / "run", init_from=agent)
    card = zoo.load_card(str(tmp_path / "run"))
    assert (card["name"], card["sigma"], card["layout"]["kind"]) == ("cartpole-5-gru-polished-s0.35", 0.35, "gru")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sigma": 0.0}, "sigma must be > 0, got 0"),
        ({"agent": zoo.load("mountain-car-ppo-s0.3")}, "vectors and actions of cartpole-1, not mountain-car-"),
        (
            {"agent": Policy(torch.nn.Linear(4, 2), Spaces(shape=(4,), n_actions=2), name="own")},
            "ends with fully connected layers can be polished; own is another",
        ),
    ],
)
def test_what_cannot_be_polished_is_refused_before_anything_is_made(tmp_path, more, message):
    with pytest.raises(InputError, match=message):
        polished(tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(PolishSettings.__init__, "__defaults__", tuple(SMALL.as_dict().values()))
    call = ["cartpole-1", "--sigma", "0.1", "--init-from", "cartpole-1-s0.2", "--out", str(tmp_path / "run")]
    polishing.main(call)
    card = zoo.load_card(str(tmp_path / "run"))
    assert (card["name"], card["training"]["preset"]) == ("cartpole-1-polished-s0.1", "polish")
    assert card["training"]["command"] == f"python -m zoo.training.polish {' '.join(call)}"
    with pytest.raises(SystemExit, match="already holds a trained agent"):
        polishing.main(call)
