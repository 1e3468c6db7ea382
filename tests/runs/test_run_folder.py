"""A run's folder: killed and resumed it gives what one go gives; no other folder is touched."""

import os
import resource
import shutil
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import killing
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.runs.folder import RunFolder
from toys import balancer, constant, fixed, pay_steps, plan_for, toy_task

PLAN = plan_for(get_task("cartpole-1"), balancer(), 0.5, 230, seed=3, n_envs=20, episodes_per_env=2)


def run(folder, plan=PLAN, **more):
    with RunFolder(folder, plan.facts()).opened() as store:
        episodes = play(plan, done=store.finished(), on_block=store.save_block, **more)
        store.finish(episodes)
        return episodes


def killed(folder, after):
    """Return how a user's process ended that was killed after so many episodes."""

    def progress(done, of):
        if done >= after:
            os.kill(os.getpid(), signal.SIGKILL)

    return killing.ended(killing.forked(lambda: run(folder, workers=2, progress=progress)))


def test_killed_and_resumed_is_one_go(tmp_path):
    assert killed(tmp_path / "run", 100) == -signal.SIGKILL
    assert (tmp_path / "run" / "blocks").is_dir()
    done = sorted((tmp_path / "run" / "blocks").glob("*.npz"))
    assert 2 <= len(done) < PLAN.n_blocks
    stamps = {path.name: path.stat().st_mtime_ns for path in done}
    said = []
    resumed = run(tmp_path / "run", workers=2, progress=lambda d, of: said.append((d, stamps)))
    assert said[0][0] == sum(40 for _ in done)  # what was played is not played again
    whole = play(PLAN)
    assert resumed.returns.tobytes() == whole.returns.tobytes()
    assert resumed.lengths.tobytes() == whole.lengths.tobytes()
    assert resumed.setup == whole.setup
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["episodes.npz", "setup.json"]
    assert Episodes.load(tmp_path / "run" / "episodes.npz").returns.tobytes() == whole.returns.tobytes()


TOY = plan_for(toy_task(fixed(3), pay_steps, floor=0.0, ceiling=3.0), constant(), 0.5, 5, n_envs=3, episodes_per_env=1)


def test_a_run_killed_at_any_of_its_writes_resumes_to_the_same_bytes(tmp_path):
    """At every single thing that it does to its folder: each file opened, half written, renamed or deleted.

    The rerun replaces blocks that are lost, so they are counted before it: killed one change later, a run must not
    have fewer.
    """

    def run(folder, plan):
        with RunFolder(folder, plan.facts()).opened() as store:
            store.recorded(plan)

    run(tmp_path / "whole", TOY)
    expected = killing.contents(tmp_path / "whole")
    assert set(expected) == {"setup.json", "episodes.npz"}
    most_kept = 0
    for at in range(200):
        folder = tmp_path / f"killed-{at}"
        died = killing.killed(lambda folder=folder: run(folder, TOY), folder, at)
        kept = kept_blocks(folder, TOY)
        assert kept >= most_kept, f"a block was lost at change {at}"
        most_kept = kept
        if at % 6 == 0:  # and once more while it resumes
            killing.killed(lambda folder=folder: run(folder, TOY), folder, at // 2)
        run(folder, TOY)
        assert killing.contents(folder) == expected, at
        assert not (folder / "blocks").exists(), at
        if not died:
            break
    assert not died
    assert at > 20
    assert most_kept == TOY.n_blocks


def kept_blocks(folder, plan):
    """Return how many blocks are there and can be read, in one file or each in its own."""
    if (folder / "episodes.npz").exists():
        return -(-len(Episodes.load(folder / "episodes.npz")) // plan.block_size)
    return sum(len(Episodes.load(path)) > 0 for path in (folder / "blocks").glob("[0-9]*.npz"))


def test_a_lock_is_not_opened_through_a_link_and_nothing_is_cut_off(tmp_path):
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"cannot use .*run for the run: .*; choose another out="):
        run(tmp_path / "run", TOY)
    assert (tmp_path / "precious").read_text() == "keep me"


def test_whoever_waits_for_a_lock_that_is_deleted_locks_a_new_one(tmp_path, monkeypatch):
    """Otherwise a third process, which finds no lock file, would run in the same folder at the same time."""
    monkeypatch.setattr("surefoot.runs.folder.PATIENCE", 0.8)
    entered, third = [], []

    def wait():
        with RunFolder(tmp_path, {}).opened() as store:
            entered.append(store._is_there())
            try:
                with RunFolder(tmp_path, {}).opened():
                    third.append("ran")
            except InputError:
                third.append("refused")

    with RunFolder(tmp_path, {}).opened():
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        assert not entered
    waiting.join()
    assert (entered, third) == ([True], ["refused"])
    assert not (tmp_path / ".lock").exists()


def test_a_run_whose_folder_was_replaced_leaves_the_lock_of_the_other_run(tmp_path):
    """Without it a third run would go into the same folder."""
    replaced, other = (RunFolder(tmp_path / "run", {}).opened() for _ in range(2))
    replaced.__enter__()
    shutil.rmtree(tmp_path / "run")
    with other:
        replaced.__exit__(None, None, None)
        assert (tmp_path / "run" / ".lock").exists()
    assert not (tmp_path / "run" / ".lock").exists()


def test_the_lock_of_a_killed_run_does_not_block(tmp_path):
    def claim_and_die():
        with RunFolder(tmp_path, {}).opened():
            os.kill(os.getpid(), signal.SIGKILL)

    assert killing.ended(killing.forked(claim_and_die)) == -signal.SIGKILL
    assert (tmp_path / ".lock").exists()
    began = time.monotonic()
    with RunFolder(tmp_path, {}).opened():
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("what", ["folder", "setup"])
def test_a_folder_that_is_deleted_during_the_run_is_an_error(tmp_path, what):
    def progress(done, of):
        if done == 3:
            shutil.rmtree(tmp_path / "run") if what == "folder" else (tmp_path / "run" / "setup.json").unlink()

    with pytest.raises(InputError, match="was deleted or replaced during the run"):
        run(tmp_path / "run", TOY, progress=progress)
    assert not (tmp_path / "run" / "episodes.npz").exists()


def test_a_refused_run_leaves_no_folder(tmp_path):
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "new", TOY.facts()).opened():
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_strange_file_among_the_blocks_is_named(tmp_path):
    with RunFolder(tmp_path, TOY.facts()).opened() as store:
        store.save_block(0, play(replace(TOY, n_episodes=3)))
        (tmp_path / "blocks" / "notes.npz").touch()
    with pytest.raises(InputError, match=r"notes\.npz is not a block of this run"):
        run(tmp_path, TOY)


