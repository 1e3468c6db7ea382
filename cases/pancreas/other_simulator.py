"""The mean patient next to that of another simulator: ``python -m cases.pancreas.other_simulator``.

It needs ``pip install glucosim==0.1.1`` (MIT), whose adult is Bergman's minimal model with insulin that acts at once.
Both patients start at 110 mg/dL with a pump that gives their own basal rate, and are watched for 8 hours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cases.pancreas.patient import EATING, MEANS, MG_PER_MMOL, MINUTES, READINGS, advanced, steady_state

FASTING = 110.0  # mg/dL
WEIGHT = 70.0  # kg
AT = 60  # minutes: when a meal begins, or the pump changes
Pump = Callable[[int], float]  # basal rates at a minute


def give_four_rates_for_two_hours(minute: int) -> float:
    """Return the rate of a pump that is told of the meal."""
    return 4.0 if AT <= minute < AT + 120 else 1.0


CASES: dict[str, tuple[float, Pump]] = {
    "a meal of 50 g": (50.0, lambda _: 1.0),
    "a meal of 50 g, and four basal rates for two hours": (50.0, give_four_rates_for_two_hours),
    "twice the basal rate": (0.0, lambda minute: 2.0 if minute >= AT else 1.0),
    "a pump that stops": (0.0, lambda minute: 0.0 if minute >= AT else 1.0),
}


def watch_mean_patient(grams: float, pump: Pump) -> list[float]:
    """Return the readings of blood glucose of the patient of this case with all parameters at their means."""
    patient = {name: np.array([mean]) for name, mean in MEANS.items()}
    patient["weight"] = np.array([WEIGHT])
    state, basal = steady_state(patient, np.array([FASTING / MG_PER_MMOL]))
    eaten = grams * 1000 / 180.16 / (EATING * MINUTES)
    readings = []
    for reading in range(READINGS):
        is_eating = AT <= reading * MINUTES < AT + EATING * MINUTES
        state = advanced(state, patient, basal * pump(reading * MINUTES), np.array([eaten * is_eating]))
        readings.append(float(state[0, 0] / (patient["VG"][0] * WEIGHT) * MG_PER_MMOL))
    return readings


def watch_other_adult(grams: float, pump: Pump) -> list[float]:
    """Return the same of the adult of glucosim."""
    from glucosim.models.bergman import BergmanModel
    from glucosim.models.meal import MealModel

    adult = BergmanModel({"Gb": FASTING})
    gut = MealModel()
    known = adult.params
    # U/h, what keeps plasma insulin where it is
    basal = known["n"] * known["Ib"] * 60 * known["VI"] * known["body_weight"] / 1000
    glucose = []
    for minute in range(READINGS * MINUTES):
        if minute == AT and grams > 0:
            gut.announce_meal(grams)
        glucose.append(adult.step(basal * pump(minute), gut.step(1.0))["glucose"])
    return glucose[MINUTES - 1 :: MINUTES]


def main() -> None:
    """Print for both how far glucose goes from where it was, and after how long."""
    for name, (grams, pump) in CASES.items():
        print(name)
        for who, watch in (("this case", watch_mean_patient), ("glucosim", watch_other_adult)):
            moved = np.array(watch(grams, pump)) - FASTING
            farthest = int(np.argmax(np.abs(moved)))
            minutes = (farthest + 1) * MINUTES - AT
            print(f"  {who:9}  {moved[farthest]:+4.0f} mg/dL after {minutes} minutes, {moved[-1]:+4.0f} in the end")


if __name__ == "__main__":
    main()
