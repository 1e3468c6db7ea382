"""Deploy a certified agent: the same policy with unpredictable noise, called like SB3's predict."""

import gymnasium
import numpy as np

import surefoot

AGENT = "cartpole-5-s0.2"
SIGMA = 0.2
STEPS = 200


def main(episodes: int = 20) -> float:
    environment = gymnasium.make("CartPole-v1", max_episode_steps=STEPS)
    agent = surefoot.smooth(AGENT, sigma=SIGMA)  # no seed: the noise comes from the operating system
    returns = []
    for _ in range(episodes):
        observation, _ = environment.reset()
        agent.reset()  # a new episode: clear the frame stack
        total, over = 0.0, False
        while not over:
            action, _ = agent.predict(observation)
            observation, reward, terminated, truncated, _ = environment.step(int(action))
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    environment.close()
    mean = float(np.mean(returns))
    print(f"{episodes} episodes, mean return {mean:.1f}")
    return mean


if __name__ == "__main__":
    main()
