"""Where each policy wins and where it loses: one table over many channel environments.

python examples/losing_cases.py [RUNS]    prints the Markdown table of "How to choose a scheduler"
"""

import sys

import freshband

AIRS = {
    "stationary": ("stationary", {}),
    "5 breakpoints": ("piecewise", {"n_breakpoints": 5}),
    "12 breakpoints, 30 % change": ("piecewise", {"n_breakpoints": 12, "p_change": 0.3}),
    "hazard 0.002": ("switching", {"hazard": 0.002}),
    "hazard 0.05": ("switching", {"hazard": 0.05}),
    "sweeping jammer": ("jammer", {"pattern": "sweep", "dwell": 100, "width": 2, "budget": 1.0}),
    "bursts of 50": ("gilbert-elliott", {"dwell": 50}),
}
POLICIES = [
    "random",
    "thompson",
    "glr-cucb:paper",
    "glr-cucb",
    "glr-cucb+aa",
    "glr-cucb+aa+rotate",
    "glr-cucb:fresh",
    "bayes",
    "bayes+aa",
    "m-exp3:paper",
    "m-exp3",
    "m-exp3+aa",
]


def main(runs: int) -> None:
    """Simulate N=5, M=2, T=20,000 everywhere and print mean ± standard error of regret."""
    cells: dict[str, list[str]] = {policy: [] for policy in POLICIES}
    for model, options in AIRS.values():
        result = freshband.simulate(model, POLICIES, runs=runs, channel_options=options)
        rows = freshband.summarise(result)["policies"]
        best = min(rows, key=lambda name: rows[name]["regret"]["mean"])
        for name, row in rows.items():
            text = f"{row['regret']['mean']:,.0f} ± {row['regret']['se']:,.0f}"
            cells[name].append(f"**{text}**" if name == best else text)
    print("| policy | " + " | ".join(AIRS) + " |")
    print("| --- |" + " ---: |" * len(AIRS))
    for name, row in cells.items():
        print(f"| `{name}` | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
