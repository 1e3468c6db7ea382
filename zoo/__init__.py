"""The pretrained agents: weights and model cards, and the scripts that make them."""
