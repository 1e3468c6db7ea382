"""The record: what it checks, how it is cut, joined, saved and loaded."""

import json
from dataclasses import replace

import numpy as np
import pytest

from surefoot.episodes import Episodes, check_arrays, is_unit
from surefoot.errors import InputError
from surefoot.files import write_arrays
from surefoot.proof.query import certify

RETURNS = np.array([3.0, 0.0, -1.5, 10.0])


def made(**more):
    return Episodes.from_returns(
        RETURNS, **{"sigma": 0.2, "floor": -2, "ceiling": 10, "lengths": [4, 1, 2, 9], "task": "t", **more}
    )


def test_it_keeps_what_it_was_given():
    record = made(agent="a")
    assert len(record) == 4
    assert record.returns.tolist() == RETURNS.tolist()
    assert record.setup == {"sigma": 0.2, "floor": -2.0, "ceiling": 10.0, "task": "t", "agent": "a"}
    assert not record.attacked


def test_it_is_frozen_and_leaves_the_callers_arrays_alone():
    returns, lengths = RETURNS.copy(), np.arange(4)
    record = Episodes.from_returns(returns, sigma=0.2, floor=-2, lengths=lengths)
    returns[0], lengths[0] = 7, 7
    assert record.returns[0] == 3
    assert record.lengths[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        record.returns[0] = 1
    with pytest.raises(AttributeError):
        record.sigma = 1.0


def test_cut_and_joined_it_is_the_same():
    record = made()
    again = Episodes.concat([record[:1], record[1:]])
    assert again.returns.tolist() == RETURNS.tolist()
    assert again.lengths.tolist() == [4, 1, 2, 9]
    assert again.setup == record.setup


def test_the_processors_of_blocks_are_kept_and_are_no_part_of_the_hash(tmp_path):
    blocks = [replace(made(block_size=2)[at : at + 2], processors=((kind, 1),)) for at, kind in ((0, "A"), (2, "B"))]
    record = Episodes.concat([*blocks, blocks[1]])
    assert record.processors == (("A", 1), ("B", 2))
    record.save(tmp_path / "e.npz")
    again = Episodes.load(tmp_path / "e.npz")
    assert again.processors == record.processors
    assert again.setup == record.setup
    assert again.sha256 == record.sha256 == replace(record, processors=()).sha256
    assert [again[at : at + 2].processors for at in (0, 2, 4)] == [(("A", 1),), (("B", 1),), (("B", 1),)]
    assert again[0:4].processors == (("A", 1), ("B", 1))
    assert again[1:3].processors == Episodes.concat([*blocks, made(block_size=2)]).processors == ()


@pytest.mark.parametrize("wrong", [(("A", 1),), (("A", 3),), (("A", 10**12),), (("A", 0), ("B", 2))])
def test_processors_of_other_blocks_are_refused(tmp_path, wrong):
    replace(made(block_size=2), processors=wrong).save(tmp_path / "e.npz")
    with pytest.raises(InputError, match="the processors must be those of all 2 blocks"):
        Episodes.load(tmp_path / "e.npz")


@pytest.mark.parametrize("ceiling", [None, 10.0])
@pytest.mark.parametrize("spent", [None, np.array([0.1, 0.2, 0.3, 0.4])])
@pytest.mark.parametrize("lengths", [None, np.array([1, 2, 3, 4])])
def test_saved_and_loaded_it_is_the_same(tmp_path, lengths, spent, ceiling):
    facts = {"task": "t", "nested": {"a": [1, 2.5, None]}}
    record = Episodes(RETURNS.copy(), 0.1 + 0.2, -2.0, ceiling, lengths, spent, facts)
    record.save(tmp_path / "e.npz")
    again = Episodes.load(tmp_path / "e.npz")
    assert again.returns.tobytes() == record.returns.tobytes()
    assert again.setup == record.setup
    assert again.attacked == (spent is not None)
    for name in ("lengths", "budget_used"):
        mine, its = getattr(record, name), getattr(again, name)
        assert mine is its is None or mine.tolist() == its.tolist()
    Episodes.concat([record, again])


def test_attacked_play_is_known_by_its_adversary():
    assert made(attacker={"name": "x"}).attacked


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"sigma": 0.3}, "sigma"),
        ({"floor": -3}, "floor"),
        ({"ceiling": 11}, "ceiling"),
        ({"task": "u"}, "task"),
        ({"seed": 1}, "seed"),
    ],
)
def test_records_of_mixed_setups_are_refused(change, differing):
    with pytest.raises(InputError, match=f"mixed setups cannot be joined; they differ in {differing}$"):
        Episodes.concat([made(), made(**change)])


