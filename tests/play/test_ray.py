"""A real Ray cluster of two nodes on this machine: the same bytes, whatever dies."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

import surefoot
from killing import alive
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.play import ray_cluster as module
from surefoot.play.ray_cluster import check_answer, needs_of, ray_cluster
from surefoot.play.rollout import play
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS, get_task
from surefoot.runs.folder import RunFolder
from toys import balancer, constant, fixed, from_callable, pay_steps, plan_for, toy_task

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")

PLAN = plan_for(get_task("cartpole-1"), balancer(), 0.5, 110, seed=3, n_envs=20, episodes_per_env=1)
TOY = plan_for(toy_task(fixed(2), pay_steps, ceiling=2.0), constant(), 0.1, 12, n_envs=2, episodes_per_env=1)
SMALL = {"num_cpus": 1, "object_store_memory": 80_000_000}
HERE = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]


@pytest.fixture(scope="module")
def nodes():
    """Two nodes with one CPU each; their workers can import this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(HERE))
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
        cluster.add_node(**SMALL)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def workers(nodes):
    with ray_cluster(nodes.address) as connected:
        yield connected


class Marked(type(constant().network)):
    """A network that leaves its process's number in a folder, and then does something else before it acts."""

    def __init__(self, folder, act=lambda path: None):
        super().__init__()
        self.folder, self.act = folder, act

    def forward(self, history):
        path = self.folder / str(os.getpid())
        path.touch()
        self.act(path)
        return super().forward(history)


def marked(folder, act=lambda path: None, **more):
    return replace(TOY, policy=replace(constant(), network=Marked(folder, act)), **more)


def one_block(plan):
    """Return a plan in which nothing else runs that an error would end: starting a worker takes seconds."""
    return replace(plan, n_episodes=2)


def until(happened, seconds=20.0):
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    assert happened()


def pids(folder):
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]


def nap(path):
    time.sleep(0.15)


def die_once(path):
    first = path.parent / "first"
    try:
        first.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def no_memory(path):
    raise MemoryError("cannot allocate 9 TiB")


def test_the_bytes_are_those_of_this_machine(workers, tmp_path):
    said = []
    far, near = play(PLAN, workers=workers, progress=lambda done, of: said.append((done, of))), play(PLAN)
    far.save(tmp_path / "far.npz")
    near.save(tmp_path / "near.npz")
    assert (tmp_path / "far.npz").read_bytes() == (tmp_path / "near.npz").read_bytes()
    assert said[-1] == (110, 110)
    assert sum(count for _, count in far.processors) == PLAN.n_blocks
    assert workers.describe() == "Ray, 2 nodes, 2 CPUs"


def test_the_python_interface_uses_the_connection_there_is(workers):
    calls = [surefoot.rollout("cartpole-1", "cartpole-1-s0.4", sigma=0.4, n_episodes=40, n_envs=20, backend="ray")]
    calls += [surefoot.rollout("cartpole-1", "cartpole-1-s0.4", sigma=0.4, n_episodes=40, n_envs=20)]
    assert calls[0].sha256 == calls[1].sha256
    assert ray.is_initialized()
    with pytest.raises(InputError, match="backend must be 'processes' or 'ray', got 'dask'"):
        surefoot.rollout("cartpole-1", "cartpole-1-s0.4", sigma=0.4, backend="dask")


def test_any_callable_can_be_a_policy_and_its_errors_come_through(workers):
    secret = 1
    plan = replace(TOY, policy=from_callable(lambda seen: secret, shape=(1,), n_actions=2))
    assert play(plan, workers=workers).returns.tolist() == [2] * 12
    secret = 7
    with pytest.raises(InputError, match=r"^the agent must choose an action from 0 to 1, got 7$"):
        play(one_block(plan), workers=workers)


def test_out_of_memory_is_no_error_of_the_environment(workers, tmp_path):
    with pytest.raises(InputError, match=r"block \d ran out of memory on its Ray node.*fewer --num-cpus"):
        play(one_block(marked(tmp_path, no_memory)), workers=workers)