def test_finished_blocks_are_taken_from_the_disk(tmp_path):
    """The twin: a block that was altered on disk shows in the result, so it was indeed not played again."""
    with RunFolder(tmp_path, PLAN.facts()).opened() as store:
        whole = play(PLAN, done=store.finished(), on_block=store.save_block)
    block = Episodes.load(tmp_path / "blocks" / "000001.npz")
    replace(block, returns=np.full(40, 123.0)).save(tmp_path / "blocks" / "000001.npz")
    (tmp_path / "blocks" / "000002.npz").unlink()
    again = run(tmp_path)
    assert (again.returns[40:80] == 123).all()
    assert (np.delete(again.returns, slice(40, 80)) == np.delete(whole.returns, slice(40, 80))).all()


def test_dependent_episodes_are_not_written(tmp_path):
    """Blocks of a sequential run, or merged shares, that nobody has looked at together before."""
    episodes = play(PLAN)
    twice = replace(episodes, returns=np.tile(np.arange(40.0), 6)[:230])
    with RunFolder(tmp_path / "run", PLAN.facts()).opened() as store:
        with pytest.raises(InputError, match="block 1 repeats block 0"):
            store.finish(twice)
        assert not store.record.exists()
        store.finish(episodes)
        assert store.record.exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seed": 4}, "another setup .seed 3 there, 4 now.; choose another out="),
        ({"noise": Noise.of(0.4)}, "another setup"),
        ({"n_episodes": 240}, "another setup .n_planned 230 there, 240 now."),
        ({"n_envs": 10}, "another setup"),
        ({"policy": replace(balancer(), sha256="other")}, "another setup .agent_sha256"),
    ],
)
def test_a_folder_of_another_setup_is_refused(tmp_path, change, match):
    plan = replace(PLAN, n_episodes=230)
    with RunFolder(tmp_path, {**plan.facts(), "sigma": plan.noise.sigma}).opened():
        pass
    before = (tmp_path / "setup.json").read_bytes()
    other = replace(plan, **change)
    with (
        pytest.raises(InputError, match=match),
        RunFolder(tmp_path, {**other.facts(), "sigma": other.noise.sigma}).opened(),
    ):
        pass
    assert (tmp_path / "setup.json").read_bytes() == before