def test_joining_nothing_or_halves_is_refused():
    with pytest.raises(InputError, match="at least one record to join, got none"):
        Episodes.concat([])
    with pytest.raises(InputError, match="some of the records have lengths"):
        Episodes.concat([made(), made(lengths=None)])


@pytest.mark.parametrize("rows", [0, [0, 1], np.array([True, False, True, True])])
def test_rows_cannot_be_picked(rows):
    with pytest.raises(InputError, match="cut with a slice, got"):
        made()[rows]


@pytest.mark.parametrize(
    ("returns", "limits", "match"),
    [
        ([], {}, r"must be a non-empty list, one number per episode, got shape \(0,\)"),
        ([[1.0]], {}, r"got shape \(1, 1\)"),
        (3.0, {}, r"got shape \(\)"),
        ([1.0, float("nan")], {}, "must be finite, got nan at position 1"),
        ([float("inf")], {}, "must be finite, got inf at position 0"),
        (["many"], {}, "must be numbers, one per episode"),
        ([None], {}, "must be numbers, one per episode, got values of type object"),
        (["1.5"], {}, "must be numbers, one per episode"),
        ([1 + 2j], {}, "must be numbers, one per episode, got values of type complex128"),
        (np.array([1 + 0j], dtype=np.complex64), {}, "got values of type complex64"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), {}, "got values of type datetime64"),
        (np.array([3], dtype="timedelta64[s]"), {}, "got values of type timedelta64"),
        (np.array([True, False], dtype=object), {}, "got values of type object"),
        ([[1.0], [2.0, 3.0]], {}, "must be numbers, one per episode"),
        ([0], {"floor": -1e308, "ceiling": 1e308}, "range of the return is too large: expected .* got -1e[+]308"),
        ([0], {"floor": 0, "ceiling": 1e308}, "range of the return is too large: expected .* got 1e[+]308"),
        ([1e200], {}, "range of the return is too large: expected .* got 1e[+]200"),
        ([3, -0.5, 3], {}, "no return may be below the floor 0, got -0.5; give the true floor"),
        ([3, 11, 3], {"ceiling": 10}, "no return may be above the ceiling 10, got 11; give the true ceiling, or none"),
        ([1], {"floor": float("nan")}, "floor must be a finite number, got nan"),
        ([1], {"ceiling": 0}, "ceiling must be a finite number above the floor 0, got 0"),
        ([1], {"ceiling": float("inf")}, "ceiling must be a finite number above the floor"),
        ([1], {"sigma": -0.1}, "sigma must be a finite number >= 0, got -0.1"),
        ([1], {"sigma": float("nan")}, "sigma must be a finite number >= 0, got nan"),
        ([1], {"lengths": [1, 2]}, r"lengths must have one entry per return \(1\), got \(2,\)"),
    ],
)
def test_bad_records_are_refused(returns, limits, match):
    with pytest.raises(InputError, match=match):
        Episodes.from_returns(returns, **{"sigma": 0.1, "floor": 0, **limits})


@pytest.mark.parametrize(
    "luck",
    [
        np.zeros((2, 1), dtype=np.float32),
        np.zeros(2),
        np.zeros((3, 1)),
        np.zeros((2, 0)),
        np.zeros((2, 33)),
        np.array([[0.0], [np.nan]]),
        np.array([[0.0], [1e61]]),
    ],
    ids=lambda luck: f"{luck.dtype} {luck.shape}",
)
def test_luck_is_a_row_of_some_moderate_numbers_for_each_episode(luck):
    good = Episodes.from_returns([1.0, 2.0], sigma=0.1, floor=0, luck=[[0.5], [-1e60]])
    assert good.luck.tolist() == [[0.5], [-1e60]]
    with pytest.raises(
        InputError, match=r"(must be float64 with a row of 1 to 32 numbers|must be finite numbers of at)"
    ):
        replace(good, luck=luck)


