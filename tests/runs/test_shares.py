"""Shares of a run: merged they are the run, byte for byte; overlaps, gaps and other runs are refused."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS, get_task
from surefoot.runs.folder import RunFolder
from surefoot.runs.shares import Share, merge, merged_name, run_share
from toys import balancer, plan_for

PLAN = plan_for(get_task("cartpole-1"), balancer(), 0.5, 13, seed=3, n_envs=2, episodes_per_env=1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Three shares of seven blocks; the last block has one episode."""
    folder = tmp_path_factory.mktemp("shared")
    for part in (1, 2, 3):
        share = Share(part, 3)
        run_share(PLAN, share, folder / f"run{share.suffix}")
    return folder


@pytest.fixture
def shares(shared, tmp_path):
    shutil.copytree(shared, tmp_path / "shares")
    return sorted((tmp_path / "shares").iterdir())


def test_merged_they_are_the_run_byte_for_byte(shares, tmp_path):
    with RunFolder(tmp_path / "whole", PLAN.setup()).opened() as store:
        store.recorded(PLAN)
    assert merge(shares[::-1], tmp_path / "merged") == 13
    for name in ("episodes.npz", "setup.json"):
        assert (tmp_path / "merged" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "merged").iterdir()) == ["episodes.npz", "setup.json"]
    assert merge(shares, tmp_path / "merged") == 13  # and again


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_every_block_is_in_one_share(of):
    shares = [Share(part, of).blocks(7) for part in range(1, of + 1)]
    assert sorted(index for blocks in shares for index in blocks) == list(range(7))


@pytest.mark.parametrize(("part", "of"), [(0, 3), (4, 3), (1, 0)])
def test_shares_that_are_none(part, of):
    with pytest.raises(InputError, match=f"a share I/N needs 1 <= I <= N, got {part}/{of}"):
        Share(part, of)
    with pytest.raises(InputError, match="the run has 7 blocks and cannot be divided into 8 shares"):
        Share(1, 8).blocks(7)


def test_a_share_resumes_and_does_not_touch_a_finished_run(shares, tmp_path):
    kept = {path.name: path.stat().st_mtime_ns for path in (shares[0] / "blocks").iterdir()}
    (shares[0] / "blocks" / "000003.npz").unlink()
    said = []
    assert run_share(PLAN, Share(1, 3), shares[0], progress=lambda done, of: said.append((done, of))) == 5
    assert said == [(3, 5), (5, 5)]
    stamps = {path.name: path.stat().st_mtime_ns for path in (shares[0] / "blocks").iterdir()}
    assert [name for name in stamps if stamps[name] != kept[name]] == ["000003.npz"]
    merge(shares, tmp_path / "merged")
    with pytest.raises(InputError, match="holds the whole run, not a share of it"):
        run_share(PLAN, Share(1, 3), tmp_path / "merged")


def test_blocks_of_another_share_are_not_counted_as_done(shares):
    said = []
    assert run_share(PLAN, Share(2, 3), shares[0], progress=lambda done, of: said.append((done, of))) == 4
    assert said == [(0, 4), (2, 4), (4, 4)]


