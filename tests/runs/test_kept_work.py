"""Finished work is never deleted before it is written elsewhere: every write is made to fail, and all is still there.

Of processes that are killed, not refused, ``test_run_folder.py`` asks the same.
"""

import errno
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

import killing
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.play.rollout import play
from surefoot.proof.comparison import Question
from surefoot.proof.query import Query
from surefoot.proof.stopping import StoppingRule
from surefoot.runs import attacked
from surefoot.runs.attacked import AttackGrid, attacked_run
from surefoot.runs.certified import certified_run
from surefoot.runs.compared import compared_run
from surefoot.runs.folder import RunFolder
from surefoot.runs.shares import Share, merge, run_share
from toys import constant, geometric, pay_steps, plan_for, toy_task

PLAN = plan_for(
    toy_task(geometric(0.2, 9), pay_steps, floor=0.0, ceiling=9.0),
    replace(constant(), sha256="known"),
    0.5,
    7,
    n_envs=2,
    episodes_per_env=1,
)
TRUTH = play(PLAN)


@pytest.fixture
def full_disk(monkeypatch):
    """Return what makes the disk full at the n-th write, counted from 0, and says how many writes there were."""
    real = os.fsync

    def fill(at):
        writes = []

        def fsync(handle):
            writes.append(handle)
            if len(writes) > at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(handle)

        monkeypatch.setattr("surefoot.files.os.fsync", fsync)
        return writes

    yield fill
    monkeypatch.setattr("surefoot.files.os.fsync", real)


