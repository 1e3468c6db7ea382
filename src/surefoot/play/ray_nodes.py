"""The nodes of a Ray cluster: whether one answers, and how many blocks they can run."""

from __future__ import annotations

import math
import os
import socket
import time
from typing import Any

import ray
from ray._private.services import canonicalize_bootstrap_address_or_die

from surefoot.errors import InputError
from surefoot.play.workers import LOOK

ANSWER = 5.0  # seconds that a cluster has to answer
PATIENCE = 60.0  # seconds without any node that could run a block
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # what a gRPC client says first
SETTINGS = 4  # the type of the frame that a gRPC server answers with


def find_cluster(address: str) -> str:
    """Return host and port of a cluster that answers; Ray itself would wait for minutes."""
    if "://" in address:
        raise InputError(
            f"the address of a Ray cluster is HOST:PORT or auto, got {address}; run the command on a node of the "
            "cluster, or with 'ray job submit'"
        )
    try:
        found = canonicalize_bootstrap_address_or_die(address)
        host, _, port = found.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER) as connection:
            connection.settimeout(ANSWER)
            encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
            connection.sendall(b"" if encrypted else GREETING)
            if not encrypted and connection.recv(4)[3:] != bytes([SETTINGS]):
                raise ConnectionError("what answers there is not Ray")
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); start one with 'ray start --head', or leave --ray out to "
            "use this machine alone"
        ) from error
    return found


class Room:
    """How many blocks may be in flight: two for every one that the nodes can run at a time, and at least one.

    Nodes come and go; where none could run a block for a minute, nothing would ever happen.
    """

    def __init__(self, needs: dict[str, float]) -> None:
        self.needs = needs
        self.blocks = 0
        self.looked = self.able = -math.inf
        if not able_nodes(needs):
            raise InputError(f"no node of the Ray cluster has {_words(needs)}, which a block needs")

    def now(self) -> int:
        """Return the number; look at the nodes every few seconds."""
        now = time.monotonic()
        if now - self.looked > LOOK:
            self.looked, self.blocks = now, blocks_at_a_time(self.needs)
            self.able = now if self.blocks else self.able
        if now - self.able > PATIENCE:
            raise InputError(
                f"for {PATIENCE:g} s no node of the Ray cluster had {_words(self.needs)}; finished blocks are kept, "
                "run again when there are nodes"
            )
        return max(1, 2 * self.blocks)


def needs_of(gpu: float) -> dict[str, float]:
    """Return what one block takes of a node: a core, or a share of a GPU and, for its emulators, of the cores."""
    if not gpu:
        return {"CPU": 1}
    shares = [node["Resources"]["CPU"] / node["Resources"]["GPU"] for node in able_nodes({"CPU": 1, "GPU": gpu})]
    return {"CPU": 1 if gpu >= 1 else max(1, math.floor(gpu * min(shares, default=1))), "GPU": gpu}


def able_nodes(needs: dict[str, float]) -> list[dict[str, Any]]:
    """Return the nodes that are alive and large enough for one block."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and _at_a_time(node["Resources"], needs) >= 1]


def blocks_at_a_time(needs: dict[str, float]) -> int:
    """Return how many blocks the nodes can run at a time."""
    return sum(_at_a_time(node["Resources"], needs) for node in able_nodes(needs))


def _at_a_time(resources: dict[str, float], needs: dict[str, float]) -> int:
    return min((int(resources.get(key, 0) / needed) for key, needed in needs.items()), default=1)


def _words(needs: dict[str, float]) -> str:
    return " and ".join(f"{needed:g} {key}" for key, needed in needs.items())
