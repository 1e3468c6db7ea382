"""Agents of many kinds, trained for a moment, certified, and compared with Stable-Baselines3's own evaluation.

    python -m study.compatibility            # run every row and print the table
    python -m study.compatibility --write    # also put it into docs/compatibility.md

Each agent is trained, saved, and read again as a stranger's would be. Its actions must be those of Stable-Baselines3,
and its mean return under noise must be the one that ``evaluate_policy`` finds on the same noisy environment, within
four standard errors: whatever stands between an environment and its agent and is forgotten here would show.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation, TransformObservation
from numpy.typing import NDArray
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

import surefoot
from study.agents_table import ROOT, put
from study.structured import PLAIN, ROOMS
from study.tables import Table
from surefoot.agents import files
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.play.envs.noisy import NoisyObservation

SIDE = 36  # the smallest picture that SB3's convolutions take
EPISODES, ALLOWED = 200, 4.0


class Squares(gymnasium.Env[NDArray[np.uint8], Any]):
    """Pictures of a square that moves left or right; the reward is how far to the right it is."""

    def __init__(self, channels_first: bool = False, continuous: bool = False) -> None:
        shape = (1, SIDE, SIDE) if channels_first else (SIDE, SIDE, 3)
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = Box(-1, 1, (1,), np.float32) if continuous else Discrete(3)
        self.place = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin anywhere."""
        super().reset(seed=seed, options=options)
        self.place = float(self.np_random.uniform())
        return self._picture(), {}

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move."""
        move = float(np.ravel(action)[0]) if isinstance(self.action_space, Box) else int(action) - 1
        self.place = float(np.clip(self.place + 0.15 * move + self.np_random.normal() * 0.05, 0, 1))
        return self._picture(), self.place, False, False, {}

    def _picture(self) -> NDArray[np.uint8]:
        picture = np.zeros(self.observation_space.shape or (), dtype=np.uint8)
        left = round(self.place * (SIDE - 12))
        if picture.shape[0] == 1:
            picture[0, 12:24, left : left + 12] = 255
        else:
            picture[12:24, left : left + 12] = (255, 128, 40)
        return picture


for _name, _settings in (
    ("SquaresLast-v0", {}),
    ("SquaresFirst-v0", {"channels_first": True}),
    ("SquaresMove-v0", {"continuous": True}),
):
    gymnasium.register(_name, cast(Any, Squares), max_episode_steps=20, kwargs=_settings)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of agent on one environment.

    Attributes:
        agent: What it is, for the table.
        env: Gymnasium ID.
        algorithm: Class of SB3 or sb3-contrib.
        policy: Its policy class.
        given: How it is given to Surefoot.
        sigma: Noise.
        max_steps: Length of an episode.
        floor: Of the return.
        ceiling: Of the return.
        stack: How many observations are stacked.
        normalized: Whether VecNormalize stands between environment and agent.
        time_left: Whether TimeFeatureWrapper does.
        env_kwargs: What else the environment is made with.
        options: What else the algorithm is made with.
        settings: Its ``policy_kwargs``.
        made_by: What the environment is given as, where not by its ID.
        shake: Seed of what is added to the weights after a moment of training, which leaves agents nearly constant.
        stochastic: Whether it draws its actions, here and in SB3's evaluation.
    """

    agent: str
    env: str
    algorithm: str
    policy: str = "MlpPolicy"
    given: str = "zip"
    sigma: float = 0.1
    max_steps: int = 40
    floor: float = 0.0
    ceiling: float | None = None
    stack: int = 1
    normalized: bool = False
    time_left: bool = False
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    made_by: str = ""
    shake: int = 2
    stochastic: bool = False

    @property
    def pictures(self) -> bool:
        """Whether observations are images."""
        return self.policy == "CnnPolicy"


CartPole = partial(Row, env="CartPole-v1", ceiling=40.0, sigma=0.2)
Pendulum = partial(Row, env="Pendulum-v1", floor=-660.0, ceiling=0.0, sigma=0.2)
Lander = partial(Row, env="LunarLander-v3", floor=-2000.0, sigma=0.05)
Pictures = partial(Row, policy="CnnPolicy", ceiling=20.0, max_steps=20, sigma=0.2, settings={"net_arch": []})
SDE, LSTM = {"use_sde": True}, {"lstm_hidden_size": 8}

