"""Patients with type 1 diabetes around a meal, as a vector environment: Hovorka's model of glucose and insulin.

Equations and mean parameters: R. Hovorka and others, Nonlinear model predictive control of glucose concentration in
subjects with type 1 diabetes, Physiological Measurement 25 (2004), 905-920. Two glucose compartments, three actions of
insulin, two compartments each for insulin under the skin (the delay of the pump) and for a meal in the gut. What the
sensor shows is glucose between cells, which follows that of the blood with a lag, here a first-order one of 10 minutes
(delays of sensors: D. Keenan and others, Journal of Diabetes Science and Technology 3 (2009), 1207-1214).

The cohort is our own: sensitivities, rates and volumes are log-normal around the paper's means, with the standard
deviations in ``SPREAD``; real adults differ by more. Patient, fasting glucose, time and size of the meal are drawn at
reset and never again: they are all the luck that there is.

A step is one reading: 5 minutes, in five steps of the classical Runge-Kutta method. An episode is 8 hours. The action
is the rate of insulin in multiples of the patient's own basal rate, which keeps fasting glucose at 117 mg/dL. The meal
is not announced. The reward is 1 for every reading in range, 70 to 180 mg/dL of blood glucose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MG_PER_MMOL = 18.016  # mg/dL of glucose per mmol/L
MINUTES = 5  # between readings
READINGS = 96  # of an episode: 8 hours
LOW, HIGH = 70.0, 180.0  # mg/dL: the range in which readings count
MOST = 5.0  # basal rates that the pump can give
EATING = 3  # steps that a meal takes
SENSOR_LAG = 10.0  # minutes
BASAL_GLUCOSE = 6.5  # mmol/L: what the basal rate keeps

# Per kilogram where the paper has it so; the names are the paper's.
MEANS = {
    "k12": 0.066,  # 1/min
    "ka1": 0.006,  # 1/min
    "ka2": 0.06,
    "ka3": 0.03,
    "SIT": 51.2e-4,  # 1/min per mU/L
    "SID": 8.2e-4,
    "SIE": 520e-4,  # per mU/L
    "ke": 0.138,  # 1/min
    "VI": 0.12,  # L/kg
    "VG": 0.16,
    "AG": 0.8,
    "tmaxG": 40.0,  # min
    "tmaxI": 55.0,
    "EGP0": 0.0161,  # mmol/kg/min
    "F01": 0.0097,
}
# Standard deviations of logarithms; the three sensitivities of a patient have one part in common.
SPREAD = {"SIT": 0.15, "SID": 0.15, "SIE": 0.15, "VI": 0.1, "VG": 0.1, "tmaxG": 0.2, "tmaxI": 0.15}
SPREAD |= {"EGP0": 0.1, "F01": 0.1}
COMMON_SPREAD = 0.3
WEIGHTS = (60.0, 100.0)  # kg
FASTING = (5.5, 8.5)  # mmol/L at the beginning
MEAL_SIZES = (30.0, 80.0)  # g of carbohydrate
MEAL_TIMES = (6, 24)  # readings after the beginning
STATES = ("Q1", "Q2", "S1", "S2", "I", "x1", "x2", "x3", "D1", "D2", "sensor")


def draw_patients(random: np.random.Generator, n: int) -> dict[str, Floats]:
    """Draw patients: a value of each parameter, and a weight, for each."""
    drawn = {"weight": random.uniform(*WEIGHTS, n)}
    common = random.normal(0.0, COMMON_SPREAD, n)
    for name, mean in MEANS.items():
        shift = SPREAD.get(name, 0.0) * random.normal(size=n)
        if name.startswith("SI"):
            shift = shift + common
        drawn[name] = mean * np.exp(shift)
    return drawn


def slopes(state: Floats, patient: dict[str, Floats], insulin: Floats, meal: Floats) -> Floats:
    """Return the derivative of the state per minute.

    Args:
        state: One row for each of ``STATES``: mmol, mU, mU/L and, of the sensor, mmol/L.
        patient: Parameters.
        insulin: Rate of the pump, mU/min.
        meal: Rate of eating, mmol of glucose per minute.
    """
    q1, q2, s1, s2, plasma, x1, x2, x3, d1, d2, sensor = state
    p = patient
    volume = p["VG"] * p["weight"]
    glucose = q1 / volume
    # What brain and nerves take, less where there is little; what the kidneys let through, where there is much.
    used = p["F01"] * p["weight"] * np.minimum(glucose / 4.5, 1.0)
    lost = 0.003 * np.maximum(glucose - 9.0, 0.0) * volume
    made = p["EGP0"] * p["weight"] * np.maximum(1.0 - x3, 0.0)
    return np.stack(
        (
            -used - lost - x1 * q1 + p["k12"] * q2 + d2 / p["tmaxG"] + made,
            x1 * q1 - (p["k12"] + x2) * q2,
            insulin - s1 / p["tmaxI"],
            (s1 - s2) / p["tmaxI"],
            s2 / p["tmaxI"] / (p["VI"] * p["weight"]) - p["ke"] * plasma,
            p["ka1"] * (p["SIT"] * plasma - x1),
            p["ka2"] * (p["SID"] * plasma - x2),
            p["ka3"] * (p["SIE"] * plasma - x3),
            p["AG"] * meal - d1 / p["tmaxG"],
            (d1 - d2) / p["tmaxG"],
            (glucose - sensor) / SENSOR_LAG,
        )
    )


def advanced(state: Floats, patient: dict[str, Floats], insulin: Floats, meal: Floats) -> Floats:
    """Return the state one reading later."""
    for _ in range(MINUTES):
        one = slopes(state, patient, insulin, meal)
        two = slopes(state + one / 2, patient, insulin, meal)
        three = slopes(state + two / 2, patient, insulin, meal)
        four = slopes(state + three, patient, insulin, meal)
        state = state + (one + 2 * two + 2 * three + four) / 6
    return state


def steady_state(patient: dict[str, Floats], glucose: Floats) -> tuple[Floats, Floats]:
    """Return the state in which glucose (mmol/L) stays as it is, and the rate of insulin (mU/min) that keeps it."""
    p = patient
    volume = p["VG"] * p["weight"]
    q1 = glucose * volume
    low = np.zeros(glucose.shape)
    high = np.full(glucose.shape, 200.0)

    def state_at(plasma: Floats) -> Floats:
        x1 = p["SIT"] * plasma
        x2 = p["SID"] * plasma
        q2 = x1 * q1 / (p["k12"] + x2)
        under_skin = plasma * p["ke"] * p["VI"] * p["weight"] * p["tmaxI"]
        nothing = np.zeros(glucose.shape)
        rows = (q1, q2, under_skin, under_skin, plasma, x1, x2, p["SIE"] * plasma, nothing, nothing, glucose)
        return np.stack(rows)

    # More insulin always means that glucose falls faster.
    for _ in range(60):
        middle = (low + high) / 2
        rises = slopes(state_at(middle), patient, middle, np.zeros(glucose.shape))[0] > 0
        low = np.where(rises, middle, low)
        high = np.where(rises, high, middle)
    state = state_at((low + high) / 2)
    return state, state[2] / p["tmaxI"]


class Patients(VectorEnv[Any, Any, Any]):
    """Patients who start an episode together; what is seen is the sensor's glucose in mg/dL and the minutes so far."""

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = spaces.Dict(
            {
                "glucose": spaces.Box(0.0, np.inf, (1,), np.float32),
                "minutes": spaces.Box(0.0, np.inf, (1,), np.float32),
            }
        )
        self.single_action_space = spaces.Box(0.0, MOST, (1,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw patients and meals."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self._start()
        return self._show(), {}

    def _start(self) -> None:
        n = self.num_envs
        self.patient = draw_patients(self.random, n)
        self.state, _ = steady_state(self.patient, self.random.uniform(*FASTING, n))
        _, self.basal = steady_state(self.patient, np.full(n, BASAL_GLUCOSE))
        self.meal_at = self.random.integers(*MEAL_TIMES, n)
        grams = self.random.uniform(*MEAL_SIZES, n)
        self.eaten = grams * 1000 / 180.16 / (EATING * MINUTES)  # mmol/min
        self.n_steps = 0
        self.is_low = np.zeros(n, dtype=bool)

    def step(self, actions: Any) -> tuple[Any, Floats, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Give insulin until the next reading; all patients end together."""
        n = self.num_envs
        if self.n_steps == READINGS:
            # This step starts them again.
            self._start()
            return self._show(), np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool), {}
        multiples = np.clip(np.asarray(actions, dtype=np.float64).reshape(n), 0.0, MOST)
        since = self.n_steps - self.meal_at
        meal = np.where((since >= 0) & (since < EATING), self.eaten, 0.0)
        self.state = advanced(self.state, self.patient, multiples * self.basal, meal)
        self.n_steps += 1
        glucose = self.glucose
        self.is_low |= glucose < LOW
        in_range = (glucose >= LOW) & (glucose <= HIGH)
        over = np.full(n, self.n_steps == READINGS)
        # What --success names: an episode without hypoglycemia.
        info = {"never_low": ~self.is_low, "_never_low": over}
        return self._show(), in_range.astype(np.float64), over, np.zeros(n, dtype=bool), info

    @property
    def glucose(self) -> Floats:
        """Glucose in the blood, mg/dL."""
        in_blood: Floats = self.state[0] / (self.patient["VG"] * self.patient["weight"]) * MG_PER_MMOL
        return in_blood

    def _show(self) -> dict[str, Any]:
        sensed = self.state[-1] * MG_PER_MMOL
        minutes = np.full(self.num_envs, self.n_steps * MINUTES)
        return {
            "glucose": sensed[:, None].astype(np.float32),
            "minutes": minutes[:, None].astype(np.float32),
        }
