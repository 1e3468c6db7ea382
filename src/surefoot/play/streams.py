"""Which random numbers: every seed stream of Surefoot, listed once, and none shared by two purposes.

A seed stream is a seed and a key, a tuple of whole numbers. numpy appends the key to the seed, filled up to 128 bits,
in words of 32 bits and hashes the whole. So two streams are equal only if both seed and key are, as long as seeds stay
below 2^128 and every part of a key below 2^32; ``seed_sequence`` rejects all others. The keys in use, by length:

    0   ()                            the seed as it is: Gymnasium's own generators
    1   (0,)                          the noise of ``smooth(seed=...)``, the first child of its seed
    1   (WRAPPER,)                    the noise that ``NoisyObservation`` adds in training
    1   (ACTUATOR,)                   the noise of ``ActuatorNoise(seed=...)``
    2   (block, part)                 episodes of a certificate
    3+  (purpose, ..., block, part)   episodes for any other purpose, ``Purpose`` in front
    2+  (purpose, ..., 0, 6)          where the seeds of vector simulators begin, see ``simulator_seed``
    4   (DRAWS, draw, block, part)    a certificate with several draws of the noise per seed: the environment's seeds
                                      are those of draw 0, which is no draw, all else that of draw 1, 2, and so on
    3   (TRAINING, number, part)      training: the number is an Atari game's first step, or PPO's iteration
    3   (DIRECTION, episode, 0)       directions of the constant-direction attack

Of keys with three or more parts the first is the purpose, and keys of one purpose all have the same length.
"""

from __future__ import annotations

from enum import IntEnum, unique

import numpy as np
import torch
from torch import Tensor

from surefoot.errors import InputError

WRAPPER = 0x5F00
ACTUATOR = 0x5F01
# A prime with room for the rows of a block below 2^31, and that divided by the golden ratio.
SIMULATOR_SEEDS = 2_146_435_069
GOLDEN_STEP = 1_326_569_827


@unique
class Purpose(IntEnum):
    """What the random numbers are for; the first part of every key but a certificate's and the wrapper's."""

    VALIDATION = 1  # (VALIDATION, round): choosing weights while training
    SELECTION = 2  # choosing among training runs
    BASELINE_SEARCH = 3  # (BASELINE_SEARCH, candidate): choosing the open-loop baseline
    BASELINE = 4  # measuring it
    ATTACK = 5  # attacked episodes
    PILOT = 6  # planning: how many episodes, which sigma
    TRAINING = 7  # not of a plan: see training_seeds
    DIRECTION = 8  # not of a plan: see direction_seeds
    TAPED = 9  # one episode to look at
    VALUE_GAPS = 10  # what an attack measures of an agent before it begins: units of its values, harmful pushes
    VERIFICATION = 11  # fresh episodes of a verification
    ATTACK_TRAINING = 12  # (ATTACK_TRAINING, iteration): what an attacker learns from
    ATTACK_SELECTION = 13  # (ATTACK_SELECTION, round): choosing an attacker
    DRAWS = 14  # (DRAWS, draw): see draw_seeds


# How many numbers of its own a plan's purpose has behind its first part.
_NUMBERS: dict[int, int] = {
    Purpose.VALIDATION: 1,
    Purpose.SELECTION: 0,
    Purpose.BASELINE_SEARCH: 1,
    Purpose.BASELINE: 0,
    Purpose.ATTACK: 0,
    Purpose.PILOT: 0,
    Purpose.TAPED: 0,
    Purpose.VALUE_GAPS: 0,
    Purpose.VERIFICATION: 0,
    Purpose.ATTACK_TRAINING: 1,
    Purpose.ATTACK_SELECTION: 1,
    Purpose.DRAWS: 1,
}


def check_purpose(purpose: tuple[int, ...]) -> None:
    """Reject a purpose whose episodes could share random numbers with another's; () is a certificate's."""
    if purpose and len(purpose) - 1 != _NUMBERS.get(purpose[0]):
        # Of one length: with other numbers behind it, a purpose could have the key of another of its blocks.
        listed = ", ".join(f"{Purpose(one).name} and {n} more" for one, n in _NUMBERS.items())
        raise InputError(f"purpose must be () or one of those in surefoot.play.streams ({listed}), got {purpose}")


def seed_sequence(seed: int | None, *key: int) -> np.random.SeedSequence:
    """Return the seed stream of a seed (None: from the operating system) and a key."""
    if seed is not None and not 0 <= seed < 2**128:
        raise InputError(f"seed must be at least 0 and below 2**128, got {seed}")
    for part in key:
        # A larger part would take two words, as two parts do: keys of two purposes could agree.
        if not 0 <= part < 2**32:
            raise InputError(f"every part of a key must be at least 0 and below 2**32, got {key}")
    return np.random.SeedSequence(seed, spawn_key=tuple(map(int, key)))


