"""Every option of ``surefoot train`` arrives in the training run, and validations are run as they are meant."""

import shlex
from types import SimpleNamespace

import numpy as np
import pytest

from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.streams import Purpose
from surefoot.play.tasks import get_task
from surefoot.proof.forecast import forecast
from surefoot.train import certified_eval, selection
from surefoot.train.certified_eval import CertifiedEvalCallback
from surefoot.train.folder import TrainingFolder, TrainingRun, has_checkpoint
from surefoot.train.presets import PPO, PRESETS, default_preset, prepare_settings
from toys import balancer, fixed, pay_steps, short_pole, toy_task
from zoo.training.polish import PolishSettings, polish


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Return what types a command and returns the trainer's arguments."""
    monkeypatch.chdir(tmp_path)

    def ask(door, words):
        seen = []

        def train(*given, **named):
            seen.append((given, named))
            raise InputError("here the training would begin")

        with monkeypatch.context() as patched:
            patched.setattr(door, train)
            assert cli.main(["train", *shlex.split(words), "--quiet", "--device", "cpu"]) == 2
        return seen[0]

    return ask


TRAIN_PPO = "surefoot.train.ppo.train_ppo"


def test_what_a_plain_command_trains(asked):
    (run, settings), _ = asked(TRAIN_PPO, "cartpole-1 --sigma 0.3")
    assert (run.task, run.sigma, run.seed, run.device, run.resume) == (get_task("cartpole-1"), 0.3, 0, "cpu", False)
    assert (run.time_limit, run.for_budget, run.budget, run.preset) == (None, None, 0.6, "ppo")
    assert settings == PPO["cartpole-1"]


@pytest.mark.parametrize(
    ("words", "attribute", "value"),
    [
        ("--seed 5", "seed", 5),
        ("--time 3m", "time_limit", 3.0),
        ("--time 90s", "time_limit", 1.5),
        ("--time 2h", "time_limit", 120.0),
        ("--for-budget 0.7", "for_budget", 0.7),
        ("--for-budget 0.7", "budget", 0.7),
        ("--resume", "resume", True),
        ("--preset ppo-large", "preset", "ppo-large"),
    ],
)
def test_an_option_of_train_arrives(asked, words, attribute, value):
    (run, _), _ = asked(TRAIN_PPO, f"cartpole-1 --sigma 0.3 {words}")
    assert getattr(run, attribute) == value
    assert run.command == f"surefoot train cartpole-1 --sigma 0.3 {words} --quiet --device cpu"


@pytest.mark.parametrize(
    ("words", "features"), [("--sigma 0.1,0.2,0.1,0.4", (0.1, 0.2, 0.1, 0.4)), ("--sigma 0.3,0.3,0.3,0.3", None)]
)
def test_a_sigma_per_feature_arrives(asked, words, features):
    (run, _), _ = asked(TRAIN_PPO, f"--env CartPole-v1 {words}")
    assert run.noise.features == features
    assert run.noise.sigma == run.sigma == min(features or (0.3,))
    assert run.card("it", PPO["cartpole-1"]).get("sigma_per_feature") == (None if features is None else list(features))


def test_the_agent_to_start_from_arrives(asked):
    (run, settings), _ = asked(TRAIN_PPO, "--env CartPole-v1 --sigma 0.3 --init-from cartpole-5-s0.2")
    assert run.imitated.name == "cartpole-5-s0.2"
    assert run.card("it", settings)["training"]["init_from"]["sha256"] == run.imitated.sha256
    assert run.card("it", settings)["environment"]["env"] == "CartPole-v1"


def test_settings_of_train_arrive(asked):
    (_, settings), _ = asked(TRAIN_PPO, "cartpole-1 --sigma 0.3 --memory gru --set total_steps=123")
    assert settings.total_steps == 123
    assert settings == PPO["cartpole-1"].with_memory("gru").__class__(
        **{**vars(PPO["cartpole-1"].with_memory("gru")), "total_steps": 123}
    )
    (_, table), _ = asked(
        "surefoot.train.off_policy.train_off_policy", "cartpole-1 --sigma 0.3 --preset paper --repeats 7"
    )
    assert table.repeats == 7


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_refuses_what_it_does_not_take(preset):
    """One table of options, one loop: each is either taken or refused by name."""
    task = get_task("mountain-car")
    given = {"memory": "frames=2", "repeats": 2, "time": 3.0, "for_budget": 0.5, "init_from": "model.zip"}
    for name, value in given.items():
        if name in PRESETS[preset].takes:
            prepare_settings(preset, task, **{name: value})
        else:
            with pytest.raises(InputError, match=f"{name}= cannot be combined with the preset {preset}, which takes "):
                prepare_settings(preset, task, **{name: value})
    assert PRESETS[preset].takes <= set(given)


