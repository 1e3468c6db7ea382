"""The callback for SB3: it keeps the model with the best certified bound, and training does not notice it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger, make_output_format
from stable_baselines3.common.vec_env import VecNormalize

import surefoot
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose

SIGMA, BUDGET = 0.1, 0.05
TASK = surefoot.make_task("CartPole-v1", floor=0, ceiling=200, max_steps=200)


def trained(callback=None, *, logged=None, normalized=False, steps=192):
    """Train for a few steps on a real environment."""
    noise = {"wrapper_class": surefoot.NoisyObservation, "wrapper_kwargs": {"sigma": SIGMA}}
    environments = make_vec_env("CartPole-v1", 4, seed=0, env_kwargs={"max_episode_steps": 200}, **noise)
    environments = VecNormalize(environments) if normalized else environments
    model = PPO("MlpPolicy", environments, n_steps=16, batch_size=64, n_epochs=2, learning_rate=0.02, seed=0)
    if logged is not None:
        model.set_logger(Logger(None, [make_output_format("csv", str(logged))]))
    model.learn(steps, callback=callback)
    model.logger.close()
    return model


def callback(**options):
    given = {"sigma": SIGMA, "budget": BUDGET, "n_eval_episodes": 60, "eval_freq": 16, "verbose": 0, **options}
    return surefoot.CertifiedEvalCallback(TASK, **given)


def rows(folder):
    (path,) = folder.glob("*.csv")
    head, *lines = path.read_text().splitlines()
    table = [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]
    return [row for row in table if row[f"certified/lower_B{BUDGET}"]]


def test_the_model_that_is_kept_has_the_best_of_the_logged_bounds(tmp_path):
    watching = callback(best_model_save_path=tmp_path / "best")
    trained(watching, logged=tmp_path)
    bounds = [float(row["certified/lower_B0.05"]) for row in rows(tmp_path)]
    assert len(bounds) == 3
    assert len(set(bounds)) == 3
    assert max(bounds) == watching.best.lower[0]
    number = bounds.index(max(bounds)) + 1
    again = Plan(
        task=TASK,
        policy=surefoot.agents.resolve.as_policy(tmp_path / "best" / "best_model.zip", TASK.spaces),
        noise=surefoot.episodes.Noise.of(SIGMA),
        n_episodes=60,
        purpose=(Purpose.VALIDATION, number),
    )
    assert surefoot.certify(play(again), [BUDGET]).lower[0] == max(bounds)
    assert float(rows(tmp_path)[number - 1]["eval/mean_reward"]) == pytest.approx(watching.best.estimate)


def test_a_bound_is_printed_rounded_down(capsys):
    watching = callback(verbose=1)
    watching._keep_model(SimpleNamespace(lower=np.array([12.349]), budgets=np.array([BUDGET])))
    assert "Best certified bound so far: 12.34 at budget 0.05" in capsys.readouterr().out


def test_training_is_the_same_with_and_without_it():
    one, other = trained().policy.state_dict(), trained(callback()).policy.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_statistics_are_kept_with_the_model_and_found_by_the_loader(tmp_path):
    watching = callback(best_model_save_path=tmp_path, eval_freq=48)
    trained(watching, normalized=True)
    path = Path(tmp_path / "best_model.zip")
    episodes = surefoot.rollout(TASK, str(path), sigma=SIGMA, n_episodes=60, seed=0)
    assert episodes.metadata["agent_sha256"] == watching.best.metadata["agent_sha256"]
    assert (tmp_path / "best_model" / "vecnormalize.pkl").exists()


def test_no_certificate_shares_its_episodes():
    watching = callback(eval_freq=48)
    model = trained(watching)
    certified = surefoot.rollout(TASK, model, sigma=SIGMA, n_episodes=60, seed=0)
    assert certified.metadata["purpose"] == [] != watching.best.metadata["purpose"]


def test_what_makes_no_sense_is_rejected_before_training():
    for wrong, said in (({"eval_freq": 0}, "eval_freq"), ({"budget": -1.0}, "budget"), ({"sigma": -1.0}, "sigma")):
        with pytest.raises(surefoot.InputError, match=said):
            callback(**wrong)
