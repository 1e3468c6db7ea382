"""Statistics of VecNormalize, wherever they are used: every number of an agent behind them against the formula.

Their means and variances differ from frame to frame and from feature to feature, so that no exchange goes unnoticed.
"""

import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import surefoot
from stand_ins import SpacesOnly
from surefoot.agents.normalization import Normalized, Statistics, feature_scales, normalized, taken_apart
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.agents.smoothed import smooth
from surefoot.errors import InputError
from toys import actor_with_critic, recurrent

torch.set_num_threads(1)

FRAMES, SIZE = 3, 2
MEAN = np.array([[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]])
VAR = np.array([[4.0, 0.25], [9.0, 1.0], [16.0, 2.25]])
EPSILON, CLIP = 0.01, 1.5
OWN = Statistics(mean=MEAN, var=VAR, epsilon=EPSILON, clip=CLIP)


def formula(histories):
    """Return normalized histories, by numpy."""
    scaled = (histories.astype(np.float64) - MEAN) / np.sqrt(VAR + EPSILON)
    return torch.from_numpy(np.clip(scaled, -CLIP, CLIP).astype(np.float32))


def histories(rows=200):
    return (MEAN + np.random.default_rng(0).normal(size=(rows, FRAMES, SIZE)) * 3).astype(np.float32)


@pytest.fixture
def bare():
    return actor_with_critic(frames=FRAMES)


def test_the_actor_and_the_critic_both_get_normalized_observations(bare):
    """An attack that asks a critic about raw observations attacks another one than the agent's."""
    policy, seen = normalized(bare, OWN), torch.from_numpy(histories())
    action = policy.network(seen)
    assert torch.equal(action, bare.network(formula(histories())))
    assert torch.equal(policy.critic(seen, action), bare.critic(formula(histories()), action))
    assert not torch.allclose(policy.critic(seen, action), bare.critic(seen, action), atol=0.1)  # raw is another value


def test_gradients_of_actor_and_critic_are_those_of_the_formula(bare):
    """Through the clip none comes back, through everything else that of the network, divided by the scale."""
    policy, seen = normalized(bare, OWN), torch.from_numpy(histories()).requires_grad_()
    policy.critic(seen, policy.network(seen)).sum().backward()
    inside = formula(histories()).requires_grad_()
    bare.critic(inside, bare.network(inside)).sum().backward()
    scale = torch.from_numpy(np.sqrt(VAR + EPSILON)).float()
    free = inside.detach().abs() < CLIP
    assert 0.1 < free.float().mean() < 0.9
    assert torch.allclose(seen.grad, inside.grad * free / scale, atol=1e-6)
    assert (seen.grad[free].abs() > 1e-6).float().mean() > 0.9


def test_the_encoder_of_a_recurrent_agent_gets_normalized_observations():
    bare = recurrent(size=SIZE, last_action=False)
    one = Statistics(mean=MEAN[0], var=VAR[0], epsilon=EPSILON, clip=CLIP)
    policy = normalized(bare, one)
    seen = torch.from_numpy(histories()[:, 0])
    scaled = (seen.double() - torch.from_numpy(one.mean)) / torch.from_numpy(np.sqrt(one.var + EPSILON))
    empty, episode_start = bare.memory.empty(seen), torch.ones(len(seen), dtype=torch.bool)
    expected = bare.memory.advance(empty, scaled.clamp(-CLIP, CLIP).float(), None, episode_start)
    assert torch.allclose(policy.memory.advance(empty, seen, None, episode_start), expected, atol=1e-6)
    assert taken_apart(policy)[1] is one
    assert feature_scales(policy) == pytest.approx(np.sqrt(one.var + EPSILON))


def test_scales_are_those_of_the_newest_frame(bare):
    """Noise and perturbations come in there; a sigma by the oldest frame's would be another."""
    assert feature_scales(normalized(bare, OWN)) == pytest.approx(np.sqrt(VAR[-1] + EPSILON))
    assert feature_scales(bare) is None


def test_statistics_of_one_frame_are_those_of_all(bare):
    single = Statistics(mean=MEAN[1], var=VAR[1], epsilon=EPSILON, clip=CLIP)
    policy = normalized(bare, single)
    assert feature_scales(policy) == pytest.approx(np.sqrt(VAR[1] + EPSILON))
    own = policy.network.statistics
    assert np.array_equal(own.mean, np.tile(MEAN[1], (FRAMES, 1)))
    assert np.array_equal(own.var, np.tile(VAR[1], (FRAMES, 1)))
    assert (own.epsilon, own.clip) == (EPSILON, CLIP)


def test_statistics_of_one_vector_repeat_along_the_last_axis():
    """Of a stack along the last axis: feature by feature, frame after frame, not each feature three times in a row."""
    single = Statistics(mean=MEAN[1], var=VAR[1], epsilon=EPSILON, clip=CLIP)
    over = single.over((6,))
    assert over.mean.tolist() == [*MEAN[1]] * 3
    assert over.var.tolist() == [*VAR[1]] * 3


def test_an_agent_is_taken_apart_into_what_it_was_made_of(bare):
    apart, own = taken_apart(normalized(bare, OWN))
    assert own.mean is not None
    assert np.array_equal(own.mean, MEAN)
    assert (apart.network, apart.critic) == (bare.network, bare.critic)
    assert not isinstance(apart.network, Normalized)
    assert taken_apart(bare) == (bare, None)


