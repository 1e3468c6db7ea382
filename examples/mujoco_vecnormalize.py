"""PPO with VecNormalize on Hopper, a task of MuJoCo: train with noise, save both files, and certify them.

The same from the command line:

surefoot certify --env Hopper-v5 --agent model.zip --sigma 0.05 --reward-range 0,10 \
  --wrapper 'ClipReward={"min_reward": 0, "max_reward": 10}'
"""

import tempfile
from math import floor
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.wrappers import ClipReward
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import surefoot

SIGMA = 0.05
# Hopper's rewards contain a speed, which nothing bounds; clipped ones have a range, and returns a floor.
LOW, HIGH = 0.0, 10.0
BUDGETS = (0.0, 0.05, 0.1)


def noisy_hopper() -> gymnasium.Env[Any, Any]:
    return surefoot.NoisyObservation(ClipReward(gymnasium.make("Hopper-v5"), LOW, HIGH), SIGMA)


def train(steps: int, path: Path) -> None:
    """Train with the noise that will be certified; what VecNormalize has learned goes into the folder of the model."""
    environments = VecNormalize(make_vec_env(noisy_hopper, 4, seed=0))
    model = PPO("MlpPolicy", environments, n_steps=256, batch_size=128, gamma=0.99, seed=0, device="cpu")
    model.learn(steps)
    model.save(path)
    path.with_suffix("").mkdir()
    environments.save(str(path.with_suffix("") / "vecnormalize.pkl"))


def main(episodes: int = 200, steps: int = 10_000) -> surefoot.Certificate:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.zip"
        train(steps, path)
        clipped = f'ClipReward={{"min_reward": {LOW}, "max_reward": {HIGH}}}'
        task = surefoot.make_task("Hopper-v5", wrappers=[clipped], reward_range=(LOW, HIGH))
        # The statistics are found next to the model; noise and budgets stay in the units of Hopper's observations.
        played = surefoot.rollout(task, path, sigma=SIGMA, n_episodes=episodes)
    certificate = surefoot.certify(played, BUDGETS)
    for budget, lower in zip(certificate.budgets, certificate.lower, strict=True):
        print(f"budget {budget:g}: mean return at least {floor(100 * lower) / 100}")
    return certificate


if __name__ == "__main__":
    main()