@pytest.mark.parametrize("there", [{"discount": 0.9}, {"stochastic": True}, {"wrappers": ["w:W"]}])
def test_a_folder_whose_setup_says_more_is_refused(tmp_path, there):
    """What is left out of a setup where it is not used: the episodes there are of another kind all the same."""
    with RunFolder(tmp_path, {**TOY.facts(), **there}).opened() as store:
        store.save_block(0, play(TOY)[:3])
    (name,) = there
    with pytest.raises(InputError, match=rf"another setup \({name} .* there, None now\)"):
        run(tmp_path, TOY)
    assert (tmp_path / "blocks" / "000000.npz").exists()


@pytest.mark.parametrize("mistake", [InputError("wrong floor"), KeyboardInterrupt()])
def test_a_folder_in_which_nothing_was_saved_is_free_again(tmp_path, mistake):
    with pytest.raises(type(mistake)), RunFolder(tmp_path, {"floor": 1.0}).opened():
        raise mistake
    assert list(tmp_path.iterdir()) == []
    with RunFolder(tmp_path, {"floor": 0.0}).opened() as store:
        assert store.finished() == {}


def test_a_folder_in_which_a_block_was_saved_stays_claimed(tmp_path):
    def stop(done, of):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, progress=stop)
    assert (tmp_path / "setup.json").exists()


def test_somebody_elses_claim_is_not_lifted(tmp_path):
    with RunFolder(tmp_path, {"floor": 1.0}).opened():
        pass
    with pytest.raises(InputError, match="another setup"), RunFolder(tmp_path, {"floor": 0.0}).opened():
        pass
    assert (tmp_path / "setup.json").exists()


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty and holds no run; choose another out="):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_in_use_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("surefoot.runs.folder.PATIENCE", 0.1)
    with (
        RunFolder(tmp_path, {}).opened(),
        pytest.raises(InputError, match="is in use by another run; choose another out="),
        RunFolder(tmp_path, {}).opened(),
    ):
        pass
    with RunFolder(tmp_path, {}).opened():
        pass  # free again


def test_a_file_in_the_folders_place_is_refused(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match=r"cannot use .*run for the run: (File exists|Not a directory)"):
        run(tmp_path / "run")


def test_a_truncated_block_is_named(tmp_path):
    with RunFolder(tmp_path, PLAN.facts()).opened() as store:
        play(PLAN, done=store.finished(), on_block=store.save_block)
    block = tmp_path / "blocks" / "000002.npz"
    block.write_bytes(block.read_bytes()[:200])
    with pytest.raises(InputError, match=r"blocks/000002\.npz is not a readable \.npz file .*may be truncated"):
        run(tmp_path)


def test_a_truncated_setup_is_named(tmp_path):
    run(tmp_path)
    (tmp_path / "setup.json").write_text('{"schema": 1,')
    with pytest.raises(InputError, match=r"setup\.json is not a readable JSON file"):
        run(tmp_path)


def test_a_really_full_disk(tmp_path):
    """The same without a patched module: the kernel refuses files over 600 bytes to another process."""

    def refused():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
        with pytest.raises(InputError, match="File too large; nothing was left half-written"):
            run(tmp_path)

    assert killing.ended(killing.forked(refused)) == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["blocks", "setup.json"]


def test_orphaned_workers_die_and_let_go_of_the_folder(tmp_path):
    """Killed from outside in the middle of a block, with two workers: they end, and the run goes on at once."""
    pids = tmp_path / "pids"
    pids.mkdir()
    parent = killing.forked(lambda: run(tmp_path / "run", sleepy(pids), workers=2))
    _until(lambda: len(list(pids.iterdir())) == 2, 30)
    workers = [int(path.name) for path in pids.iterdir()]
    assert all(killing.alive(pid) for pid in workers)
    os.kill(parent, signal.SIGKILL)
    killing.ended(parent)
    with RunFolder(tmp_path / "run", sleepy(pids).facts()).opened():
        pass
    _until(lambda: not any(killing.alive(pid) for pid in workers), 10)
    assert not any(killing.alive(pid) for pid in workers)


class _Sleepy(type(constant().network)):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def forward(self, history):
        (self.folder / str(os.getpid())).touch()
        time.sleep(60)
        return super().forward(history)


def sleepy(folder):
    policy = replace(constant(), network=_Sleepy(folder))
    return plan_for(toy_task(fixed(2), pay_steps, ceiling=2.0), policy, 0.1, 8, n_envs=2, episodes_per_env=1)


def _until(happened, seconds):
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