def test_what_trains_a_task_unless_another_preset_is_asked_for():
    tasks = {"cartpole-1": "ppo", "mountain-car": "ppo", "freeway": "paper"}
    assert {name: default_preset(get_task(name)) for name in tasks} == tasks
    assert default_preset(toy_task(fixed(1), pay_steps)) == "ppo"


@pytest.mark.parametrize(("memory", "recurrent"), [("gru", True), ("frames=2", False)])
def test_sigma_is_selected_at_the_budget_with_the_seed_and_for_the_memory(asked, monkeypatch, memory, recurrent):
    seen = []

    def best_sigma(task, budget, **options):
        seen.append((task.name, budget, options))
        return SimpleNamespace(sigma=0.25)

    monkeypatch.setattr("surefoot.train.selection.best_sigma", best_sigma)
    (run, _), _ = asked(TRAIN_PPO, f"cartpole-5 --for-budget 0.7 --seed 5 --memory {memory}")
    assert run.sigma == 0.25
    assert seen == [("cartpole-5", 0.7, {"recurrent": recurrent, "seed": 5, "device": "cpu"})]


# --- validation -------------------------------------------------------------------------------------------------------


def played_plans(monkeypatch, module):
    plans = []

    def play(plan):
        plans.append(plan)
        return Episodes(
            returns=np.array([float(len(plans))] * 30),
            sigma=plan.noise.sigma,
            floor=0.0,
            ceiling=30.0,
            lengths=np.full(30, 3),
            metadata=plan.facts() | {"n_planned": 30},
        )

    monkeypatch.setattr(module, "play", play)
    return plans


def test_a_validation_is_run_as_it_is_asked_for(monkeypatch, tmp_path):
    plans = played_plans(monkeypatch, selection)
    run = TrainingRun(task=short_pole(30), noise=Noise.of(0.3), out=tmp_path, seed=5)
    selection.run_validation(run, balancer(), 7, number=4, n_envs=2)
    (plan,) = plans
    assert (plan.task, plan.noise, plan.n_episodes, plan.seed) == (run.task, Noise.of(0.3), 7, 5)
    assert (plan.purpose, plan.device, plan.block_envs) == ((Purpose.VALIDATION, 4), "cpu", 2)


@pytest.mark.parametrize(
    ("noise", "budget"), [(Noise.of(0.3), 0.6), (Noise.of([0.3, 0.1]), 0.2), (Noise.of(0.0, 0.4), 0.8)]
)
def test_weights_are_chosen_at_twice_the_noise_on_actions_too(noise, budget, tmp_path):
    """In the units of the actions where they alone have noise; at budget 0 all agents would be chosen by their mean."""
    assert TrainingRun(task=short_pole(30), noise=noise, out=tmp_path).budget == pytest.approx(budget)


def test_what_validation_predicts_is_about_the_budget_and_as_many_episodes():
    returns = np.resize([20.0, 30.0, 30.0], 60)
    played = Episodes.from_returns(returns, sigma=0.3, floor=0, ceiling=30)
    expected = forecast(played, budget=0.6, alpha=selection.ALPHA, n_episodes=60).limit
    assert selection.predict_bound(played, 0.6) == expected
    assert selection.predict_bound(played, 0.1) > expected
    quiet = Episodes.from_returns(returns, sigma=0.0, floor=0, ceiling=30)
    assert selection.predict_bound(quiet, 0.6) == returns.mean()


@pytest.mark.parametrize("recurrent", [True, False])
def test_the_best_sigma_compares_the_pretrained_agents_of_the_task(monkeypatch, recurrent):
    plans = played_plans(monkeypatch, selection)
    task = get_task("cartpole-5")
    selection.best_sigma(task, 0.4, recurrent=recurrent, seed=5, device="cpu")
    cards = {name: zoo.load_card(name) for name in zoo.list_agents()}
    wanted = {
        name
        for name, card in cards.items()
        if card["task"] == "cartpole-5" and card["sigma"] > 0 and ("gru" in name) == recurrent
    }
    assert {plan.policy.name for plan in plans} == wanted
    for plan in plans:
        assert plan.noise.sigma == cards[plan.policy.name]["sigma"]
        assert (plan.task, plan.seed, plan.purpose, plan.n_episodes) == (task, 5, (Purpose.PILOT,), selection.N_PILOT)
    with pytest.raises(InputError, match=r"there are no pretrained agents of toy .* give sigma=, such as 0\.2"):
        selection.best_sigma(toy_task(fixed(1), pay_steps), 0.4, recurrent=False, seed=0, device="cpu")