ROWS: tuple[Row, ...] = (
    CartPole(agent="DQN", algorithm="DQN"),
    CartPole(agent="DQN on three stacked frames", algorithm="DQN", stack=3, shake=1),
    CartPole(agent="PPO", algorithm="PPO"),
    CartPole(agent="PPO with VecNormalize", algorithm="PPO", normalized=True),
    CartPole(agent="PPO with VecNormalize over three stacked frames", algorithm="PPO", normalized=True, stack=3),
    CartPole(agent="PPO with VecNormalize", algorithm="PPO", normalized=True, given="live model"),
    CartPole(
        agent="PPO with an activation of its own",
        algorithm="PPO",
        given="live model",
        settings={"activation_fn": nn.Softsign},
    ),
    Pendulum(agent="PPO, continuous", algorithm="PPO"),
    Pendulum(
        agent="PPO with state-dependent exploration and tanh",
        algorithm="PPO",
        options=SDE,
        settings={"squash_output": True},
    ),
    Lander(agent="A2C", algorithm="A2C"),
    Pendulum(agent="A2C with VecNormalize", algorithm="A2C", normalized=True, given="folder of the zoo"),
    Pendulum(
        agent="A2C with VecNormalize and env_kwargs",
        algorithm="A2C",
        normalized=True,
        given="folder of the Hub",
        env_kwargs={"g": 3.0},
    ),
    Pendulum(
        agent="PPO with TimeFeatureWrapper and VecNormalize",
        algorithm="PPO",
        normalized=True,
        time_left=True,
        max_steps=200,  # the time left is a share of the length that Gymnasium knows
        floor=-3300.0,
        given="folder of the zoo",
    ),
    Pendulum(agent="DDPG", algorithm="DDPG"),
    Pendulum(agent="TD3", algorithm="TD3"),
    Pendulum(agent="SAC", algorithm="SAC"),
    Pendulum(agent="SAC with state-dependent exploration", algorithm="SAC", options=SDE),
    Pendulum(agent="SAC with VecNormalize", algorithm="SAC", normalized=True),
    CartPole(agent="QR-DQN", algorithm="QRDQN", settings={"n_quantiles": 5}),
    Pendulum(agent="TQC", algorithm="TQC"),
    Pendulum(agent="TQC with state-dependent exploration", algorithm="TQC", options=SDE),
    CartPole(agent="ARS", algorithm="ARS"),
    Pendulum(agent="ARS, linear, with VecNormalize", algorithm="ARS", policy="LinearPolicy", normalized=True),
    Lander(agent="TRPO", algorithm="TRPO"),
    CartPole(agent="MaskablePPO without masks", algorithm="MaskablePPO"),
    CartPole(agent="RecurrentPPO", algorithm="RecurrentPPO", policy="MlpLstmPolicy", settings=LSTM),
    Pendulum(
        agent="RecurrentPPO with VecNormalize",
        algorithm="RecurrentPPO",
        policy="MlpLstmPolicy",
        settings=LSTM,
        normalized=True,
        given="folder of the zoo",
    ),
    Pendulum(agent="CrossQ", algorithm="CrossQ", given="live model"),
    Pictures(agent="DQN on pictures, channels first", env="SquaresFirst-v0", algorithm="DQN"),
    Pictures(agent="PPO on pictures, channels last", env="SquaresLast-v0", algorithm="PPO"),
    Pictures(agent="A2C on pictures, continuous", env="SquaresMove-v0", algorithm="A2C"),
    Pictures(agent="QR-DQN on pictures, channels last", env="SquaresLast-v0", algorithm="QRDQN"),
    Lander(agent="PPO (Box2D)", algorithm="PPO"),
    Row(
        agent="PPO with VecNormalize (MuJoCo)",
        env="Hopper-v5",
        algorithm="PPO",
        sigma=0.02,
        floor=-1000.0,
        normalized=True,
    ),
    Row(agent="SAC (MuJoCo)", env="HalfCheetah-v5", algorithm="SAC", sigma=0.05, floor=-1000.0),
    CartPole(agent="a Python function", algorithm="", given="function"),
    CartPole(agent="PPO, exported as SB3's guide does", algorithm="PPO", given="ONNX file"),
    Pendulum(agent="PPO, continuous, exported as SB3's guide does", algorithm="PPO", given="ONNX file"),
    CartPole(agent="PPO with VecNormalize, exported", algorithm="PPO", normalized=True, given="ONNX file"),
    CartPole(agent="DQN on three stacked frames, exported", algorithm="DQN", stack=3, shake=1, given="ONNX file"),
    CartPole(agent="the Q-network of DQN, traced", algorithm="DQN", given="TorchScript file"),
    CartPole(agent="the Q-network of DQN on three frames", algorithm="DQN", stack=3, shake=1, given="torch module"),
    Pendulum(agent="the actor of TD3", algorithm="TD3", given="torch module"),
    CartPole(agent="PPO of CleanRL", algorithm="PPO", given="CleanRL agent"),
    Pendulum(agent="PPO of CleanRL, continuous", algorithm="PPO", given="CleanRL agent"),
    CartPole(agent="PPO of CleanRL that draws its actions", algorithm="PPO", given="CleanRL agent", stochastic=True),
    CartPole(agent="PPO's predict", algorithm="PPO", given="function of rows"),
    Pendulum(agent="PPO's predict that draws its actions", algorithm="PPO", given="function of rows", stochastic=True),
    CartPole(agent="a torch network", algorithm="", given="surefoot.Policy"),
    CartPole(agent="an agent file", algorithm="", given="agent file"),
)
# Environments with parts, or given in other ways than by their ID.
Rooms = partial(Row, env=ROOMS, policy="MultiInputPolicy", ceiling=20.0, max_steps=20, sigma=0.1)
PlainRooms = partial(Rooms, env=PLAIN, policy="MlpPolicy")
FACTORY, OBJECT = "function that makes it", "environment object"
ROWS += (
    Rooms(agent="PPO, Dict observations, MultiDiscrete actions", algorithm="PPO"),
    Rooms(agent="A2C, Dict observations", algorithm="A2C", given="live model", env_kwargs={"actions": "force"}),
    Rooms(agent="PPO with VecNormalize, Dict observations", algorithm="PPO", normalized=True),
    Rooms(agent="SAC, Dict observations", algorithm="SAC", env_kwargs={"actions": "force"}),
    PlainRooms(agent="PPO, MultiDiscrete actions", algorithm="PPO"),
    PlainRooms(agent="A2C, MultiBinary actions", algorithm="A2C", env_kwargs={"actions": "switches"}, shake=1),
    Pendulum(agent="PPO, the environment from a factory", algorithm="PPO", made_by=FACTORY),
    Pendulum(agent="PPO, the environment as an object", algorithm="PPO", made_by=OBJECT),
)
OFF_POLICY = ("DQN", "DDPG", "TD3", "SAC", "QRDQN", "TQC", "CrossQ")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came out: means with standard errors, ours and SB3's, and the bound at a budget of sigma.

    ``same``  on which share of the observations of some episodes both choose the same action
    """

    same: float
    mean: float
    sem: float
    expected: float
    expected_sem: float
    lower: float

    @property
    def apart(self) -> float:
        """By how many standard errors the means differ."""
        error = float(np.hypot(self.sem, self.expected_sem))
        if error == 0:
            return 0.0 if self.mean == self.expected else float("inf")
        return abs(self.mean - self.expected) / error


def environment(row: Row, *, noisy: bool = True) -> gymnasium.Env[Any, Any]:
    """Return the environment as the agent sees it: noise on each new observation, then what stands before the agent."""
    env: gymnasium.Env[Any, Any] = gymnasium.make(row.env, max_episode_steps=row.max_steps, **row.env_kwargs)
    if noisy:
        env = NoisyObservation(env, row.sigma)
        if row.pictures:  # SB3 divides by 255 itself
            space = env.observation_space
            env = TransformObservation(env, lambda seen: seen * np.float32(255), space)
    if row.time_left:
        env = import_module("sb3_contrib.common.wrappers").TimeFeatureWrapper(env)
    if row.stack > 1:
        env = FrameStackObservation(env, row.stack, padding_type="reset")
    return Monitor(env)


def given_environment(row: Row) -> object:
    """Return the environment as somebody would give it."""
    if row.made_by == FACTORY:
        return lambda **kwargs: gymnasium.make(row.env, **kwargs)
    return gymnasium.make(row.env) if row.made_by == OBJECT else row.env


def trained(row: Row) -> tuple[Any, VecEnv]:
    """Train an agent for a moment, so that its weights and statistics are those of a real training."""
    env: VecEnv = DummyVecEnv([partial(environment, row, noisy=not row.pictures)] * 2)
    env = VecNormalize(env) if row.normalized else env
    options: dict[str, Any] = dict(row.options)
    if row.algorithm in OFF_POLICY:
        options |= {"buffer_size": 200, "learning_starts": 40, "batch_size": 16}
    elif row.algorithm == "ARS":
        options |= {"n_delta": 2}
    else:
        options |= {"n_steps": 32} | ({} if row.algorithm == "A2C" else {"batch_size": 32})
    package = import_module("stable_baselines3")
    package = package if hasattr(package, row.algorithm) else import_module("sb3_contrib")
    settings = dict(row.settings) if row.policy == "LinearPolicy" else {"net_arch": [16], **row.settings}
    model = getattr(package, row.algorithm)(row.policy, env, seed=0, device="cpu", policy_kwargs=settings, **options)
    model.learn(64, **({"use_masking": False} if row.algorithm == "MaskablePPO" else {}))
    generator = torch.Generator().manual_seed(row.shake)
    with torch.no_grad():
        for weight in model.policy.parameters():
            if weight.dim() > 1:
                weight.add_(torch.randn(weight.shape, generator=generator) * 2 / weight[0].numel() ** 0.5)
    return model, env


class ByHand:
    """A rule for CartPole, as a model that SB3 can evaluate."""

    def __call__(self, seen: NDArray[Any]) -> int:
        """Push to where the pole falls."""
        return int(seen[2] + 0.3 * seen[3] > 0)

    def predict(self, observation: NDArray[Any], state: Any = None, **_: Any) -> tuple[NDArray[np.int64], Any]:
        """Return actions as SB3's models do."""
        return np.array([self(one) for one in observation]), state

    def network(self) -> nn.Module:
        """Return the same rule as a network."""
        layer = nn.Linear(4, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.3]]))
            layer.bias.zero_()
        return nn.Sequential(nn.Flatten(), layer)


