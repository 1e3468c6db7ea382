"""The Atari engine equals Gymnasium's, frame by frame; slots are independent; Freeway's ceiling is read off its ROM."""

import sys

import numpy as np
import pytest
import torch

from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.envs.atari.emulators import CUT, ENDED, Board, Cartridge, Emulators
from surefoot.play.envs.atari.env import Atari, AtariEnvironment, count_rewards, slot_seeds
from surefoot.play.envs.atari.processes import Fleet
from surefoot.play.envs.atari.screens import AT_ONCE, Shrinker
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import TASKS, get_task
from toys import from_callable, off

pytest.importorskip("ale_py")
import freeway_rom

CPU = torch.device("cpu")
PONG = TASKS["pong-full"].cartridge
ROUND = TASKS["pong-1r"].cartridge
FREEWAY = TASKS["freeway"].cartridge


# --- equal to Gymnasium's -------------------------------------------------------------------------------------------


def reference(cartridge):
    """Gymnasium's own NoFrameskip-v0 behind its own preprocessing."""
    pytest.importorskip("cv2")
    from ale_py.env import AtariEnv
    from gymnasium.wrappers import AtariPreprocessing

    return AtariPreprocessing(
        AtariEnv(
            cartridge.rom,
            difficulty=cartridge.difficulty,
            frameskip=1,
            repeat_action_probability=0.25,
            max_num_frames_per_episode=108_000,
        )
    )


def ties(frames, others):
    """Whether two pictures differ by one level at most, and how many of their pixels differ."""
    difference = np.abs(frames.astype(int) - others.astype(int))
    assert difference.max() <= 1
    return int((difference > 0).sum())


@pytest.mark.parametrize(("cartridge", "seeds", "limit"), [(PONG, [2**61 + 5, None], None), (FREEWAY, [3, 4], 250)])
def test_whole_episodes_are_gymnasiums(cartridge, seeds, limit):
    """Same seed, same actions: rewards and endings agree, and pixels but for exact ties between two levels of grey.

    An unseeded reset goes on with the same random numbers. Ties: OpenCV adds rounded weights, we add exact ones; of
    Pong's pixels it rounds none the other way, of Freeway's about one in five thousand.
    """
    theirs, ours, random = reference(cartridge), AtariEnvironment(cartridge), np.random.default_rng(0)
    for seed in seeds:
        frame, own = theirs.reset(seed=seed)[0], ours.reset(seed=seed)[0]
        odd, steps, over, action = ties(frame, own), 0, False, 0
        while not over:
            if steps % 5 == 0:
                action = int(random.integers(cartridge.moves))
            frame, reward, ended, cut, _ = theirs.step(action)
            own, *facts, _ = ours.step(action)
            steps += 1
            over = ended or cut or steps == limit
            assert facts == [reward, ended, cut or steps == limit]
            odd += ties(frame, own)
        assert odd == 0 if cartridge is PONG else odd < 1e-3 * steps * 84 * 84
        assert steps == limit or steps > 700


def test_a_planted_slip_of_the_random_numbers_is_found():
    """The comparison sees an engine that sticks to other frames than Gymnasium's."""
    theirs, ours = reference(PONG), AtariEnvironment(PONG)
    theirs.reset(seed=1)
    ours.reset(seed=1)
    next(ours.emulators.machines[0].sticks)
    pairs = [(theirs.step(action)[0], ours.step(action)[0]) for action in [2, 3, 2, 2, 3, 3] * 5]
    assert any((one != other).any() for one, other in pairs)


def test_shrinking_is_the_exact_mean_over_areas():
    count, shrunk = AT_ONCE + 3, Shrinker()
    screens = np.random.default_rng(0).integers(0, 256, (count, 210, 160)).astype(np.uint8)
    rows = np.repeat(screens.astype(float), 2, axis=1).reshape(count, 84, 5, 160).mean(axis=2)
    means = np.repeat(rows, 21, axis=2).reshape(count, 84, 84, 40).mean(axis=3)
    assert np.array_equal(shrunk(screens), np.rint(np.round(means, 9)))
    for level in (0, 1, 127, 255):
        assert (shrunk(np.full((1, 210, 160), level, np.uint8)) == level).all()