def block_seeds(seed: int, purpose: tuple[int, ...], block: int) -> tuple[np.random.SeedSequence, ...]:
    """Return the streams of one block of a plan: environment, noise of observations, attacker, noise of actions."""
    check_purpose(purpose)
    # Parts 3 and 4 are those of ``policy_seeds``, 6 is that of ``simulator_seed``.
    return tuple(seed_sequence(seed, *purpose, block, part) for part in (0, 1, 2, 5))


def draw_seeds(seed: int, draw: int, block: int) -> tuple[np.random.SeedSequence, ...]:
    """Return the streams of one draw of the noise, 1, 2, ..., for the seeds of a block, as ``block_seeds`` does.

    The environment's is the same for all draws. The others are those of the draw alone, and shared by no two.
    """
    if draw < 1:
        raise ValueError(f"draws count from 1, got {draw}")
    environment, *_ = block_seeds(seed, (Purpose.DRAWS, 0), block)
    _, *others = block_seeds(seed, (Purpose.DRAWS, draw), block)
    return environment, *others


def policy_seeds(seed: int, purpose: tuple[int, ...], block: int) -> tuple[np.random.SeedSequence, int]:
    """Return the stream of a stochastic policy in one block, and 32 bits for torch that no other block has."""
    check_purpose(purpose)
    # One start for all blocks and the block's number: 32 random bits of each block would agree among 10^5 blocks.
    first = int(seed_sequence(seed, *purpose, 0, 4).generate_state(1)[0])
    return seed_sequence(seed, *purpose, block, 3), (first + block) % 2**32


def simulator_seed(seeds: np.random.SeedSequence) -> int:
    """Return the seed of a vector simulator that runs a block, of 31 bits: JAX drops all above 32.

    So few random bits of each block would agree among 10^5 blocks. Hence one random start for all blocks of a purpose,
    and steps of the golden ratio, which keep any number of blocks apart as evenly as can be. Blocks of one run with at
    most 10^7 episodes are further apart than a block has rows, so that none shares a row with another where the
    simulator seeds its rows with seed, seed + 1, and so on.

    Args:
        seeds: The environment's stream of a block, or of an iteration of training.
    """
    purpose = seeds.spawn_key[:-2]
    block = 0
    if len(seeds.spawn_key) >= 2:
        block = seeds.spawn_key[-2]
    assert isinstance(seeds.entropy, int)
    first = int(seed_sequence(seeds.entropy, *purpose, 0, 6).generate_state(1)[0])
    return (first + block * GOLDEN_STEP) % SIMULATOR_SEEDS


def training_seeds(seed: int, number: int) -> tuple[np.random.SeedSequence, ...]:
    """Return the streams of a training run: environments, acting, learning, first weights.

    ``number`` is the step at which a run on Atari games was resumed, or an iteration of PPO.
    """
    return tuple(seed_sequence(seed, Purpose.TRAINING, number, part) for part in range(4))


def direction_seeds(seed: int, episode: int) -> np.random.SeedSequence:
    """Return the stream of an attack's constant direction in one episode."""
    return seed_sequence(seed, Purpose.DIRECTION, episode, 0)


class Stream:
    """Random numbers from one seed stream.

    It does not know its seed: an attacker, who is given a stream of its own, could derive that of the noise from it.

    On the CPU numpy draws them: torch's CPU generator keeps only 32 bits of its seed, so that among 10^4 blocks two
    would share their noise with probability 1 in 100. On CUDA torch's Philox uses all 64.
    """

    def __init__(self, seeds: np.random.SeedSequence, device: torch.device) -> None:
        self.device = device
        # Only the state is copied: a bit generator keeps the seed sequence that it was made of.
        drawing = np.random.SFC64(0)
        drawing.state = np.random.SFC64(seeds).state
        self._numpy = np.random.Generator(drawing)
        self.generator = torch.Generator(device)
        self.generator.manual_seed(int(seeds.generate_state(1, np.uint64)[0]) >> 1)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Return float32 standard normal draws."""
        if self.device.type == "cpu":
            return torch.from_numpy(self._numpy.standard_normal(shape, dtype=np.float32))
        return torch.randn(shape, generator=self.generator, device=self.device)

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> Tensor:
        """Return float64 draws between ``low`` and ``high``."""
        if self.device.type == "cpu":
            return torch.from_numpy(self._numpy.uniform(low, high, shape))
        draws = torch.rand(shape, generator=self.generator, device=self.device, dtype=torch.float64)
        return low + (high - low) * draws


class DeployedStream(Stream):
    """Normal draws like those of a deployed agent: nobody can know them before, and they cannot be repeated.

    They have all digits of double precision. Every call begins with numbers of the operating system, so that code that
    runs in the same process finds nothing in the stream that tells what comes.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(np.random.SeedSequence(), device)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Return float64 standard normal draws."""
        if self.device.type == "cpu":
            return torch.from_numpy(np.random.Generator(np.random.SFC64()).standard_normal(shape))
        self.generator.seed()
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=torch.float64)