def written_by_hand(row: Row, folder: Path) -> tuple[Any, object]:
    """Return a model for SB3, and the same agent as it is given to Surefoot."""
    rule = ByHand()
    policy = Policy(rule.network(), Spaces(shape=(4,), n_actions=2))
    if row.given == "agent file":
        arrays = [weight.detach().numpy() for weight in rule.network().parameters()]
        files.save(Policy(MLP(arrays[:1], arrays[1:]), Spaces(shape=(4,), n_actions=2)), folder / "agent", {})
    return rule, {"function": rule, "surefoot.Policy": policy, "agent file": folder / "agent"}[row.given]


def given(row: Row, model: Any, env: VecEnv, folder: Path) -> object:
    """Return the agent as somebody would have it: files in a folder, or the live model."""
    if row.given == "live model":
        return model
    if row.given in OTHER_MAKERS:
        if isinstance(env, VecNormalize):
            env.save(str(folder / "vecnormalize.pkl"))
        return OTHER_MAKERS[row.given](row, model, folder)
    published = row.given.startswith("folder")
    inner = folder / row.env if row.given == "folder of the zoo" else folder if published else folder / "model"
    inner.mkdir(exist_ok=True)
    path = folder / (f"{row.env}.zip" if published else "model.zip")
    model.save(path)
    if isinstance(env, VecNormalize):
        env.save(str(inner / ("vec_normalize.pkl" if inner == folder else "vecnormalize.pkl")))
    if not published:
        return path
    wrapper = "env_wrapper: sb3_contrib.common.wrappers.TimeFeatureWrapper\n" if row.time_left else ""
    (inner / "config.yml").write_text(f"normalize: {str(row.normalized).lower()}\n{wrapper}")
    (inner / "args.yml").write_text(f"env: {row.env}\nenv_kwargs: {dict(row.env_kwargs) or 'null'}\n")
    return folder