def test_the_hash_is_of_the_agent_and_of_every_statistic(bare):
    from dataclasses import replace

    known = replace(bare, sha256="agent")
    changes = [{}, {"mean": MEAN + 1}, {"var": VAR + 1}, {"epsilon": 0.02}, {"clip": 2.0}]
    hashes = {normalized(known, replace(OWN, **change)).sha256 for change in changes}
    hashes |= {normalized(replace(bare, sha256="other"), OWN).sha256, "agent"}
    assert len(hashes) == len(changes) + 2


# --- deployed ---------------------------------------------------------------------------------------------------------


def model(shape=(20,)):
    env = VecNormalize(DummyVecEnv([lambda: SpacesOnly(Box(-np.inf, np.inf, shape, np.float32), Discrete(2))]))
    env.obs_rms.mean, env.obs_rms.var = np.full(shape, 5.0), np.full(shape, 4.0)
    made = stable_baselines3.PPO("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
    return made, env


@pytest.fixture(params=["file", "folder", "live"])
def stored(request, tmp_path):
    """A model of flat observations that may be a stack of five times four: in a file, in a folder, live."""
    made, env = model()
    if request.param == "live":
        return made
    home = tmp_path / "agent"
    home.mkdir()
    made.save(home / "agent.zip")
    (home / "agent").mkdir()
    env.save(str(home / "agent" / "vecnormalize.pkl"))
    return home / "agent.zip" if request.param == "file" else home


def test_an_agent_that_may_take_a_stack_is_not_deployed_before_that_is_said(stored):
    """Fresh noise on the old frames of a stack would make it another agent than the certified one."""
    question = r"the agent's observations \(20,\) may be a stack of frames; say what one observation is with spaces="
    for agent in (stored, str(stored) if not hasattr(stored, "predict") else stored):
        with pytest.raises(InputError, match=question):
            smooth(agent, 0.1)
        with pytest.raises(InputError, match=question):
            smooth(as_policy(agent), 0.1)
    assert smooth(as_policy(stored, n_stack=1), 0.1).policy.spaces.n_stack == 1
    assert smooth(stored, 0.1, Spaces(shape=(4,), n_actions=2)).policy.spaces.n_stack == 5
    assert smooth(as_policy(stored, n_stack=5), 0.1).policy.spaces.shape == (4,)


@pytest.mark.parametrize(
    ("shape", "question"), [((4,), True), ((6,), True), ((9,), True), ((2,), False), ((3,), False), ((5,), False)]
)
def test_the_smallest_stack_is_asked_about_too(shape, question):
    """Two frames of two numbers are (4,); of 2, 3 or 5 numbers there is no stack of more than one number each."""
    made, _ = model(shape)
    if question:
        with pytest.raises(InputError, match="may be a stack of frames"):
            smooth(as_policy(made, vecnormalize="none"), 0.1)
    else:
        assert smooth(as_policy(made, vecnormalize="none"), 0.1).policy.spaces.shape == shape


@pytest.mark.filterwarnings("ignore:sigma is 0:surefoot.PredictableNoiseWarning")
def test_the_deployed_agent_of_a_folder_has_its_statistics(stored, tmp_path):
    with pytest.warns(surefoot.PredictableNoiseWarning, match="sigma is 0"):
        agent = smooth(as_policy(stored, n_stack=1), 0.0)
    seen = (5 + 4 * np.random.default_rng(1).normal(size=(200, 20))).astype(np.float32)
    made, env = model()
    expected = made.predict(env.normalize_obs(seen), deterministic=True)[0]
    assert len(set(expected.tolist())) == 2
    assert np.array_equal(agent.predict(seen)[0], expected)
    with pytest.warns(surefoot.PredictableNoiseWarning, match="sigma is 0"):
        raw = smooth(as_policy(stored, n_stack=1, vecnormalize="none"), 0.0)
    assert not np.array_equal(raw.predict(seen)[0], expected)


def test_statistics_of_the_model_itself_not_of_another_in_the_folder(tmp_path):
    """Two models in one folder, each with statistics in a folder named like it."""
    homes = {}
    for name, mean in (("one", 5.0), ("two", -5.0)):
        made, env = model()
        env.obs_rms.mean = np.full(20, mean)
        made.save(tmp_path / f"{name}.zip")
        (tmp_path / name).mkdir()
        env.save(str(tmp_path / name / "vecnormalize.pkl"))
        homes[name] = mean
    for name, mean in homes.items():
        assert as_policy(tmp_path / f"{name}.zip").network.statistics.mean.tolist() == [mean] * 20


@pytest.mark.parametrize(
    ("parts", "accepted"),
    [((("near", 1), ("far", 1)), True), ((("far", 1), ("near", 1)), False), ((("near", 2),), False), (None, True)],
)
def test_statistics_of_parts_go_with_the_same_parts_in_the_same_order(parts, accepted):
    """In another order the means of one part would be subtracted from another."""
    spaces = Spaces(shape=(2,), n_actions=2, parts=(("near", 1), ("far", 1)))
    policy = Policy(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2)), spaces)
    own = Statistics(mean=np.zeros(2), var=np.ones(2), epsilon=EPSILON, clip=CLIP, parts=parts)
    if accepted:
        assert normalized(policy, own).network.statistics.parts == parts
        return
    with pytest.raises(InputError, match="expected the same in the same order"):
        normalized(policy, own)
