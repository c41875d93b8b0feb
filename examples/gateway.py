"""A LoRa gateway: 200 sensors share 8 channels, and four of them may send at a time."""

import numpy as np

from freshband import Coordinator
from freshband.theory import weighted_age_bound

RATES = np.array([0.9, 0.85, 0.8, 0.7, 0.5, 0.4, 0.3, 0.2])  # nobody knows them
WEIGHTS = [5.0] * 20 + [1.0] * 180  # the first 20 are smoke detectors


def main(rounds: int = 3000) -> None:
    """Poll four sensors in each round; the line of the radio is for you to replace."""
    rng = np.random.default_rng(0)
    gateway = Coordinator("bayes", 200, 8, seed=0, weights=WEIGHTS, max_transmissions=4)
    total = np.zeros(200)
    for _ in range(rounds):
        plan = gateway.plan()  # the channel of each sensor, -1 for those that wait
        sensors = np.flatnonzero(plan >= 0)
        heard = rng.random(len(sensors)) < RATES[plan[sensors]]  # the radio
        gateway.observe(heard, clients=sensors)
        total += gateway.ages
    age = total / rounds
    best = weighted_age_bound(RATES, 200, weights=WEIGHTS, max_transmissions=4).value
    print(f"mean age: smoke detectors {age[:20].mean():.0f}, others {age[20:].mean():.0f}")
    print(f"weighted {np.average(age, weights=WEIGHTS):.1f}; no policy is below {best:.1f}")


if __name__ == "__main__":
    main()