def test_planted_other_software_or_another_agent_is_rejected_before_it_runs(workers, monkeypatch):
    real = module.identity_of
    monkeypatch.setattr(module, "identity_of", lambda plan: {**real(plan), "agent": "0.0"})
    with pytest.raises(InputError, match=r"the Ray node .* another program \(agent .* there, 0\.0 here\); install"):
        play(one_block(TOY), workers=workers)


def test_a_block_takes_a_core_or_a_share_of_a_gpu(workers, monkeypatch):
    assert needs_of(0.0) == {"CPU": 1}
    able = [{"Resources": {"CPU": 16, "GPU": 2}}, {"Resources": {"CPU": 12, "GPU": 1}}]
    monkeypatch.setattr("surefoot.play.ray_cluster.able_nodes", lambda needs: able)
    assert needs_of(1.0) == {"CPU": 1, "GPU": 1.0}
    assert needs_of(0.5) == {"CPU": 4, "GPU": 0.5}


def test_a_gpu_that_no_node_has_is_an_error_at_once(workers):
    with pytest.raises(InputError, match="no node of the Ray cluster has 1 CPU and 1 GPU, which a block needs"):
        play(replace(TOY, device="cuda"), workers=workers)


def test_the_command_runs_on_the_cluster(workers, nodes, tmp_path, monkeypatch, capsys):
    small = replace(TASKS["cartpole-1"], blocks=Blocks(n_envs=30, episodes_per_env=1))
    monkeypatch.setitem(TASKS, "cartpole-1", small)
    options = ["--sigma", "0.4", "--episodes", "100", "--quiet", "--out"]
    assert cli.main(["certify", "cartpole-1", *options, str(tmp_path / "far"), "--ray", nodes.address]) == 0
    assert cli.main(["certify", "cartpole-1", *options, str(tmp_path / "near"), "--workers", "1"]) == 0
    for name in ("episodes.npz", "certificate.json", "setup.json"):
        assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()
    assert '"workers": "Ray, 2 nodes, 2 CPUs"' in (tmp_path / "far" / "run.json").read_text()
    capsys.readouterr()
    assert cli.main(["certify", "cartpole-1", *options, str(tmp_path / "x"), "--ray", "auto", "--workers", "2"]) == 2
    assert "--workers cannot be combined with --ray" in capsys.readouterr().err


def test_a_block_that_is_lost_again_and_again_is_given_up():
    tasks = module.BlockTasks.__new__(module.BlockTasks)
    tasks.crashes = module.Counter()
    tasks.dead_nodes = module.Counter()
    reasons = (
        (module.lost.OutOfMemoryError("low"), 3, "block 0 ran out of memory on its Ray node"),
        (module.lost.WorkerCrashedError(), 3, "block 1 was lost 3 times: its process was killed"),
        (module.lost.NodeDiedError("gone"), 10, "block 2 was lost 10 times: its node died; finished blocks are kept"),
    )
    for index, (error, most, message) in enumerate(reasons):
        for _ in range(most - 1):
            tasks.count_loss(index, error)
        with pytest.raises(InputError, match=message):
            tasks.count_loss(index, error)