def kept(folder):
    """Return the returns that a run directory has, by the number of their block; one that is not the truth is none."""
    size = PLAN.block_size
    found = {}
    for path in sorted((folder / "blocks").glob("*.npz")):
        found[int(path.stem)] = Episodes.load(path).returns
    if (folder / "episodes.npz").exists():
        whole = Episodes.load(folder / "episodes.npz").returns
        found |= {first // size: whole[first : first + size] for first in range(0, len(whole), size)}
    return found


def assert_true(found, truth=TRUTH):
    for number, returns in found.items():
        first = number * PLAN.block_size
        assert returns.tolist() == truth.returns[first : first + PLAN.block_size].tolist(), number


def recorded(folder):
    with RunFolder(folder, PLAN.setup()).opened() as store:
        return store.recorded(PLAN)


def test_a_write_that_fails_costs_no_block(tmp_path, full_disk):
    """The first write is setup.json, then there is one for each of four blocks, then that of all episodes."""
    for at, expected in enumerate([0, 0, 1, 2, 3, 4]):
        folder = tmp_path / f"full-{at}"
        full_disk(at)
        with pytest.raises(InputError, match="No space left on device"):
            recorded(folder)
        found = kept(folder)
        assert len(found) == expected, at
        assert_true(found)
    full_disk(99)
    recorded(tmp_path / "whole")
    assert len(kept(tmp_path / "whole")) == PLAN.n_blocks
    assert not (tmp_path / "whole" / "blocks").exists()


def test_a_record_that_cannot_be_read_costs_no_block(tmp_path):
    with RunFolder(tmp_path, PLAN.setup()).opened() as store:
        play(PLAN, on_block=store.save_block)
    (tmp_path / "episodes.npz").write_bytes(b"half a rec")
    with pytest.raises(InputError, match=r"episodes\.npz"):
        recorded(tmp_path)
    assert len(list((tmp_path / "blocks").glob("*.npz"))) == PLAN.n_blocks


@pytest.mark.parametrize("goal", [None, StoppingRule(budget=0.5, tolerance=0.001)])
def test_a_certified_run_that_cannot_be_written_keeps_its_episodes(tmp_path, full_disk, goal):
    """At whichever write it fails, what was there one write earlier still is."""
    before = 0
    for at in range(40):
        folder = tmp_path / f"full-{at}"
        writes = full_disk(at)
        try:
            certified_run(PLAN, Query(budgets=(0.0, 0.5)), folder, goal=goal, figure=False)
        except InputError as error:
            assert "No space left" in str(error)  # noqa: PT017 - at the last one it succeeds
        found = kept(folder)
        assert_true(found)
        assert len(found) >= before, at
        before = len(found)
        if len(writes) <= at:
            break
    assert before == PLAN.n_blocks
    assert at > 6


def test_a_merge_that_cannot_be_written_leaves_all_shares_as_they_were(tmp_path, full_disk):
    for part in (1, 2):
        run_share(PLAN, Share(part, 2), tmp_path / f"share{part}")
    shares = [tmp_path / "share1", tmp_path / "share2"]
    before = [killing.contents(share) for share in shares]
    assert sum(len(one) for one in before) == PLAN.n_blocks + 2
    for at in range(2):  # setup.json, all episodes
        full_disk(at)
        with pytest.raises(InputError, match="No space left on device"):
            merge(shares, tmp_path / "merged")
        assert [killing.contents(share) for share in shares] == before
    full_disk(2)
    assert merge(shares, tmp_path / "merged") == 7
    assert_true(kept(tmp_path / "merged"))
    assert [killing.contents(share) for share in shares] == before


def test_shares_of_another_run_are_not_merged_over_a_run(tmp_path):
    """Not over its record, nor over blocks of a run that is not finished."""
    for part in (1, 2):
        run_share(PLAN, Share(part, 2), tmp_path / f"share{part}")
    shares = [tmp_path / "share1", tmp_path / "share2"]
    run_share(PLAN, Share(1, 2), tmp_path / "begun")
    before = killing.contents(tmp_path / "begun")
    with pytest.raises(InputError, match="begun holds episodes of its own"):
        merge(shares, tmp_path / "begun")
    assert killing.contents(tmp_path / "begun") == before


def test_an_attack_that_cannot_be_written_keeps_the_configurations_that_are_done(tmp_path, full_disk, monkeypatch):
    monkeypatch.setattr(attacked, "record_replay", lambda *_, **__: None)
    grid = AttackGrid(base=PLAN, budgets=(0.1, 0.2), method="random")
    for at in (5, 6, 11):  # the record of the first configuration, the setup of the second, the record of the second
        folder = tmp_path / f"full-{at}"
        full_disk(at)
        with pytest.raises(InputError, match="No space left on device"):
            attacked_run(grid, folder)
        first, second = (kept(folder / name) for name in ("B0.1", "B0.2"))
        assert len(first) == PLAN.n_blocks
        assert len(second) == (PLAN.n_blocks if at == 11 else 0)


@pytest.mark.parametrize(
    ("anytime", "writes"),
    [
        (True, (10, 11, 12, 13)),  # two setups and two times four blocks, then both records, the comparison, its page
        (False, (11, 12, 13)),  # two setups, A's four blocks and record, B's four blocks; then its record and the rest
    ],
)
def test_a_comparison_that_cannot_be_written_keeps_the_episodes_of_both(tmp_path, full_disk, anytime, writes):
    plans = {"A": PLAN, "B": replace(PLAN, seed=1)}
    for at in writes:
        folder = tmp_path / f"full-{at}"
        full_disk(at)
        with pytest.raises(InputError, match="No space left on device"):
            compared_run(plans, Question(budgets=(0.1,)), folder, anytime=anytime)
        assert [len(kept(folder / side)) for side in "AB"] == [PLAN.n_blocks] * 2
        assert_true(kept(folder / "A"))
        assert_true(kept(folder / "B"), play(plans["B"]))


def test_blocks_of_a_run_in_progress_are_not_forgotten_next_to_a_record(tmp_path):
    """A sequential run that goes on has both: its record, and newer blocks."""
    from surefoot.runs.sequential import blocks_on_disk

    with RunFolder(tmp_path, PLAN.setup()).opened() as store:
        store.finish(TRUTH[:4])
        store.save_block(3, TRUTH[6:])
        found = blocks_on_disk(PLAN, store)
    assert sorted(found) == [0, 1, 3]
    assert np.concatenate([found[number].returns for number in (0, 1, 3)]).tolist() == [
        *TRUTH.returns[:4],
        *TRUTH.returns[6:],
    ]


def test_planted_a_folder_that_drops_its_blocks_first_is_noticed(tmp_path, full_disk, monkeypatch):
    def finish(self, episodes):
        shutil.rmtree(self.folder / "blocks")
        episodes.save(self.record)

    monkeypatch.setattr(RunFolder, "finish", finish)
    with pytest.raises(AssertionError):
        test_a_write_that_fails_costs_no_block(tmp_path, full_disk)
