"""Training that made the pretrained agents and that ``surefoot train`` does not have, one file each.

``q_learning``  Atari agents from rewards, in minutes on a GPU (preset ``fast``)
``student``     Atari agents that see through strong noise, taught by an agent that sees clean frames
``fine_tune``   PPO that improves a student by its own return
``captured``    SB3's DQN and DDPG with the gradient step as a CUDA graph (``zoo/build.py --device cuda``)
``polish``      a search for the last layer of any agent with fully connected layers
``atari``       what the three trainings of Atari agents share
"""
