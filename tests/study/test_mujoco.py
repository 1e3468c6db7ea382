"""The page of the MuJoCo agents says what their committed episodes certify."""

from study import mujoco
from study.agents_table import ROOT
from surefoot.play.environments import task_of_card


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_budgets_are_those_of_the_literature():
    assert mujoco.BUDGETS == (0.0, 0.063, 0.126, 0.19, 0.253, 0.316)


def test_every_agent_has_episodes_of_its_weights():
    cards = mujoco.agents()
    assert {card["task"] for card in cards} == {"Hopper-v5", "HalfCheetah-v5"}
    assert [card["name"] for card, _ in mujoco.recorded()] == [card["name"] for card in cards]
    for card, episodes in mujoco.recorded():
        task = task_of_card(card)
        assert (episodes.floor, episodes.ceiling) == (task.scoring.floor, task.scoring.ceiling)
        assert episodes.sigma == card["sigma"]
        assert episodes.metadata["wrappers"] == card["environment"]["wrappers"]
        assert (episodes.returns >= task.scoring.floor).all()


def test_the_pages_are_made_of_them():
    """All medians; of the means, which rest on bets and take seconds each, those of one agent."""
    assert mujoco.table(mujoco.medians) in page("results.md")
    card, episodes = next(mujoco.recorded())
    row = [f"`{card['name']}`", f"`{card['sha256'][:8]}`", *mujoco.cells(episodes, mujoco.means)]
    assert f"| {' | '.join(row)} |" in page("results.md")


def test_something_is_certified_at_the_largest_budget():
    for _, episodes in mujoco.recorded():
        assert mujoco.medians(episodes)[-1] > episodes.floor
