"""Whole games of Atari for agents that were trained life by life."""

import gymnasium
import numpy as np
import pytest

from surefoot.errors import InputError
from surefoot.play.environments import make_task
from surefoot.play.envs.whole_game import WholeGame

pytest.importorskip("cv2")
ale_py = pytest.importorskip("ale_py")
from stable_baselines3.common.atari_wrappers import AtariWrapper  # noqa: E402

gymnasium.register_envs(ale_py)
GAME = "BreakoutNoFrameskip-v4"


def test_between_two_lives_the_agent_sees_what_it_saw_in_training():
    trained = AtariWrapper(gymnasium.make(GAME))
    whole = WholeGame(AtariWrapper(gymnasium.make(GAME), terminal_on_life_loss=False, clip_reward=False))
    rng, lost, score = np.random.default_rng(0), 0, 0.0
    assert np.array_equal(trained.reset(seed=3)[0], whole.reset(seed=3)[0])
    while True:
        action = int(rng.integers(4))
        expected, reward, life_over, _, _ = trained.step(action)
        seen, gained, over, _, _ = whole.step(action)
        score += gained - reward  # below 1 point per brick nothing is clipped in the lower rows
        if over:
            break
        if life_over:
            lost += 1
            expected, _ = trained.reset()
        assert np.array_equal(seen, expected)
    assert life_over
    assert lost == 4
    assert score == 0
    assert whole.game.ale.lives() == 0


def test_every_game_begins_anew():
    whole = WholeGame(AtariWrapper(gymnasium.make(GAME), terminal_on_life_loss=False))
    first, _ = whole.reset(seed=5)
    for _ in range(40):
        whole.step(3)
    again, _ = whole.reset(seed=5)
    assert np.array_equal(first, again)
    assert whole.lives == 5


def test_episodes_of_one_life_are_refused():
    """Their reset goes on with the game: they would not be independent."""
    with pytest.raises(InputError, match=r'not independent; give wrappers=.*"terminal_on_life_loss": false'):
        make_task(GAME, floor=0, max_steps=100, wrappers=[AtariWrapper], env_modules=["ale_py"])
    task = make_task(
        GAME,
        floor=0,
        max_steps=100,
        wrappers=['stable_baselines3.common.atari_wrappers:AtariWrapper={"terminal_on_life_loss": false}'],
        env_modules=["ale_py"],
    )
    assert task.spaces.shape == (84, 84, 1)
