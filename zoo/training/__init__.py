"""Training that made the pretrained agents and that `surefoot train` does not have."""