class Exported(nn.Module):
    """What SB3's guide exports: actions first."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> Any:
        """Return what the policy returns."""
        return self.policy(observation, deterministic=True)


class CleanRL(nn.Module):
    """The agent of CleanRL's ppo.py and ppo_continuous_action.py, with the weights of a PPO of SB3."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        actor = nn.Sequential(policy.mlp_extractor.policy_net, policy.action_net)
        self.critic = nn.Sequential(policy.mlp_extractor.value_net, policy.value_net)
        self.continuous = hasattr(policy, "log_std")
        if self.continuous:
            self.actor_mean, self.actor_logstd = actor, policy.log_std
        else:
            self.actor = actor

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        """Draw an action, or judge the one given."""
        if not self.continuous:
            chances: Any = Categorical(logits=self.actor(x))
            action = chances.sample() if action is None else action
            return action, chances.log_prob(action), chances.entropy(), self.critic(x)
        mean = self.actor_mean(x)
        spread: Any = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        action = spread.sample() if action is None else action
        return action, spread.log_prob(action).sum(1), spread.entropy().sum(1), self.critic(x)


def as_onnx(row: Row, model: Any, folder: Path) -> object:
    """Export as SB3's guide does, for one row of observations."""
    path, one = folder / "model.onnx", torch.zeros(1, *model.observation_space.shape)
    policy = model.policy if row.algorithm == "PPO" else model.policy.q_net
    network = Exported(policy) if row.algorithm == "PPO" else policy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.eval(), (one,), path, input_names=["input"], dynamo=False)
    return path


