"""A run directory: blocks as they are finished, then all episodes in one file; a killed run resumes there."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import PARTIAL, delete_partial_files, read_json, write_json
from surefoot.noise import Noise
from surefoot.play.independence import check_independence
from surefoot.provenance import sha256

if TYPE_CHECKING:
    from surefoot.play.plan import Plan
    from surefoot.play.rollout import Progress
    from surefoot.play.workers import Workers

RUN_FOLDER_SCHEMA = 1
PATIENCE = 2.5  # seconds: workers of a killed run may hold its lock until they notice, about a second later


class RunFolder:
    """``setup.json`` says what is run; ``blocks/`` grows; ``episodes.npz`` holds all episodes in the end."""

    def __init__(self, folder: Path, setup: Mapping[str, Any]) -> None:
        self.folder = folder
        self._lock_file: os.stat_result | None = None  # while this process has the directory
        # As it will be read back: a tuple is written as a list, and must not look like another setup.
        self.setup: dict[str, Any] = json.loads(json.dumps({"schema": RUN_FOLDER_SCHEMA, **setup}))

    @property
    def record(self) -> Path:
        """Path of the file with all episodes, which exists once every block was run."""
        return self.folder / "episodes.npz"

    @contextmanager
    def opened(self) -> Iterator[RunFolder]:
        """Claim the directory for this process, after checking that it has the same setup or is empty."""
        is_new = not self.folder.exists()
        lock = FileLock(self._lock_path, mode=0o644)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=PATIENCE)
        except Timeout as error:
            raise InputError(f"{self.folder} is in use by another run; choose another out=") from error
        except OSError as error:
            raise InputError(f"cannot use {self.folder} for the run: {error.strerror}; choose another out=") from error
        self._lock_file = self._lock_path.stat()
        try:
            self._claim_folder()
            try:
                yield self
            except BaseException:
                # A directory in which nothing was saved can be used with another setup.
                if not self.record.exists() and not (self.folder / "blocks").exists():
                    (self.folder / "setup.json").unlink(missing_ok=True)
                raise
        finally:
            # While it is still locked: whoever waits for a lock file that is deleted locks a new one instead.
            if self._is_there():
                self._lock_path.unlink(missing_ok=True)
            lock.release()
            self._lock_file = None
            if is_new:
                with suppress(OSError):  # not empty: something was saved
                    self.folder.rmdir()

    def finished(self) -> dict[int, Episodes]:
        """Return the blocks that are already on disk."""
        paths = sorted((self.folder / "blocks").glob("*.npz"))
        # All names before the first file: blocks may be large, and a strange one stops the run anyway.
        for path in paths:
            if not (path.stem.isascii() and path.stem.isdecimal()):
                raise InputError(f"{path} is not a block of this run; delete it, or choose another out=")
        return {int(path.stem): Episodes.load(path) for path in paths}

    def save_block(self, index: int, block: Episodes) -> None:
        """Put one finished block on disk."""
        self._check_there()
        block.save(self.folder / "blocks" / f"{index:06d}.npz")

    def finish(self, episodes: Episodes) -> None:
        """Write all episodes, if they look independent, then delete the blocks they came in."""
        check_independence(episodes)
        self._check_there()
        episodes.save(self.record)
        self._drop_blocks()

    def _drop_blocks(self) -> None:
        # With the blocks go half-written files of a killed run.
        shutil.rmtree(self.folder / "blocks", ignore_errors=True)

    def recorded(self, plan: Plan, *, workers: int | Workers = 1, progress: Progress | None = None) -> Episodes:
        """Return the episodes of the plan that are in this directory, after running those that are missing."""
        from surefoot.play.rollout import play  # reports read directories where torch is not installed

        if self.record.exists():
            episodes = Episodes.load(self.record)
            self._drop_blocks()  # a run may have been killed while it deleted them
            return episodes
        episodes = play(plan, workers=workers, done=self.finished(), on_block=self.save_block, progress=progress)
        self.finish(episodes)
        return episodes

    @property
    def _lock_path(self) -> Path:
        return self.folder / ".lock"

    def _is_there(self) -> bool:
        """Return whether the lock file is still the one that this process has locked."""
        with suppress(OSError):
            return self._lock_file is not None and os.path.samestat(self._lock_file, self._lock_path.lstat())
        return False

    def _check_there(self) -> None:
        if not self._is_there() or not (self.folder / "setup.json").exists():
            raise InputError(f"{self.folder} was deleted or replaced during the run; nothing more is written there")

    def _claim_folder(self) -> None:
        path = self.folder / "setup.json"
        if not path.exists():
            for entry in self.folder.iterdir():
                if entry.name != ".lock" and not (entry.name.startswith(".") and entry.name.endswith(PARTIAL)):
                    raise InputError(f"{self.folder} is not empty and holds no run; choose another out=")
            delete_partial_files(self.folder)
            write_json(path, self.setup)
            return
        delete_partial_files(self.folder)
        delete_partial_files(self.folder / "blocks")
        there = read_json(path)
        differences = []
        for key in sorted({*there, *self.setup}):
            old = there.get(key)
            new = self.setup.get(key)
            if old != new:
                differences.append(f"{key} {_shorten_hash(old)} there, {_shorten_hash(new)} now")
        if differences:
            what = ", ".join(differences[:3])
            raise InputError(f"{self.folder} holds a run with another setup ({what}); choose another out=")


def _shorten_hash(value: Any) -> str:
    """Return a value of a setup as a message shows it, a hash by its first digits."""
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}$", r"\1", str(value))


def check_no_run(folder: Path) -> None:
    """Reject the directory of a run of episodes for a result of another kind, which would overwrite its run.json."""
    if (folder / "setup.json").exists():
        raise InputError(f"{folder} holds a run of its own; choose another out=")


def check_reusable(plan: Plan, folder: Path) -> None:
    """Reject a directory with episodes of an agent without a hash: nothing says whether they are of this agent."""
    if not plan.policy.sha256 and (folder / "setup.json").exists():
        raise InputError(
            f"{folder} may hold episodes of another {plan.policy.name}: agents that are code have no hash to compare; "
            "delete it, or choose another out="
        )


def kept_episodes(folder: Path) -> int:
    """Return how many episodes of the runs in a directory would not be run again."""
    total = 0
    for path in folder.rglob("setup.json"):
        setup = read_json(path)
        size = int(setup["block_size"])
        planned = int(setup["n_planned"])
        if (path.parent / "episodes.npz").exists():
            total += planned
            continue
        for block in (path.parent / "blocks").glob("[0-9]*.npz"):
            # The last block of a run may be shorter than the others.
            total += min(size, planned - int(block.stem) * size)
    return total


def noise_name(noise: Noise) -> str:
    """Return what the name of a directory says of the noise: every sigma, a hash in place of many."""
    shown = f"{noise.sigma:g}"
    if noise.features is not None:
        shown = "_".join(f"{sigma:g}" for sigma in noise.features[:8])
        if len(noise.features) > 8:
            shown += f"_{sha256(repr(noise.features).encode())[:12]}"
    if noise.action_sigma > 0:
        shown += f"-action-sigma{noise.action_sigma:g}"
    return shown


def configuration_name(budget: float, lambda_: float | None) -> str:
    """Return the name of the directory of one attack configuration."""
    if lambda_ is None:
        return f"B{budget:g}"
    return f"B{budget:g}-lambda{lambda_:g}"