def test_every_evaluation_of_the_callback_is_on_fresh_episodes(monkeypatch):
    plans = played_plans(monkeypatch, certified_eval)
    monkeypatch.setattr(certified_eval, "as_policy", lambda model, spaces: balancer())
    logged = {}
    logger = SimpleNamespace(
        record=lambda key, value, **_: logged.setdefault(key, []).append(value), dump=lambda _: None
    )
    callback = CertifiedEvalCallback(
        short_pole(30), sigma=0.3, budget=0.1, n_eval_episodes=7, eval_freq=10, seed=5, verbose=0
    )
    callback.model = SimpleNamespace(logger=logger)
    for call in range(1, 31):
        callback.n_calls = call
        assert callback._on_step()
    assert [plan.purpose for plan in plans] == [(Purpose.VALIDATION, number) for number in (1, 2, 3)]
    for plan in plans:
        assert (plan.n_episodes, plan.seed, plan.noise.sigma) == (7, 5, 0.3)
    bounds = logged["certified/lower_B0.1"]
    assert bounds == sorted(bounds)
    assert callback.best.lower[0] == bounds[-1]  # the best, not the first
    assert callback.best.budgets.tolist() == [0.1]
    assert callback.best.confidence == 1 - selection.ALPHA
    assert logged["eval/mean_reward"] == [1.0, 2.0, 3.0]
    assert logged["eval/mean_ep_length"] == [3.0] * 3


def test_the_model_with_the_best_bound_is_kept_and_not_the_one_with_the_best_mean(monkeypatch, tmp_path):
    """The first fails never and the second in one of ten episodes, with the better mean."""
    returns = iter([[24.0] * 100, [30.0] * 90 + [0.0] * 10, [24.0] * 100])
    monkeypatch.setattr(certified_eval, "as_policy", lambda model, spaces: balancer())
    monkeypatch.setattr(
        certified_eval,
        "play",
        lambda plan: Episodes.from_returns(next(returns), sigma=0.3, floor=0, ceiling=30, lengths=[3] * 100),
    )
    saved = []
    quiet = SimpleNamespace(record=lambda *_, **__: None, dump=lambda _: None)
    callback = CertifiedEvalCallback(
        short_pole(30), sigma=0.3, budget=0.6, eval_freq=1, verbose=0, best_model_save_path=tmp_path
    )
    callback.model = SimpleNamespace(logger=quiet, save=saved.append, get_vec_normalize_env=lambda: None)
    for call in (1, 2, 3):
        callback.n_calls = call
        callback._on_step()
    assert callback.best.estimate == 24.0
    assert saved == [tmp_path / "best_model.zip"]  # once: as good is not better


def test_the_search_of_polishing_has_more_noise_and_the_same_budget_in_units_of_it(tmp_path, monkeypatch):
    asked, budgets = [], []

    def play(plan):
        asked.append((plan.noise.sigma, plan.seed, plan.n_episodes, plan.purpose))
        return Episodes.from_returns([1.0, 2.0], sigma=plan.noise.sigma, floor=0, ceiling=30, lengths=[1, 2])

    def forecast_at(played, *, budget, **_):
        budgets.append((played.sigma, budget))
        return SimpleNamespace(limit=1.0)

    monkeypatch.setattr(selection, "play", play)
    monkeypatch.setattr(selection, "forecast", forecast_at)
    settings = PolishSettings(rounds=1, pairs=1, n_episodes=4, observed=5, validation_episodes=6, stress=1.5)
    run = TrainingRun(task=get_task("cartpole-1"), noise=Noise.of(0.2), out=tmp_path / "run", seed=3, for_budget=0.5)
    polish(run, settings, init_from=zoo.load("cartpole-1-s0.2"))
    searched, judged = asked[:2], asked[2:]
    assert searched == [(pytest.approx(0.3), 3, 4, (Purpose.VALIDATION, 1))] * 2
    assert judged == [(0.2, 3, 6, (Purpose.VALIDATION, 0))] * 2
    assert budgets == [(pytest.approx(0.3), 0.75)] * 2 + [(0.2, 0.5)] * 2


