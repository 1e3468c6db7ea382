"""A run in shares: each job of an array runs some of the blocks, and merging makes one run of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import is_count, read_json
from surefoot.runs.folder import RUN_FOLDER_SCHEMA, RunFolder

if TYPE_CHECKING:
    from surefoot.play.plan import Plan
    from surefoot.play.rollout import Progress
    from surefoot.play.workers import Workers


@dataclass(frozen=True)
class Share:
    """Every ``of``-th block, beginning with number ``part``, which counts from 1."""

    part: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.part <= self.of:
            raise InputError(f"a share I/N needs 1 <= I <= N, got {self.part}/{self.of}")

    @property
    def suffix(self) -> str:
        """What its directory is called, after the name of the run."""
        return f"-blocks{self.part}of{self.of}"

    def blocks(self, n_blocks: int) -> range:
        """Return the numbers of its blocks."""
        if self.of > n_blocks:
            raise InputError(f"the run has {n_blocks} blocks and cannot be divided into {self.of} shares")
        return range(self.part - 1, n_blocks, self.of)


def run_share(
    plan: Plan, share: Share, folder: Path, *, workers: int | Workers = 1, progress: Progress | None = None
) -> int:
    """Run the blocks of a share that are not in ``folder`` yet; return how many episodes the share has."""
    from surefoot.play.rollout import blocks_in_order  # merging needs no torch

    among = share.blocks(plan.n_blocks)
    with RunFolder(folder, plan.setup()).opened() as store:
        if store.record.exists():
            raise InputError(f"{folder} holds the whole run, not a share of it; choose another out=")
        # Blocks of other shares, which may have been run here before, do not count as done in this one.
        done = {index: block for index, block in store.finished().items() if index in among}
        blocks = blocks_in_order(
            plan, workers=workers, among=among, done=done, on_block=store.save_block, progress=progress
        )
        return sum(map(len, blocks))


def merged_name(folders: Sequence[Path]) -> Path | None:
    """Return where the run belongs that these shares are of, if their names say so."""
    places = set()
    for folder in folders:
        name = re.sub(r"-blocks\d+of\d+$", "", folder.name)
        # Whoever has no such ending is no share; merging must not write into it.
        if name == folder.name:
            return None
        places.add(folder.parent / name)
    if len(places) > 1:
        return None
    return places.pop()


def merge(folders: Sequence[Path], out: Path) -> int:
    """Make one run of shares, in ``out``; return its number of episodes."""
    names = _list_configurations(folders[0])
    for folder in folders[1:]:
        differing = sorted({*_list_configurations(folder)} ^ {*names})
        if differing:
            raise InputError(
                f"{folders[0]} and {folder} are shares of different runs: only one has {differing[0] or 'it'}"
            )
    n_episodes = 0
    for name in names:
        n_episodes += _merge_configuration([folder / name for folder in folders], out / name)
    return n_episodes


def _list_configurations(folder: Path) -> list[str]:
    """Return the directories inside that hold a share: this one itself, or those of an attack's configurations."""
    if (folder / "setup.json").exists():
        return [""]
    found = sorted(path.parent.name for path in folder.glob("*/setup.json"))
    if not found:
        raise InputError(f"{folder} holds no share of a run; give the directories of shares that were run")
    return found


def _merge_configuration(folders: Sequence[Path], out: Path) -> int:
    setup = _read_common_setup(folders)
    paths = _find_blocks(folders, setup)
    blocks = [_load_block(paths[index], index, setup) for index in range(len(paths))]
    episodes = Episodes.concat(blocks)
    with RunFolder(out, setup).opened() as store:
        # The same shares may be merged once more; other episodes are not overwritten.
        if store.finished() or (store.record.exists() and Episodes.load(store.record).sha256 != episodes.sha256):
            raise InputError(f"{out} holds episodes of its own; choose another out=")
        store.finish(episodes)
    return len(episodes)


def _read_common_setup(folders: Sequence[Path]) -> dict[str, Any]:
    common = read_json(folders[0] / "setup.json")
    for folder in folders[1:]:
        setup = read_json(folder / "setup.json")
        differences = []
        for key in sorted({*setup, *common}):
            if setup.get(key) != common.get(key):
                differences.append(f"{key} {common.get(key)} and {setup.get(key)}")
        if differences:
            what = ", ".join(differences[:3])
            raise InputError(f"{folders[0]} and {folder} are shares of different runs ({what})")
    schema = common.pop("schema", None)
    if schema != RUN_FOLDER_SCHEMA or not is_count(common.get("n_planned")) or not is_count(common.get("block_size")):
        raise InputError(f"{folders[0] / 'setup.json'} is not the setup of a share")
    return common


def _find_blocks(folders: Sequence[Path], setup: Mapping[str, Any]) -> dict[int, Path]:
    """Return the file of every block of the run: all of them, each once."""
    n_blocks = -(-setup["n_planned"] // setup["block_size"])
    found: dict[int, Path] = {}
    for folder in folders:
        if (folder / "episodes.npz").exists():
            raise InputError(f"{folder} holds a whole run, not a share")
        for path in sorted((folder / "blocks").glob("*.npz")):
            # isdecimal alone would take digits of other scripts, which no block is named with.
            if not (path.stem.isascii() and path.stem.isdecimal()) or int(path.stem) >= n_blocks:
                raise InputError(f"{path} is not one of the run's {n_blocks} blocks")
            index = int(path.stem)
            if index in found:
                raise InputError(f"block {index} is in {found[index].parents[1]} and in {folder}: give one of them")
            found[index] = path
    missing = sorted(set(range(n_blocks)) - set(found))
    if missing:
        some = ", ".join(map(str, missing[:5]))
        if len(missing) > 5:
            some += ", ..."
        raise InputError(f"{len(missing)} of {n_blocks} blocks are missing ({some}); run their shares, then merge")
    return found


def _load_block(path: Path, index: int, setup: Mapping[str, Any]) -> Episodes:
    block = Episodes.load(path)
    expected = min(setup["block_size"], setup["n_planned"] - index * setup["block_size"])
    if block.setup != setup or len(block) != expected:
        raise InputError(f"{path} is not block {index} of its run: other setup, or not {expected} episodes; delete it")
    return block
