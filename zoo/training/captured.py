"""SB3's DQN and DDPG on a GPU with their gradient step captured as a CUDA graph: the same update, without launches.

``zoo/build.py`` trains with them where there is a GPU.

The networks are small, so most of an update on a GPU is launching kernels. On an NVIDIA H200 with the paper's settings
(``python bench/captured_training.py``, ``bench/results/captured-training-cuda.json``) training runs at 3,275 instead of
473 environment steps per second on CartPole (6.9 times SB3's own) and at 1,519 instead of 177 on Mountain Car (8.6).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DDPG, DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import polyak_update
from torch import Tensor, nn

from surefoot.agents.networks import recorded
from surefoot.train.deployed import linear_of
from surefoot.train.off_policy import Algorithms, buffer_of, sees_pixels

# Weights of a network, and the moments of each.
Snapshot = tuple[list[Tensor], list[dict[str, Tensor]]]


class Captured(OffPolicyAlgorithm):
    """An SB3 learner for one environment that learns on the GPU, and acts there if it sees pixels, else on the CPU.

    One gradient step (a uniform sample, then ``learn_from``) is recorded once and replayed. Sampled indices come from
    the GPU's generator instead of numpy's; nothing else differs from SB3's own.
    """

    actor_layers: list[tuple[NDArray[Any], NDArray[Any]]]
    graph: torch.cuda.CUDAGraph | None = None
    acting_graph: torch.cuda.CUDAGraph | None = None
    mirrored: int | None = None

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Replay the captured gradient step ``gradient_steps`` times on the transitions collected so far."""
        self.policy.set_training_mode(True)
        self._update_learning_rate([optimizer for _, optimizer in self.trained_networks()])
        if self.graph is None:
            self._capture(batch_size)
        assert self.graph is not None
        self._mirror()
        for _ in range(gradient_steps):
            self.graph.replay()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", float(self.loss))
        self._copy_to_actor()

    def trained_networks(self) -> list[tuple[nn.Module, torch.optim.Optimizer]]:
        """Return the networks that gradient steps change, with their optimizers."""
        raise NotImplementedError

    def target_networks(self) -> list[nn.Module]:
        """Return the networks that follow the trained ones slowly, within the gradient step."""
        return []

    def acting_network(self) -> nn.Module:
        """Return the network that acts."""
        raise NotImplementedError

    def learn_from(self, batch: dict[str, Tensor]) -> None:
        """Take one gradient step on a batch, as SB3 does."""
        raise NotImplementedError

    def outputs(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return the acting network's outputs: of pixels by the network itself, else from a copy on the CPU."""
        if sees_pixels(self):
            return self._outputs_of_pixels(observation)
        return self._outputs_of_copy(observation)

    def _outputs_of_pixels(self, observation: NDArray[Any]) -> NDArray[Any]:
        if self.acting_graph is None:
            self.seen = torch.zeros(observation.shape, device=self.device)
            self.acting_graph = recorded(self._act)
        self.seen.copy_(torch.from_numpy(observation))
        self.acting_graph.replay()
        values: NDArray[Any] = self.values.cpu().numpy()
        return values

    def _act(self) -> None:
        with torch.no_grad():
            self.values = self.acting_network()(self.seen)

    def _outputs_of_copy(self, observation: NDArray[Any]) -> NDArray[Any]:
        if not hasattr(self, "actor_layers"):
            self._copy_to_actor()
        hidden = observation.reshape(len(observation), -1)
        for weight, bias in self.actor_layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0)
        weight, bias = self.actor_layers[-1]
        result: NDArray[Any] = hidden @ weight + bias
        return result

    def _setup_model(self) -> None:
        if self.device.type == "cuda":
            # What a graph may hold: one kernel for all weights, and counters that stay on the GPU.
            self.policy_kwargs["optimizer_kwargs"] = {"fused": True, "capturable": True}
        super()._setup_model()

    def _excluded_save_params(self) -> list[str]:
        # Graphs cannot be saved, and what they read and write is rebuilt with them.
        own = ["graph", "acting_graph", "seen", "values", "store", "size", "loss", "actor_layers", "mirrored"]
        return [*super()._excluded_save_params(), *own]

    def _copy_to_actor(self) -> None:
        """Copy the acting network to the CPU: one row takes longer to get to the GPU than to go through the network."""
        self.actor_layers = []
        if sees_pixels(self):
            return
        for layer in linear_of(self.acting_network()):
            weight = layer.weight.detach().T.cpu().numpy().copy()
            bias = layer.bias.detach().cpu().numpy().copy()
            self.actor_layers.append((weight, bias))

    def _mirror(self) -> None:
        """Bring the transitions collected since the last call to the GPU."""
        buffer = buffer_of(self)
        n_new = buffer.size()
        if self.mirrored is not None:
            n_new = (buffer.pos - self.mirrored) % buffer.buffer_size
        # The buffer is a ring: the newest rows may begin at its end.
        rows = np.arange(buffer.pos - n_new, buffer.pos) % buffer.buffer_size
        where = torch.from_numpy(rows).to(self.device)
        for name, column in self._columns(rows).items():
            self.store[name][where] = torch.from_numpy(column).to(self.device)
        self.mirrored = buffer.pos
        self.size.fill_(buffer.size())

    def _columns(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        buffer = buffer_of(self)
        # A timeout does not end the episode: the value of its successor still counts.
        ended = buffer.dones[rows, 0] * (1 - buffer.timeouts[rows, 0])
        return {
            "observation": buffer.observations[rows, 0],
            "successor": buffer.next_observations[rows, 0],
            "action": buffer.actions[rows, 0],
            "reward": buffer.rewards[rows].astype(np.float32),
            "ended": ended.reshape(-1, 1).astype(np.float32),
        }

    def _capture(self, batch_size: int) -> None:
        """Record one gradient step; the steps that warm it up are undone."""
        buffer = buffer_of(self)
        device = self.device
        assert buffer.n_envs == 1, "the captured update is for one environment"
        # What the graph reads has to stay at its address: a copy of the whole buffer on the GPU.
        self.store: dict[str, Tensor] = {}
        for name, column in self._columns(np.zeros(1, dtype=np.int64)).items():
            shape = (buffer.buffer_size, *column.shape[1:])
            self.store[name] = torch.zeros(shape, dtype=torch.from_numpy(column).dtype, device=device)
        self.size = torch.zeros((), dtype=torch.float64, device=device)
        self.loss = torch.zeros((), device=device)
        self._mirror()
        before = [_take_snapshot(network, optimizer) for network, optimizer in self.trained_networks()]
        targets_before = [_parameters_of(network) for network in self.target_networks()]
        self.graph = recorded(partial(self._update, batch_size))
        for (network, optimizer), snapshot in zip(self.trained_networks(), before, strict=True):
            _restore(network, optimizer, snapshot)
        for network, values in zip(self.target_networks(), targets_before, strict=True):
            _write_parameters(network, values)

    def _update(self, batch_size: int) -> None:
        # ``size`` is a tensor, so the graph draws from what is filled when it is replayed.
        rows = (torch.rand(batch_size, dtype=torch.float64, device=self.device) * self.size).long()
        self.learn_from({name: column[rows] for name, column in self.store.items()})


class GraphDQN(Captured, DQN):
    """DQN: Huber loss on the one-step target, clipped gradient, Adam."""

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
        state: Any = None,
        episode_start: NDArray[Any] | None = None,  # noqa: ARG002 - SB3's signature
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], Any]:
        """Explore as SB3 does; otherwise act greedily."""
        assert isinstance(observation, np.ndarray), "the captured update is for one array of observations"
        if not deterministic and np.random.rand() < self.exploration_rate:  # noqa: NPY002 - SB3 seeds this stream
            explored = [self.action_space.sample() for _ in range(len(observation))]
            return np.array(explored), state
        return self.outputs(observation).argmax(axis=1), state

    def trained_networks(self) -> list[tuple[nn.Module, torch.optim.Optimizer]]:
        """Return the Q-network."""
        return [(self.policy.q_net, self.policy.optimizer)]

    def acting_network(self) -> nn.Module:
        """Return the Q-network."""
        return self.q_net

    def learn_from(self, batch: dict[str, Tensor]) -> None:
        """Take one gradient step on a batch, as ``DQN.train`` does."""
        # SB3's own lines, but for gradients that stay at their address, which the graph holds.
        with torch.no_grad():
            following = self.q_net_target(batch["successor"]).max(dim=1, keepdim=True).values
            target = batch["reward"] + (1 - batch["ended"]) * self.gamma * following
        current = self.q_net(batch["observation"]).gather(1, batch["action"].long())
        loss = nn.functional.smooth_l1_loss(current, target)
        self.policy.optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        self.loss.copy_(loss.detach())