@pytest.fixture
def web():
    """Something that listens and is not Ray."""
    with socket.create_server(("", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"HTTP/1.1 400 no"), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_no_cluster_is_an_error_within_seconds_and_nothing_runs_here(web, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1023")
    began = time.monotonic()
    for address in ("127.0.0.1:1023", "auto"):
        call = ["certify", "cartpole-1", "--episodes", "10", "--ray", address, "--out", str(tmp_path / "run")]
        assert cli.main(call) == 2
        assert "no Ray cluster answers at 127.0.0.1:1023" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127.* \(nothing that speaks Ray for 2 s\); start"):
        check_answer(web, seconds=2)
    with pytest.raises(InputError, match=r"is HOST:PORT or auto, got ray://10\.0\.0\.1:10001; run the command on a"):
        check_answer("ray://10.0.0.1:10001")
    assert time.monotonic() - began < 15
    assert not (tmp_path / "run").exists()


def test_what_a_thread_of_ray_prints_is_not_on_standard_output(workers, capsys):
    with module._stdout_of_this_thread():
        other = threading.Thread(target=print, args=("(raylet) A node died",))
        other.start()
        other.join()
        print('{"json": 1}')
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ('{"json": 1}\n', "(raylet) A node died\n")


# --- what follows ends processes: the tests above find them warm --------------------------------------------------


def test_a_worker_killed_with_9_costs_its_block_which_is_run_again(workers, tmp_path):
    far = play(marked(tmp_path, die_once), workers=workers)
    assert far.sha256 == play(TOY).sha256
    assert len(pids(tmp_path)) >= 2


def wait_for_the_third(path):
    """Let every block wait until one runs on the third node, which then never ends by itself."""
    mark = path.parent / "third"
    if ray.get_runtime_context().get_node_id() == (path.parent / "node").read_text():
        mark.touch()
        time.sleep(60)
    until(mark.exists, 60)


def test_a_node_that_dies_costs_its_blocks_which_are_run_again(workers, nodes, tmp_path):
    third = nodes.add_node(**SMALL)
    nodes.wait_for_nodes()
    (tmp_path / "node").write_text(third.node_id)

    def kill():
        until((tmp_path / "third").exists, 60)
        nodes.remove_node(third, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    far = play(marked(tmp_path, wait_for_the_third), workers=workers)
    killer.join()
    assert far.sha256 == play(TOY).sha256


def sleep_after_the_first(folder, index):
    if index:
        (folder / str(os.getpid())).touch()
        time.sleep(60)


def test_who_stops_listening_stops_the_tasks(workers, tmp_path):
    results = workers.map_unordered(sleep_after_the_first, tmp_path, range(6))
    assert next(results) == (0, None)
    until(lambda: len(pids(tmp_path)) == 2)
    busy = pids(tmp_path)
    results.close()
    until(lambda: not any(alive(pid) for pid in busy))


# A user's process, in the environment in which the workers run.
SCRIPT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
from test_ray import driven
sys.exit(driven(*sys.argv[1:]))
"""


LONG = 100  # episodes: more than can be run before the driver hears of its end


def driven(address, folder, marks):
    """Run the toy in its folder, as the command would, and say how far it is."""
    plan = marked(Path(marks), nap, n_episodes=LONG)
    with ray_cluster(address) as connected, RunFolder(Path(folder), plan.setup()).opened() as store:
        store.recorded(plan, workers=connected, progress=lambda done, of: print(done, flush=True))
    return 0


def test_a_driver_that_is_killed_leaves_no_process_and_resumes_to_the_same_bytes(nodes, tmp_path):
    run, marks = tmp_path / "run", tmp_path / "marks"
    marks.mkdir()
    call = [sys.executable, "-c", SCRIPT, nodes.address, str(run), str(marks)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(HERE)}
    with subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as user:
        assert user.stdout is not None
        assert any(int(line) >= 4 for line in user.stdout)
        user.send_signal(signal.SIGKILL)
        assert user.wait(20) != 0
    busy = pids(marks)
    assert busy
    until(lambda: not any(alive(pid) for pid in busy))
    done = len(list((run / "blocks").glob("*.npz")))
    assert 4 <= 2 * done < LONG
    said = []
    plan = marked(marks, n_episodes=LONG)
    with RunFolder(run, plan.setup()).opened() as store:
        store.recorded(plan, progress=lambda done, of: said.append(done))
    assert said[0] == 2 * done
    record = Episodes.load(run / "episodes.npz")
    assert record.sha256 == play(replace(TOY, n_episodes=LONG)).sha256
    assert sorted(path.name for path in run.iterdir()) == ["episodes.npz", "setup.json"]