def as_torchscript(row: Row, model: Any, folder: Path) -> object:  # noqa: ARG001
    """Trace the network of the values."""
    path = folder / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace: Any = torch.jit.trace
        trace(model.policy.q_net, torch.zeros(3, *model.observation_space.shape)).save(str(path))
    return path


class TD3Actor(nn.Module):
    """TD3's actor in the units of Pendulum's actions, from -2 to 2."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, observation: Tensor) -> Any:
        """Return actions."""
        return 2 * self.actor(observation)


OTHER_MAKERS: Mapping[str, Callable[[Row, Any, Path], object]] = {
    "ONNX file": as_onnx,
    "TorchScript file": as_torchscript,
    "torch module": lambda row, model, _: (
        model.policy.q_net if row.algorithm == "DQN" else TD3Actor(model.policy.actor)
    ),
    "CleanRL agent": lambda _, model, __: CleanRL(model.policy),
    "function of rows": lambda row, model, _: lambda seen: model.predict(seen, deterministic=not row.stochastic)[0],
}


def fresh_environments(row: Row, env: VecEnv | None, count: int) -> VecEnv:
    """Return other copies of the noisy environment, with the statistics of training where there are any."""
    fresh: VecEnv = DummyVecEnv([partial(environment, row)] * count)
    if isinstance(env, VecNormalize):
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = env.obs_rms
    fresh.seed(7)
    return fresh


def evaluated(row: Row, model: Any, env: VecEnv | None, episodes: int) -> NDArray[np.float64]:
    """Return the returns that SB3's own evaluation finds on the noisy environment."""
    fresh = fresh_environments(row, env, 8)
    torch.manual_seed(7)
    returns, _ = evaluate_policy(model, fresh, episodes, deterministic=not row.stochastic, return_episode_rewards=True)
    return np.array(returns)