def test_shrinking_differs_from_opencv_at_ties_only():
    cv2 = pytest.importorskip("cv2")
    screens = np.random.default_rng(0).integers(0, 256, (40, 210, 160)).astype(np.uint8)
    theirs = np.stack([cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA) for screen in screens])
    rows = np.repeat(screens.astype(float), 2, axis=1).reshape(40, 84, 5, 160).mean(axis=2)
    means = np.repeat(rows, 21, axis=2).reshape(40, 84, 84, 40).mean(axis=3)
    tie = np.abs(means % 1 - 0.5) < 1e-9
    assert 0 < tie.mean() < 0.02
    assert np.array_equal(Shrinker()(screens)[~tie], theirs[~tie])


# --- rules ----------------------------------------------------------------------------------------------------------


def test_a_round_of_pong_ends_with_its_first_goal():
    environment = AtariEnvironment(ROUND)
    for episode in range(3):
        environment.reset(seed=7 if episode == 0 else None)
        rewards, over = [], False
        while not over:
            _, reward, over, cut, _ = environment.step(0)
            rewards.append(reward)
            assert not cut
        assert sum(rewards) == 0
        assert 20 < len(rewards) < 200
    assert count_rewards(ROUND, np.array([-1.0, 0.0, 1.0])).tolist() == [0, 0, 1]
    assert count_rewards(PONG, np.array([-1.0, 0.0, 1.0])).tolist() == [-1, 0, 1]


def test_the_limit_cuts_and_does_not_end():
    environment = AtariEnvironment(Cartridge("freeway", 3, limit=4, difficulty=1))
    environment.reset(seed=0)
    assert [environment.step(1)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]
    board = Board(1)
    emulators = Emulators([Cartridge("pong", 6, limit=3)], [1], board)
    emulators.reset()
    board.active[:] = 1
    for expected in (0, 0, CUT):
        emulators.step_on()
        assert board.over[0] == expected
    assert emulators.machines[0].steps == 0
    assert ENDED != CUT


def test_actions_stick_one_frame_in_four():
    board = Board(1)
    emulators = Emulators([FREEWAY], [5], board)
    emulators.reset()
    machine, stuck = emulators.machines[0], 0
    for frame in range(3_000):
        before, action = machine.last, (machine.last + 1) % 3
        machine.advance_frame(action)
        stuck += machine.last == before
        assert machine.last in (before, action), frame
    assert not off(stuck, 3_000, 0.25)
    assert off(stuck, 3_000, 0.3)


def test_episodes_begin_after_one_to_thirty_frames():
    board = Board(1)
    emulators = Emulators([ROUND], [0], board)
    emulators.reset()
    board.active[:] = 1
    frames = []
    for _ in range(60):
        emulators.restart_active()
        frames.append(emulators.machines[0].emulator.getEpisodeFrameNumber())
    assert set(frames) <= set(range(1, 31))
    assert len(set(frames)) > 15


# --- slots ----------------------------------------------------------------------------------------------------------


def record(processes, steps=90):
    """Frames, rewards and endings of a few slots, over several episodes; slots 0 and 1 are dropped later."""
    game = Atari(ROUND, 3, np.random.SeedSequence(0), CPU, processes)
    seen, endings = [game.reset()], 0
    for _ in range(steps):
        observation, reward, over = game.step(torch.tensor([2, 3, 4]))
        seen += [observation, reward, over]
        if over.any():
            assert torch.equal(game.restart_rows(over), observation[over])
            endings += int(over.sum())
    assert endings >= 3
    game.keep_rows(torch.tensor([2]))
    seen.append(game.step(torch.tensor([0]))[0])
    game.close()
    return seen


def test_processes_change_nothing():
    alone, together = record(1), record(2)
    assert len(alone) == len(together)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert alone[0].dtype == torch.float32
    assert 0 <= float(alone[0].min()) < float(alone[0].max()) <= 1
    assert not torch.equal(alone[0][0], alone[-1][0])