# --- checkpoints ------------------------------------------------------------------------------------------------------


def saved(folder, number):
    folder.curve.steps = number
    folder.curve.add(np.array([float(number)]), 0.0, {"w": np.array([number])})
    folder.save_checkpoint({"number": number}, {}, {}, {"x": np.array([number])})


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(tmp_path, monkeypatch):
    """At either of the two writes, checkpoint and curve."""
    import errno
    import os

    real = os.fsync
    for at in range(2):
        folder = TrainingFolder(tmp_path / f"full-{at}", resume=False)
        saved(folder, 1)
        writes = []

        def fsync(handle, writes=writes, at=at):
            writes.append(handle)
            if len(writes) > at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(handle)

        monkeypatch.setattr("surefoot.files.os.fsync", fsync)
        with pytest.raises(InputError, match="No space left on device"):
            saved(folder, 2)
        monkeypatch.setattr("surefoot.files.os.fsync", real)
        again = TrainingFolder(folder.path, resume=True)
        checkpoint = again.load_checkpoint()
        expected = 2 if at == 1 else 1
        assert (checkpoint.counters["number"], checkpoint.arrays["x"].tolist()) == (expected, [expected])
        assert again.curve.best_weights["w"].tolist() == [expected]
        assert again.curve.steps == expected


def test_an_agent_that_cannot_be_written_leaves_the_checkpoint(tmp_path, monkeypatch):
    folder = TrainingFolder(tmp_path / "run", resume=False)
    saved(folder, 1)
    policy = zoo.load("cartpole-1-s0.2")
    card = {"task": "cartpole-1", "sigma": 0.2, "training": {}}

    def full(*_):
        raise InputError("cannot write: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("surefoot.train.folder.agent_files.save", full)
        with pytest.raises(InputError, match="No space left"):
            folder.finish(policy, card)
    assert has_checkpoint(folder.path)
    assert TrainingFolder(folder.path, resume=True).load_checkpoint().counters["number"] == 1
    folder.finish(policy, card, keep_checkpoint=True)
    assert has_checkpoint(folder.path)
    folder.finish(policy, card)
    assert not has_checkpoint(folder.path)
    assert isinstance(zoo.load(str(folder.path)), Policy)


def test_the_settings_of_an_environment_follow_from_its_actions_and_the_start(asked):
    (run, discrete), _ = asked(TRAIN_PPO, "--env CartPole-v1 --sigma 0.3")
    assert (discrete.memory, run.time_limit) == ("gru", 10.0)
    (pendulum, continuous), _ = asked(TRAIN_PPO, "--env Pendulum-v1 --sigma 0.3")
    assert (continuous.memory, continuous.entropy) == ("frames=1", 0.0)
    assert prepare_settings("ppo", pendulum.task, init_from="model.zip").memory == "gru"
    (run, _), _ = asked(TRAIN_PPO, "--env CartPole-v1 --sigma 0.3 --set total_steps=1000")
    assert run.time_limit is None


def test_an_environment_is_trained_on_the_cpu_unless_a_gpu_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("surefoot.play.plan.resolve_device", lambda given: "cuda" if given == "auto" else given)
    seen = []

    def train(run, settings):
        seen.append(run.device)
        raise InputError("here the training would begin")

    monkeypatch.setattr(TRAIN_PPO, train)
    for words in (["--env", "CartPole-v1"], ["cartpole-5"]):
        assert cli.main(["train", *words, "--sigma", "0.3", "--quiet"]) == 2
    assert seen == ["cpu", "cuda"]


def test_training_ends_where_neither_mean_nor_certified_value_rises():
    from surefoot.train.ppo import PpoProgress

    for rows, risen in (
        ([(1, 5.0, 0, 0, 2.0), (2, 4.0, 0, 0, 1.0), (3, 5.0, 0, 0, 2.0)], False),
        ([(1, 5.0, 0, 0, 2.0), (2, 4.0, 0, 0, 1.0), (3, 6.0, 0, 0, 1.0)], True),
        ([(1, 5.0, 0, 0, 2.0), (2, 4.0, 0, 0, 3.0), (3, 5.0, 0, 0, 1.0)], True),
    ):
        folder = SimpleNamespace(curve=SimpleNamespace(rows=rows))
        assert PpoProgress._has_risen(SimpleNamespace(folder=folder), 2) == risen
