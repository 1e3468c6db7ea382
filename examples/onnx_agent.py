"""Export a Stable-Baselines3 agent to ONNX, as SB3's guide does, and certify the file."""

import tempfile
import warnings
from math import floor
from pathlib import Path
from typing import Any

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import surefoot

SIGMA = 0.1
BUDGETS = (0.0, 0.1, 0.2)


class OnnxablePolicy(torch.nn.Module):
    """Maps observations to (actions, values, log-probabilities); the first output is what Surefoot takes."""

    def __init__(self, policy: torch.nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: torch.Tensor) -> Any:
        """Return what the policy returns."""
        return self.policy(observation, deterministic=True)


def export(model: PPO, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that can follow SB3's code is the older one
        torch.onnx.export(
            OnnxablePolicy(model.policy).eval(), (torch.randn(1, 4),), path, input_names=["input"], dynamo=False
        )


def main(episodes: int = 200, steps: int = 10_000) -> surefoot.Certificate:
    environments = make_vec_env(lambda: surefoot.NoisyObservation(gymnasium.make("CartPole-v1"), SIGMA), 8, seed=0)
    model = PPO("MlpPolicy", environments, n_steps=128, batch_size=256, learning_rate=1e-3, seed=0, device="cpu")
    model.learn(steps)
    task = surefoot.make_task("CartPole-v1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(model, path)
        # An ONNX file is data: onnxruntime computes with it, and nothing is unpickled.
        played = surefoot.rollout(task, path, sigma=SIGMA, n_episodes=episodes)
    certificate = surefoot.certify(played, BUDGETS)
    for budget, lower in zip(certificate.budgets, certificate.lower, strict=True):
        print(f"budget {budget:g}: mean return at least {floor(100 * lower) / 100}")
    return certificate


if __name__ == "__main__":
    main()