def test_emulators_used_before_play_as_new_ones():
    """The same seeds after other episodes on the same emulators: the same frames."""
    first = record(1)
    other = Atari(ROUND, 3, np.random.SeedSequence(9), CPU)
    other.reset()
    for _ in range(25):
        other.step(torch.tensor([3, 5, 1]))
    other.close()
    assert all(torch.equal(one, two) for one, two in zip(first, record(1), strict=True))


def begun(cartridge, action, frames):
    """Everything an emulator holds at the first step of an episode, after so many frames of an action before it."""
    emulators = Emulators([cartridge], [11], Board(1))
    emulators.reset()
    machine = emulators.machines[0]
    for _ in range(frames):
        machine.advance_frame(action)
    # The random numbers of the new episode, in which the first actions stick.
    machine.random = np.random.Generator(np.random.PCG64(4))
    machine.sticks = iter([True] * 3 + [False] * 97)
    machine.start_episode()
    state = machine.emulator.cloneState().__getstate__()
    emulators.close()
    return state


@pytest.mark.parametrize("cartridge", [FREEWAY, PONG], ids=["freeway", "pong"])
def test_an_episode_begins_in_the_same_state_whatever_was_played_before(cartridge):
    """Equal random numbers give equal states: the last action is forgotten, and so is the number of frames."""
    first = begun(cartridge, 0, 0)
    for action, frames in [(0, 10), (0, 11), (1, 40), (2, 40), (1, 400), (1, 401)]:
        assert begun(cartridge, action, frames) == first, (action, frames)


def test_slots_do_not_share_their_randomness():
    seeds = slot_seeds(np.random.SeedSequence(0), 300)
    assert len(set(seeds)) == 300
    assert max(seeds) > 2**60
    assert not set(seeds) & set(slot_seeds(np.random.SeedSequence(1), 300))


def test_a_dead_process_is_told():
    fleet = Fleet([ROUND, ROUND], [0, 1], processes=2)
    fleet.helpers[0].kill()
    fleet.helpers[0].wait()
    with pytest.raises(InputError, match="process with emulators has ended"):
        fleet.run_command("reset")
    fleet.close()
    fleet.close()