def agreement(row: Row, model: Any, env: VecEnv | None, policy: Policy) -> float:
    """Return on which share of the observations of SB3's episodes both choose the same action; 0 if it is one."""
    single = fresh_environments(row, env, 1)
    noisy: Any = single.unwrapped
    noisy = noisy.envs[0]
    while not isinstance(noisy, NoisyObservation):
        noisy = noisy.env
    heard: list[NDArray[np.float32]] = []
    send = noisy.observation

    def listen(clean: Any) -> Any:
        seen = send(clean)
        parts = [np.ravel(part) for part in seen.values()] if isinstance(seen, dict) else None
        heard.append(seen if parts is None else np.concatenate(parts))
        return seen

    vars(noisy)["observation"] = listen
    seen, start, memory, state = single.reset(), True, torch.empty(0), None
    pairs = []
    for _ in range(60):
        # An episode that ends has been reset: the last observation but one ended it.
        fresh, new = torch.tensor([start]), torch.from_numpy(heard[-1]).unsqueeze(0)
        memory = policy.memory.empty(new) if start else memory
        memory = policy.memory.advance(memory, new, None, fresh if start else None)
        expected, state = model.predict(seen, state=state, episode_start=np.array([start]), deterministic=True)
        chosen = policy.act(memory).numpy()[0]
        pairs.append(
            (chosen if policy.spaces.factors is None else np.unravel_index(chosen, policy.spaces.factors), expected[0])
        )
        seen, _, over, _ = single.step(expected)
        start = bool(over[0])
    found, known = (np.array(side, dtype=np.float64).reshape(60, -1) for side in zip(*pairs, strict=True))
    varied = np.ptp(known, axis=0).max() > 0.05
    return float(varied * np.isclose(found, known, rtol=0, atol=1e-4).all(axis=1).mean())


def run(row: Row, episodes: int = EPISODES, *, change: Callable[[Policy], Policy] = lambda policy: policy) -> Result:
    """Train, save, read, certify and compare one row; ``change`` is for tests that plant an error."""
    task = surefoot.make_task(
        given_environment(row), floor=row.floor, ceiling=row.ceiling, max_steps=row.max_steps, env_kwargs=row.env_kwargs
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, env = trained(row) if row.algorithm else (None, None)
        agent = written_by_hand(row, folder)[1] if env is None else given(row, model, env, folder)
        model = ByHand() if model is None else model
        policy = change(
            as_policy(
                agent,
                task.spaces,
                n_stack=row.stack if row.given == "torch module" else None,
                batched=True if row.given == "function of rows" and row.stochastic else None,
                stochastic=row.stochastic,
                allow_pickle=row.given == "TorchScript file",
                vecnormalize=folder / "vecnormalize.pkl" if row.normalized and row.given in OTHER_MAKERS else None,
            )
        )
        played = surefoot.rollout(task, policy, sigma=row.sigma, n_episodes=episodes)
    expected = evaluated(row, model, env, episodes)
    certificate = surefoot.certify(played, budgets=[row.sigma])
    spread = [float(np.std(one, ddof=1) / np.sqrt(len(one))) for one in (played.returns, expected)]
    return Result(
        same=1.0 if row.stochastic else agreement(row, model, env, policy),
        mean=float(played.returns.mean()),
        sem=spread[0],
        expected=float(expected.mean()),
        expected_sem=spread[1],
        lower=float(certificate.lower[0]),
    )


def table(results: Sequence[tuple[Row, Result]]) -> Table:
    """Return what the page shows."""
    rows = [
        [
            row.agent,
            f"`{row.env}`" + (" (pictures, ours)" if row.pictures else f" ({row.made_by})" if row.made_by else ""),
            row.given,
            f"{row.sigma:g}",
            "drawn" if row.stochastic else f"{100 * result.same:.0f}%",
            f"{result.mean:.2f} ± {result.sem:.2f}",
            f"{result.expected:.2f} ± {result.expected_sem:.2f}",
            f"{result.apart:.1f}",
            f"{result.lower:.2f}",
        ]
        for row, result in results
    ]
    titles = [
        "agent",
        "environment",
        "given as",
        "sigma",
        "same actions",
        "mean here",
        "mean of SB3",
        "s.e. apart",
        "certified at sigma",
    ]
    return Table(titles, rows, left=3)


def main() -> None:
    """Run every row, print the table, and fail if a mean is another one than SB3's."""
    results = [(row, run(row)) for row in ROWS]
    shown = table(results).markdown()
    print(shown)
    wrong = [row.agent for row, result in results if result.apart > ALLOWED or result.same < 1]
    if wrong:
        sys.exit(f"other actions or means than Stable-Baselines3's: {', '.join(wrong)}")
    if "--write" in sys.argv[1:]:
        put(ROOT / "docs" / "compatibility.md", "compatibility", shown)


if __name__ == "__main__":
    main()