class GraphDDPG(Captured, DDPG):
    """DDPG: squared error on the one-step target, then the actor up the critic, then both targets after them."""

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
        state: Any = None,
        episode_start: NDArray[Any] | None = None,  # noqa: ARG002 - SB3's signature
        deterministic: bool = False,  # noqa: ARG002 - exploration is added by SB3
    ) -> tuple[NDArray[Any], Any]:
        """Act with a copy of the actor on the CPU."""
        assert isinstance(observation, np.ndarray), "the captured update is for one array of observations"
        return self.policy.unscale_action(np.tanh(self.outputs(observation))), state

    def trained_networks(self) -> list[tuple[nn.Module, torch.optim.Optimizer]]:
        """Return actor and critic."""
        return [(self.actor, self.actor.optimizer), (self.critic, self.critic.optimizer)]

    def target_networks(self) -> list[nn.Module]:
        """Return the target networks."""
        return [self.actor_target, self.critic_target]

    def acting_network(self) -> nn.Module:
        """Return the actor's layers."""
        return self.actor.mu

    def learn_from(self, batch: dict[str, Tensor]) -> None:
        """Take one gradient step on a batch, as ``DDPG.train`` does."""
        seen = batch["observation"]
        following = batch["successor"]
        with torch.no_grad():
            (value,) = self.critic_target(following, self.actor_target(following).clamp(-1, 1))
            target = batch["reward"] + (1 - batch["ended"]) * self.gamma * value
        (current,) = self.critic(seen, batch["action"])
        loss = nn.functional.mse_loss(current, target)
        self._descend(loss, self.critic.optimizer)
        self._descend(-self.critic.q1_forward(seen, self.actor(seen)).mean(), self.actor.optimizer)
        for network, follower in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
            polyak_update(network.parameters(), follower.parameters(), self.tau)
        self.loss.copy_(loss.detach())

    def _descend(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(loss)
        optimizer.step()


CAPTURED = Algorithms(GraphDQN, GraphDDPG)


def _take_snapshot(network: nn.Module, optimizer: torch.optim.Optimizer) -> Snapshot:
    """Return copies of the weights and of Adam's moments."""
    moments = [{key: value.clone() for key, value in entry.items()} for entry in optimizer.state.values()]
    return _parameters_of(network), moments


def _parameters_of(network: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def _restore(network: nn.Module, optimizer: torch.optim.Optimizer, before: Snapshot) -> None:
    """Write weights and moments back in place, because the graph holds their addresses; new moments start at zero."""
    weights, moments = before
    _write_parameters(network, weights)
    for index, entry in enumerate(optimizer.state.values()):
        for key, tensor in entry.items():
            # Before the first step there were none: Adam begins at zero.
            if moments:
                tensor.copy_(moments[index][key])
            else:
                tensor.zero_()


def _write_parameters(network: nn.Module, values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), values, strict=True):
            parameter.copy_(value)
