"""Processes: order does not matter, errors come through, a dead worker is an error and never a hang."""

import faulthandler
import math
import multiprocessing
import os
import signal
import threading
import time
import warnings

import pytest

from surefoot.compute import usable_cores
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.workers import DeadWorkerError, Processes, run_apart
from toys import fixed, from_callable, pay_steps, plan_for, toy_task

TASK = toy_task(fixed(2), pay_steps, ceiling=2.0)


def square(plan, index):
    time.sleep(0.02 * (index % 3))
    return plan * index**2


def all_gone(seconds=10):
    end = time.monotonic() + seconds
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.05)
    return not multiprocessing.active_children()


def test_every_index_is_worked_on_once():
    found = list(Processes(2).map_unordered(square, 2, range(11)))
    assert sorted(found) == [(k, 2 * k**2) for k in range(11)]
    assert list(Processes(2).map_unordered(square, 2, [])) == []


def test_fresh_interpreters_do_the_same():
    found = list(Processes(2).map_unordered(math.pow, 2.0, [1, 2, 3], gpu=0.5))
    assert sorted(found) == [(1, 2.0), (2, 4.0), (3, 8.0)]
    assert list(Processes(2, isolated=True).map_unordered(math.pow, 2.0, [4], gpu=1.0)) == [(4, 16.0)]
    assert all_gone()


def test_threads_beside_do_not_matter():
    """Python 3.12 warns when a process with threads forks, and warnings are errors here."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert len(list(Processes(2).map_unordered(square, 1, [1, 2, 3]))) == 3
    finally:
        stop.set()
        thread.join()


def test_any_callable_can_be_a_policy():
    secret = 1
    policy = from_callable(lambda seen: secret, shape=(1,), n_actions=2)
    assert (
        play(
            Plan(task=TASK, policy=policy, noise=Noise.of(0.1), n_episodes=6, n_envs=1, episodes_per_env=1), workers=2
        ).returns.tolist()
        == [2] * 6
    )


def dying(seen):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_an_error():
    plan = plan_for(TASK, from_callable(dying, shape=(1,), n_actions=2), 0.1, 8, n_envs=1, episodes_per_env=1)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"a worker process died .*run again with a smaller workers="):
        play(plan, workers=2)
    assert time.monotonic() - began < 20
    assert all_gone()


HERE = os.getpid()


def leaving(plan, index):
    assert os.getpid() != HERE  # the tests would end as if all had passed
    os._exit(plan)


def crashing(plan, index):
    assert os.getpid() != HERE
    faulthandler.disable()  # pytest's would print all threads
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize("n", [1, 2])
def test_a_worker_that_ends_by_itself_is_an_error(n):
    """One isolated worker is another process too: this one goes on."""
    for code in (0, 3):
        with pytest.raises(DeadWorkerError, match=rf"a worker process ended by itself \(exit code {code}\).*os\._exit"):
            list(Processes(n, isolated=True).map_unordered(leaving, code, [1, 2, 3]))
    with pytest.raises(DeadWorkerError, match=r"a worker process crashed \(SIGSEGV\)"):
        list(Processes(n, isolated=True).map_unordered(crashing, 0, [1, 2, 3]))
    with pytest.raises(DeadWorkerError, match=r"^baking: a worker process ended by itself"):
        run_apart("baking", leaving, 0)
    assert all_gone()


def process_of(plan, index):
    return os.getpid()


def test_isolated_blocks_run_in_one_other_process():
    """The twin without isolation runs them here."""
    found = {pid for _, pid in Processes(1, isolated=True).map_unordered(process_of, 0, [1, 2, 3])}
    assert len(found) == 1
    assert os.getpid() not in found
    assert {pid for _, pid in Processes(1).map_unordered(process_of, 0, [1, 2])} == {os.getpid()}
    assert run_apart("asking", process_of, 0) != os.getpid()


class OddError(Exception):
    """Cannot be sent: what it is made of is not what it keeps."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


def odd(plan, index):
    raise OddError(1, 2)


def test_an_error_that_cannot_be_sent_comes_through_by_name():
    with pytest.raises(RuntimeError, match="OddError: 1 and 2"):
        list(Processes(1, isolated=True).map_unordered(odd, 0, [1]))


def test_an_error_in_a_worker_comes_through():
    plan = plan_for(TASK, from_callable(lambda seen: 7, shape=(1,), n_actions=2), 0.1, 8, n_envs=1, episodes_per_env=1)
    with pytest.raises(InputError, match="must choose an action from 0 to 1, got 7"):
        play(plan, workers=2)


def test_who_stops_listening_stops_the_workers():
    results = Processes(2).map_unordered(square, 1, range(1_000))
    next(results)
    results.close()
    assert all_gone()


def test_other_children_of_the_caller_are_left_alone():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        other.start()
    try:
        list(Processes(2).map_unordered(square, 1, [1, 2, 3]))
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_there_is_a_core():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
