"""Training that made the pretrained agents and that ``surefoot train`` does not have, one file each.

``q_learning``  Atari agents from rewards, in minutes on a GPU (preset ``fast``)
``student``     Atari agents that see through strong noise, taught by an agent that sees clean frames
``polish``      a search for the last layer of any agent with fully connected layers
``atari``       what the two trainings of Atari agents share
"""
