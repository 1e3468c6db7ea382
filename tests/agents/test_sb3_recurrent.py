"""RecurrentPPO of sb3-contrib: the same actions as its own predict, step by step, read and written."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from agents.test_sb3 import ARM, STACK, THREE, make, saved
from surefoot.agents import files as zoo
from surefoot.agents.memory import Recurrent
from surefoot.agents.normalization import Statistics, normalized, taken_apart
from surefoot.agents.sb3 import read as sb3
from surefoot.agents.sb3.write import write_zip
from surefoot.agents.smoothed import PredictableNoiseWarning, SmoothedPolicy
from surefoot.errors import InputError
from toys import recurrent

pytestmark = pytest.mark.filterwarnings("ignore:sigma is 0:surefoot.PredictableNoiseWarning")

LSTM = {"lstm_hidden_size": 12}
MODELS = {
    "discrete": {"actions": THREE},
    "continuous": {"actions": ARM},
    "shared": {"policy_kwargs": {"shared_lstm": True, "enable_critic_lstm": False}},
    "no critic LSTM, relu": {"policy_kwargs": {"enable_critic_lstm": False, "activation_fn": nn.ReLU}},
    "no layers after it": {"policy_kwargs": {"net_arch": []}},
    "squashed": {"actions": ARM, "use_sde": True, "policy_kwargs": {"squash_output": True}},
    "several axes": {"observations": STACK},
}


def lstm_model(policy_kwargs=None, **options):
    return make("RecurrentPPO", policy="MlpLstmPolicy", policy_kwargs=LSTM | (policy_kwargs or {}), **options)


def walk(agent, shape, steps=25, rows=6):
    """The actions of an agent called as SB3 is, with episodes that begin now and then."""
    rng, state, found = np.random.default_rng(2), None, []
    for step in range(steps):
        seen = rng.normal(size=(rows, *shape)).astype(np.float32)
        begins = (rng.random(rows) < 0.1) | (step == 0)
        action, state = agent.predict(seen, state=state, episode_start=begins, deterministic=True)
        found.append(action)
    return np.stack(found)


def without_noise(policy):
    with pytest.warns(PredictableNoiseWarning, match="sigma is 0"):
        return SmoothedPolicy(policy, 0.0)


def same(policy, model):
    ours = walk(without_noise(policy), policy.spaces.shape)
    theirs = walk(model, model.observation_space.shape)
    assert len(np.unique(theirs)) > 1  # the comparison is about an agent that acts
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_it_acts_as_sb3_contrib_does(name, tmp_path):
    model = lstm_model(**MODELS[name])
    read, live = sb3.read_zip(saved(tmp_path, model)), sb3.from_model(model)
    assert read.sha256 == live.sha256
    assert read.differentiable
    same(read, model)


def test_an_lstm_that_is_never_reset_is_noticed(monkeypatch):
    model = lstm_model()
    honest = Recurrent.advance
    monkeypatch.setattr(
        Recurrent,
        "advance",
        lambda self, memory, seen, action=None, episode_start=None: honest(self, memory, seen, action),
    )
    with pytest.raises(AssertionError):
        same(sb3.from_model(model), model)


def test_an_agent_with_memory_is_not_written(tmp_path):
    with pytest.raises(InputError, match="has a memory of its own, and SB3 no such agents"):
        write_zip(recurrent("lstm"), tmp_path / "agent.zip")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"policy_kwargs": {"n_lstm_layers": 2}}, "LSTM is not one plain layer"),
        ({"policy_kwargs": {"lstm_kwargs": {"bias": False}}}, "LSTM is not one plain layer"),
        ({"observations": Box(0, 255, (6,), np.uint8)}, "observations are images"),
    ],
)
def test_other_recurrent_models_are_rejected(options, text, tmp_path):
    """At once: unpickling would not help."""
    model = lstm_model(**options)
    path = saved(tmp_path, model)
    for read in (
        lambda: sb3.read_zip(path),
        lambda: sb3.from_model(model),
        lambda: sb3.read_zip(path, allow_pickle=True),
    ):
        with pytest.raises(InputError, match=f"{text}.*of recurrent agents only one plain LSTM.* surefoot.Policy"):
            read()


def test_statistics_are_applied_before_the_lstm(tmp_path):
    model = lstm_model()
    rng = np.random.default_rng(0)
    own = Statistics(mean=rng.normal(size=5), var=rng.random(5) + 0.1, epsilon=1e-8, clip=1.0)
    policy = normalized(sb3.from_model(model), own)

    class Behind:
        """The model behind VecNormalize's formula."""

        def predict(self, seen, **options):
            return model.predict(np.clip((seen - own.mean) / np.sqrt(own.var + 1e-8), -1, 1), **options)

    expected = walk(Behind(), (5,))
    assert np.array_equal(walk(without_noise(policy), (5,)), expected)
    zoo.save(policy, tmp_path / "agent", {})
    again = zoo.load(str(tmp_path / "agent.json"))
    assert np.array_equal(walk(without_noise(again), (5,)), expected)
    assert taken_apart(policy)[0].memory.encoder.__class__ is nn.Identity
    with pytest.raises(InputError, match="recurrent agents without last action"):
        normalized(recurrent(), Statistics(mean=np.zeros(4), var=np.ones(4), epsilon=1e-8, clip=1.0))


def test_gradients_reach_the_present_observation():
    policy = sb3.from_model(lstm_model())
    seen = torch.zeros(3, 5, requires_grad=True)
    memory = policy.memory.advance(policy.memory.empty(seen.detach()), seen, None, torch.ones(3, dtype=torch.bool))
    policy.network(memory).sum().backward()
    assert seen.grad.abs().min() > 0
