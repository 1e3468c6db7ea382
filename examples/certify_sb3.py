"""Train a Stable-Baselines3 agent on noisy observations, save it, and certify the file."""

import tempfile
from math import floor
from pathlib import Path

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import surefoot

ENVIRONMENT = "CartPole-v1"
SIGMA = 0.1
# Known from the rules: a reward of 1 per step, and at most 500 steps.
FLOOR, CEILING = 0.0, 500.0
BUDGETS = (0.0, 0.1, 0.2)


def train(steps: int, path: Path) -> None:
    """Train with the noise that will be certified."""
    environments = make_vec_env(lambda: surefoot.NoisyObservation(gymnasium.make(ENVIRONMENT), SIGMA), 8, seed=0)
    model = PPO("MlpPolicy", environments, n_steps=128, batch_size=256, learning_rate=1e-3, seed=0, device="cpu")
    model.learn(steps)
    model.save(path)


def main(episodes: int = 200, steps: int = 20_000) -> surefoot.Certificate:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.zip"
        train(steps, path)
        task = surefoot.make_task(ENVIRONMENT, floor=FLOOR, ceiling=CEILING)
        # The zip is read as data: nothing in it is unpickled.
        played = surefoot.rollout(task, path, sigma=SIGMA, n_episodes=episodes)
    certificate = surefoot.certify(played, BUDGETS)
    # Bounds are rounded down when printed, never to the nearest digit.
    for budget, lower in zip(certificate.budgets, certificate.lower, strict=True):
        print(f"budget {budget:g}: mean return at least {floor(100 * lower) / 100}")
    return certificate


if __name__ == "__main__":
    main()