@pytest.mark.parametrize("unit", ["", "m", "m/s", "°", "°C", "%", "mg/dL", "elu", "x" * 40])
def test_units_are_words_after_a_number(unit):
    assert is_unit(unit)


@pytest.mark.parametrize("unit", [None, 7, "000 m", "e3 m", "E-2", "-m", "/s", " m", ".5", "a\nb", "x" * 41])
def test_what_would_change_a_number_is_no_unit(unit):
    assert not is_unit(unit)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int32, np.float16, np.float32])
def test_numbers_of_every_kind_are_returns(kind):
    made = Episodes.from_returns(np.array([0, 1], dtype=kind), sigma=0.1, floor=0)
    assert made.returns.dtype == np.float64
    assert made.returns.tolist() == [0, 1]


def untrusted(path, header, **arrays):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    write_arrays(path, {"header": np.frombuffer(text, dtype=np.uint8), **arrays})


GOOD = {"schema": 1, "sigma": 0.1, "floor": 0.0, "ceiling": None}


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"{", "not a readable record of episodes"),
        (b"[1]", "not a readable record of episodes"),
        ({"sigma": 1}, "no readable header and returns"),
        ({**GOOD, "schema": 2}, "has schema 2, this version reads 1"),
        ({"schema": 1, "sigma": 0.1, "ceiling": 1}, "does not say its floor"),
        ({**GOOD, "sigma": "0.1"}, "must give sigma, floor and ceiling as numbers"),
        ({**GOOD, "floor": None}, "must give sigma, floor and ceiling as numbers"),
        ({**GOOD, "sigma": -1}, "sigma must be a finite number >= 0, got -1"),
        ({**GOOD, "floor": 5.0}, "no return may be below the floor 5, got 1"),
        # One noise for the bounds and another one to show.
        (
            {**GOOD, "sigma": 0.3, "sigma_per_feature": [0.1, 0.2]},
            r"has sigma 0\.3, but sigma_per_feature \[0\.1, 0\.2\]",
        ),
        ({**GOOD, "sigma_per_feature": [0.1, 0.1]}, r"has sigma 0\.1, but sigma_per_feature \[0\.1, 0\.1\]"),
        ({**GOOD, "action_sigma": 0.0}, "has an action_sigma of 0, expected one above 0, or none"),
        ({**GOOD, "action_sigma": "1"}, "must give action_sigma as a number"),
        ({**GOOD, "stated_by_user": ["roof"]}, "must list what the user stated of floor, ceiling, reward_range"),
    ],
)
def test_foreign_files_are_refused(tmp_path, header, match):
    untrusted(tmp_path / "e.npz", header, returns=np.array([1.0]))
    with pytest.raises(InputError, match=match):
        Episodes.load(tmp_path / "e.npz")


def test_returns_of_others_prove_none_of_their_limits():
    """Whatever they say of themselves; of episodes that were run here the plan says what was stated."""
    for said in ({}, {"stated_by_user": []}, {"stated_by_user": ["ceiling"]}):
        theirs = Episodes.from_returns([1.0], sigma=0.1, floor=0, ceiling=2, **said)
        assert theirs.stated_by_user == ["floor", "ceiling"]
        assert replace(theirs, ceiling=None).stated_by_user == ["floor"]
        run_here = Episodes.from_returns([1.0], sigma=0.1, floor=0, ceiling=2, block_size=5, **said)
        assert run_here.stated_by_user == said.get("stated_by_user", [])


def test_a_file_without_returns_is_refused(tmp_path):
    untrusted(tmp_path / "e.npz", GOOD)
    with pytest.raises(InputError, match="no readable header and returns"):
        Episodes.load(tmp_path / "e.npz")


STEPS = {**GOOD, "block_size": 2, "max_steps": 3, "reward_range": [0.0, 1.0], "ceiling": 3.0}
REWARDS = {"reward_values": np.array([1.0, 0.5, 0.0, 1.0]), "reward_repeats": np.array([2, 1, 1, 2])}