def test_ale_py_is_asked_for_in_words(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(InputError, match=r"Atari needs ale-py.*pip install '.\[atari\]'"):
        get_task("freeway")
    with pytest.raises(InputError, match="Atari needs ale-py"):
        Fleet([ROUND], [0])


def up(_):
    return 1


def test_blocks_of_freeway_are_the_same_with_any_number_of_workers():
    task = get_task("freeway")
    policy = from_callable(up, shape=task.spaces.shape, n_actions=3)
    plan = Plan(task=task, policy=policy, noise=Noise.of(0.1), n_episodes=3, n_envs=1, episodes_per_env=1)
    one, two = play(plan), play(plan, workers=2)
    assert np.array_equal(one.returns, two.returns)
    assert (one.lengths == 250).all()
    assert set(one.returns) <= {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}


@pytest.mark.parametrize("name", ["pong-1r", "pong-full", "freeway"])
def test_tasks_agree_with_their_cartridges(name):
    task = get_task(name)
    environment = task.backend.open()
    assert environment.observation_space.shape == task.spaces.shape == (84, 84)
    assert environment.action_space.n == task.spaces.n_actions == task.cartridge.moves
    assert task.scoring.max_steps == task.cartridge.limit
    assert task.spaces.n_stack == 4
    assert task.box == ((0.0,), (1.0,))


# --- Freeway's ceiling ----------------------------------------------------------------------------------------------

# The chicken's height (0x8E, and 0x8F for the second player's), what holds it up (0xEA), and the score (0xE7).
HEIGHT, HELD, SCORE = 0x8E, 0xEA, 0xE7
START_HEIGHT, GOAL = 6, 0xB2


def test_freeways_program_raises_the_chicken_by_one_a_frame_and_scores_at_the_top():
    """What docs/design.md uses: see "The ceiling of Freeway" there."""
    program = freeway_rom.cartridge()
    found = freeway_rom.instructions(program)
    assert not any(opcode in freeway_rom.POINTED or opcode == 0x6C for opcode, _ in found.values())
    exact, indexed = freeway_rom.writers(found, HEIGHT)
    assert exact == []
    own = [place for place, operand in indexed if operand == HEIGHT]
    # Raised in one place, lowered in one, set to 6 in three.
    assert own == [0xFB2B, 0xFD0F, 0xFD28, 0xFD32, 0xFDBA]
    assert found[0xFD0F][0] == 0xF6
    assert found[0xFD28][0] == 0xD6
    for place in (0xFB29, 0xFD30, 0xFDB8):
        assert found[place] == (0xA9, START_HEIGHT)
    # All other indexed stores that begin at or below it stop short of it: X is at most 5 at 0xF818, 7 below 0x40.
    below = {operand for place, operand in indexed if operand < HEIGHT}
    assert below == {0x00, 0x06, 0x10, 0x15, 0x17, 0x19, 0x20, 0x88}
    assert found[0xF802] == (0xA2, 0x00)  # 0x00: clears the memory when the machine is switched on
    assert found[0xF80F] == (0xA2, 0x05)  # 0x88: six colours
    # The score is written by the addition at the goal and by clearing memory.
    assert [place for place, operand in freeway_rom.writers(found, SCORE)[1] if operand == SCORE] == [0xFD1C]
    assert program[0xFD0F - 0xF800 : 0xFD34 - 0xF800].hex(" ") == (
        "f6 8e b4 8e c0 b2 90 0e f8 b5 e7 69 00 95 e7 d8 a9 8f 95 ea d0 0b 4a b0 0c d6 8e b5 8e c9 06 b0 04 a9 06 95 8e"
    )


def test_freeways_stack_stays_away_from_height_and_score():
    """Calls and pushes write memory too: downwards from 0xFF, where the start-up loop leaves the stack."""
    program = freeway_rom.cartridge()
    found = freeway_rom.instructions(program)
    opcodes = [opcode for opcode, _ in found.values()]
    assert 0x00 not in opcodes  # no interrupt by software; the machine has no others
    assert [place for place, (opcode, _) in found.items() if opcode == 0x9A] == [0xF808]
    assert program[0xF802 - 0xF800 : 0xF80C - 0xF800].hex(" ") == "a2 00 a9 00 95 00 9a e8 d0 fa"
    # The one push is taken back three instructions later, with no branch between.
    assert opcodes.count(0x48) == 1
    assert program[0xFB0D - 0xF800 : 0xFB15 - 0xF800].hex(" ") == "48 29 03 69 02 95 17 68"
    start = freeway_rom.START + int.from_bytes(program[-4:-2], "little") % len(program)
    assert freeway_rom.deepest(found, start) == 5
    assert 0xFF - 5 > SCORE > HEIGHT


def test_freeways_chicken_is_never_faster():
    """The same seen from outside: over frames of play the height grows by one at most and points fall at the top."""
    board = Board(1)
    emulators = Emulators([Cartridge("freeway", 3, limit=10**6, difficulty=0)], [0], board)
    emulators.reset()
    machine, points, last_point = emulators.machines[0], 0, -10_000
    height = int(machine.emulator.getRAM()[HEIGHT - 0x80])
    assert height == START_HEIGHT
    for frame in range(1_500):
        reward = machine.advance_frame(1)
        now = int(machine.emulator.getRAM()[HEIGHT - 0x80])
        assert now <= height + 1
        if reward:
            assert (reward, height, now) == (1, GOAL - 1, START_HEIGHT)
            assert frame - last_point >= GOAL - START_HEIGHT
            points, last_point = points + 1, frame
        height = now
    assert points >= 3


def test_the_ceiling_of_freeway_follows():
    task = get_task("freeway")
    frames, per_point = 4 * task.scoring.max_steps, GOAL - START_HEIGHT
    assert task.scoring.ceiling == frames // per_point == 5
