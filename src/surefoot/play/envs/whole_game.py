"""Atari games from the first life to the last, for agents that were trained to see one life as one episode."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
from gymnasium.utils import RecordConstructorArgs


class WholeGame(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Press the buttons after a lost life that SB3's AtariWrapper presses in training, where a new episode begins.

    Goes around ``AtariWrapper(env, terminal_on_life_loss=False)``: one episode is one game, and every game begins
    from a reset. In training a lost life is followed by a step without a button and, where there is a fire button, by
    one with it and one with the button after it; without them some games would wait forever.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        game: Any = env.unwrapped
        self.game = game
        # Where an episode begins after a lost life, SB3's EpisodicLifeEnv presses 0 and its FireResetEnv 1 and then 2.
        self.buttons: tuple[int, ...] = (0,)
        if "FIRE" in game.get_action_meanings():
            self.buttons = (0, 1, 2)
        self.lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a game."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.lives = self.game.ale.lives()
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and, if it cost a life, those that follow by themselves; their rewards count."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        total = float(reward)
        left = self.game.ale.lives()
        # At 0 lives the game is over by itself.
        lost_a_life = 0 < left < self.lives
        for button in self.buttons:
            if terminated or truncated or not lost_a_life:
                break
            observation, reward, terminated, truncated, info = self.env.step(button)
            total += float(reward)
        self.lives = left
        return observation, total, terminated, truncated, info