def test_gaps_are_refused(shares, tmp_path):
    with pytest.raises(InputError, match=r"3 of 7 blocks are missing \(0, 3, 6\); run their shares, then merge"):
        merge(shares[1:], tmp_path / "merged")
    (shares[1] / "blocks" / "000004.npz").unlink()
    with pytest.raises(InputError, match=r"1 of 7 blocks are missing \(4\)"):
        merge(shares, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_overlaps_are_refused(shares, tmp_path):
    with pytest.raises(InputError, match=r"block 0 is in .*1of3 and in .*1of3: give one of them"):
        merge([*shares, shares[0]], tmp_path / "merged")
    shutil.copy(shares[0] / "blocks" / "000003.npz", shares[1] / "blocks")
    with pytest.raises(InputError, match=r"block 3 is in .*1of3 and in .*2of3"):
        merge(shares, tmp_path / "merged")


def test_other_setups_are_refused(shares, tmp_path):
    shutil.rmtree(shares[2])
    run_share(replace(PLAN, seed=4), Share(3, 3), shares[2])
    with pytest.raises(InputError, match=r"1of3 and .*3of3 are shares of different runs \(seed 3 and 4\)"):
        merge(shares, tmp_path / "merged")
    shutil.copy(shares[0] / "setup.json", shares[2])  # and if the setup lies about its blocks
    with pytest.raises(InputError, match=r"000002\.npz is not block 2 of its run"):
        merge(shares, tmp_path / "merged")


@pytest.mark.parametrize("change", [{"schema": 2}, {"n_planned": None}, {"block_size": 0}, {"n_planned": "13"}])
def test_a_setup_that_says_no_blocks_is_none_of_a_share(shares, tmp_path, change):
    """In all shares, so that they do not differ."""
    for share in shares:
        write_json(share / "setup.json", read_json(share / "setup.json") | change)
    with pytest.raises(InputError, match=r"setup\.json is not the setup of a share"):
        merge(shares, tmp_path / "merged")


@pytest.mark.parametrize("which", [0, 2])
def test_a_setup_with_one_key_more_is_another(shares, tmp_path, which):
    """Whichever share has it: what one setup alone says is compared, too."""
    path = shares[which] / "setup.json"
    write_json(path, {**read_json(path), "luck": "0"})
    with pytest.raises(InputError, match=r"are shares of different runs \(luck (None and 0|0 and None)\)"):
        merge(shares, tmp_path / "merged")


@pytest.mark.parametrize("change", ["fewer", "renamed", "stranger", "late"])
def test_planted_blocks_that_are_others_are_refused(shares, tmp_path, change):
    """Exactly the planned episodes: a block that lost a bad episode, or stands at another's place, is no block."""
    path = shares[0] / "blocks" / "000003.npz"
    block = Episodes.load(path)
    match = r"000003\.npz is not block 3 of its run: other setup, or not 2 episodes"
    if change == "fewer":
        block[:1].save(path)
    elif change == "renamed":
        path.rename(path.with_name("000009.npz"))
        match = r"000009\.npz is not one of the run's 7 blocks"
    elif change == "stranger":
        replace(block, metadata={**block.metadata, "agent": "another"}).save(path)
    else:
        shutil.copy(shares[0] / "blocks" / "000006.npz", path)
    with pytest.raises(InputError, match=match):
        merge(shares, tmp_path / "merged")


def test_a_place_that_has_episodes_already_is_refused(shares, tmp_path):
    with pytest.raises(InputError, match=r"1of3 holds episodes of its own; choose another out="):
        merge(shares, shares[0])
    merge(shares, tmp_path / "merged")
    with pytest.raises(InputError, match="merged holds a whole run, not a share"):
        merge([tmp_path / "merged", *shares], tmp_path / "other")
    record = Episodes.load(tmp_path / "merged" / "episodes.npz")
    replace(record, returns=np.zeros(13)).save(tmp_path / "merged" / "episodes.npz")
    with pytest.raises(InputError, match="merged holds episodes of its own"):
        merge(shares, tmp_path / "merged")
    with pytest.raises(InputError, match="holds no share of a run; give the directories of shares that were run"):
        merge([tmp_path / "merged" / "none"], tmp_path / "other")


def test_names(tmp_path):
    assert merged_name([tmp_path / f"run-blocks{part}of2" for part in (1, 2)]) == tmp_path / "run"
    assert merged_name([tmp_path / "run-blocks1of2", tmp_path / "other-blocks2of2"]) is None
    assert merged_name([tmp_path / "run-blocks1of2", tmp_path / "x" / "run-blocks2of2"]) is None
    assert merged_name([tmp_path / "run"]) is None


@pytest.fixture
def small_blocks(monkeypatch):
    small = replace(TASKS["cartpole-1"], blocks=Blocks(n_envs=30, episodes_per_env=1))
    monkeypatch.setitem(TASKS, "cartpole-1", small)


@pytest.mark.usefixtures("small_blocks")
def test_the_commands_from_shares_to_a_certificate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    certify = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "40", "--quiet", "--workers", "1"]
    for part in ("1/2", "2/2"):
        assert cli.main([*certify, "--blocks", part]) == 0
    assert "Share 2/2: 10 episodes in runs" in capsys.readouterr().out
    shares = sorted(str(path) for path in (tmp_path / "runs").iterdir())
    assert cli.main(["merge", *shares]) == 0
    name = shares[0].removesuffix("-blocks1of2")
    assert f"40 episodes of 2 shares are in {name}." in capsys.readouterr().out
    stamp = (tmp_path / name / "episodes.npz").stat().st_mtime_ns
    assert cli.main(certify) == 0
    assert (tmp_path / name / "episodes.npz").stat().st_mtime_ns == stamp
    assert cli.main([*certify, "--out", "whole"]) == 0
    for file in ("episodes.npz", "certificate.json"):
        assert (tmp_path / name / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.usefixtures("small_blocks")
def test_the_shares_of_an_attack(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    attack = ["attack", "cartpole-1", "--method", "random", "--budgets", "0.2,0.4", "--episodes", "40", "--quiet"]
    attack += ["--workers", "1"]
    for part in ("1/2", "2/2"):
        assert cli.main([*attack, "--blocks", part, "--out", f"share{part[0]}"]) == 0
    assert cli.main(["merge", "share1", "share2", "--out", "merged", "--json"]) == 0
    assert '"n_episodes": 120' in capsys.readouterr().out  # 40 for each budget, and the same 40 without attack
    assert cli.main([*attack, "--out", "whole"]) == 0
    for inner in ("unattacked", "B0.2", "B0.4"):
        one, other = (tmp_path / folder / inner / "episodes.npz" for folder in ("merged", "whole"))
        assert one.read_bytes() == other.read_bytes()
    shutil.rmtree(tmp_path / "share2" / "B0.4")
    with pytest.raises(InputError, match=r"share1 and .*share2 are shares of different runs: only one has B0\.4"):
        merge([tmp_path / "share1", tmp_path / "share2"], tmp_path / "other")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--blocks", "3"], "must look like 3/8"),
        (["--blocks", "1/1", "--require", "100@0.2"], "--require cannot be combined with --blocks: a share is not"),
        (["--blocks", "1/1", "--max-episodes", "99"], "--max-episodes cannot be combined with --blocks"),
    ],
)
def test_wrong_calls(tmp_path, capsys, options, message):
    assert cli.main(["certify", "cartpole-1", "--episodes", "10", "--out", str(tmp_path / "x"), *options]) == 2
    assert message in capsys.readouterr().err
    assert cli.main(["merge", str(tmp_path)]) == 2
    assert "give --out DIR" in capsys.readouterr().err
