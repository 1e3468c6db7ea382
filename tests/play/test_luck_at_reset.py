"""What is known of an episode at reset is read, and nothing is written."""

import torch

from surefoot.play.reset_luck import read_luck


def test_a_function_of_luck_changes_nothing_of_the_episode():
    """Else episodes would be another environment's, and the attack would not see what the agent sees."""
    observations = torch.tensor([[0.5, 1.0], [0.25, 2.0]], dtype=torch.float64)
    infos = [{"seed": 1}, {"seed": 2}]
    assert read_luck("misbehaving:scribbling", observations, infos).tolist() == [[0.5], [0.25]]
    assert observations.tolist() == [[0.5, 1.0], [0.25, 2.0]]
    assert infos == [{"seed": 1}, {"seed": 2}]