@pytest.mark.parametrize(
    ("header", "arrays", "match"),
    [
        ({}, {"returns": np.array([1.0, 2.0, 3.0], dtype=np.float32)}, "returns must be float64, got float32"),
        ({}, {"lengths": np.array([1, 2, 3], dtype=np.int32)}, "lengths must be int64, got int32"),
        ({}, {"lengths": np.array([1, 2, 4])}, "lengths must be from 1 to 3"),
        ({}, {"lengths": np.array([1, 0, 3])}, "lengths must be from 1 to 3"),
        ({}, {"budget_used": np.array([0.1, -0.1, 0.0])}, "budget_used must be finite numbers >= 0"),
        ({}, {"budget_used": np.array([0.1, np.nan, 0.0])}, "budget_used must be finite numbers >= 0"),
        ({}, {"budget_used_per_step": np.zeros(4)}, r"budget_used_per_step must have the shape \(3,\), got \(4,\)"),
        ({}, {"reward_values": np.ones((2, 2))}, r"reward_values must have the shape \(2,\), got \(2, 2\)"),
        ({}, {"reward_values": np.ones(3)}, "every reward needs the number of steps in a row"),
        ({}, {"reward_repeats": np.array([2, 0, 2, 2])}, "every reward needs the number of steps in a row"),
        ({}, {"reward_values": np.array([1.0, 0.5, 0.0, 1.1])}, "rewards must be from 0 to 1"),
        ({}, {"reward_values": np.array([1.0, 0.5, 0.0, np.nan])}, "rewards must be from 0 to 1"),
        ({}, {"reward_repeats": np.array([1, 2, 1, 2])}, "the rewards do not end where the episodes do"),
        ({}, {"reward_repeats": np.array([2, 1, 1, 3])}, "the rewards do not end where the episodes do"),
        ({"reward_range": None}, {}, "which need lengths, and max_steps and reward_range in the setup"),
        ({}, {"bonus": np.zeros(3)}, "unknown arrays: bonus"),
    ],
)
def test_every_array_has_a_declared_shape_type_and_range(tmp_path, header, arrays, match):
    good = {"returns": np.array([2.0, 1.0, 3.0]), "lengths": np.array([2, 1, 3]), **REWARDS}
    untrusted(tmp_path / "good.npz", STEPS, **good)
    assert len(Episodes.load(tmp_path / "good.npz")) == 3
    untrusted(tmp_path / "e.npz", {**STEPS, **header}, **{**good, **arrays})
    with pytest.raises(InputError, match=match):
        Episodes.load(tmp_path / "e.npz")


@pytest.mark.parametrize("count", [3, 5, 8])
def test_a_record_with_more_or_fewer_episodes_than_planned_is_not_complete(count):
    planned = Episodes.from_returns(np.arange(4.0), sigma=0.2, floor=0, ceiling=10, n_planned=4)
    planned.check_complete()
    other = Episodes.from_returns(np.resize(np.arange(4.0), count), sigma=0.2, floor=0, ceiling=10, n_planned=4)
    with pytest.raises(InputError, match=f"the record has {count} of 4 planned episodes"):
        other.check_complete()


def test_a_record_joined_with_itself_is_not_certified():
    """Every episode counted twice would look like twice as much evidence."""
    planned = Episodes.from_returns(np.arange(40.0), sigma=0.2, floor=0, ceiling=40, n_planned=40)
    certify(planned, [0.1])
    with pytest.raises(InputError, match="the record has 80 of 40 planned episodes"):
        certify(Episodes.concat([planned, planned]), [0.1])


def test_half_a_last_block_has_its_processor_too():
    """A difference in its bits would else be taken for a forgery."""
    record = replace(made(block_size=2), processors=(("A", 1), ("B", 1)))
    assert record[0:3].processors == record[0:4].processors == (("A", 1), ("B", 1))
    assert record[2:3].processors == (("B", 1),)


def test_luck_is_there_if_and_only_if_the_setup_says_what_it_is():
    """Without a name nothing would compare it with a rerun; and a name alone would promise what is not there."""
    returns = np.array([0.0, 1.0])
    luck = np.zeros((2, 1))
    check_arrays("file", {"returns": returns, "luck": luck}, {"luck": "observation[0]"})
    check_arrays("file", {"returns": returns}, {})
    for arrays, setup in (({"luck": luck}, {}), ({"luck": luck}, {"luck": None}), ({}, {"luck": "observation[0]"})):
        with pytest.raises(InputError, match="must have an array luck if its setup says what luck is, and only then"):
            check_arrays("file", {"returns": returns, **arrays}, setup)
