"""The patients of the artificial pancreas: the model against scipy's integrator, and what a controller is given."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from cases.pancreas import controller
from cases.pancreas.patient import EATING, MINUTES, READINGS, Patients, advanced, draw_patients, slopes, steady_state


def one_patient(seed=0):
    return draw_patients(np.random.default_rng(seed), 1)


@pytest.mark.parametrize("seed", range(4))
def test_the_model_is_what_scipy_computes(seed):
    """A meal after an hour, and a pump that stops and doubles: all states within a ten-thousandth of their largest."""
    patient = one_patient(seed)
    state, basal = steady_state(patient, np.array([6.5]))
    of_scipy = state[:, 0]
    largest = np.abs(of_scipy)
    for reading in range(48):
        insulin = basal * (1.0, 0.0, 2.0)[reading // 16]
        meal = np.array([20.0 if 12 <= reading < 12 + EATING else 0.0])

        def fall(_, x, insulin=insulin, meal=meal):
            return slopes(x[:, None], patient, insulin, meal)[:, 0]

        state = advanced(state, patient, insulin, meal)
        of_scipy = solve_ivp(fall, (0, MINUTES), of_scipy, rtol=1e-9, atol=1e-12).y[:, -1]
        largest = np.maximum(largest, np.abs(of_scipy))
        assert np.all(np.abs(state[:, 0] - of_scipy) <= 1e-4 * largest + 1e-12)


def test_a_coarser_integrator_is_noticed(monkeypatch):
    """Steps of 5 minutes instead of 1: the comparison above must see the difference."""
    from cases.pancreas import patient as module

    def euler(state, who, insulin, meal):
        return state + MINUTES * slopes(state, who, insulin, meal)

    monkeypatch.setitem(globals(), "advanced", euler)
    assert module.advanced is not euler
    with pytest.raises(AssertionError):
        test_the_model_is_what_scipy_computes(0)


def test_the_basal_rate_keeps_glucose_where_it_is():
    patient = draw_patients(np.random.default_rng(1), 50)
    state, basal = steady_state(patient, np.full(50, 6.5))
    assert np.all(basal > 0)
    later = state
    for _ in range(24):
        later = advanced(later, patient, basal, np.zeros(50))
    assert later == pytest.approx(state, rel=1e-6, abs=1e-9)


def test_more_insulin_lowers_glucose_and_a_meal_raises_it():
    patient = draw_patients(np.random.default_rng(2), 20)
    state, basal = steady_state(patient, np.full(20, 6.5))
    ends = []
    for dose, meal in ((1.0, 0.0), (2.0, 0.0), (1.0, 5.0)):
        later = state
        for _ in range(36):
            later = advanced(later, patient, dose * basal, np.full(20, meal))
        ends.append(later[0])
    assert np.all(ends[1] < ends[0])
    assert np.all(ends[2] > ends[0])


def test_an_episode_is_eight_hours_and_starts_afresh():
    days = Patients(3)
    first, _ = days.reset(seed=1)
    again, _ = Patients(3).reset(seed=1)
    assert np.array_equal(first["glucose"], again["glucose"])
    rewards = []
    for step in range(READINGS):
        shown, reward, over, cut, info = days.step(np.ones((3, 1)))
        rewards.append(reward)
        assert over.all() == (step == READINGS - 1)
        assert not cut.any()
    assert shown["minutes"].ravel().tolist() == [480.0] * 3
    assert set(np.unique(rewards)) <= {0.0, 1.0}
    assert info["_never_low"].all()
    shown, reward, over, _, _ = days.step(np.ones((3, 1)))
    assert not over.any()
    assert reward.tolist() == [0.0] * 3
    assert shown["minutes"].ravel().tolist() == [0.0] * 3


def test_the_controller_gives_more_where_glucose_rises_and_forgets_what_it_has_not_seen():
    flat = np.zeros((1, controller.REMEMBERED, 2))
    flat[:, :, 0] = controller.REFERENCE
    flat[:, :, 1] = 300.0
    rising = flat.copy()
    rising[:, -3:, 0] += (20, 40, 60)
    assert controller.proportional(flat).item() == pytest.approx(controller.LATE, rel=1e-4)
    assert controller.proportional(rising).item() > controller.LATE + 0.5
    # At the first reading the stack is full of copies of it: one counts.
    start = flat.copy()
    start[:, :, 0] = 300.0
    start[:, :, 1] = 0.0
    excess = 300.0 - controller.REFERENCE
    slow, quick = controller.SLOW * excess, controller.QUICK * excess
    expected = controller.EARLY + controller.PROPORTIONAL * slow + controller.DERIVATIVE * (quick - slow)
    assert controller.proportional(start).item() == pytest.approx(min(expected, controller.MOST), rel=1e-5)
    assert torch.equal(controller.constant(2.0)(flat), torch.full((1, 1), 2.0))
