"""Simulation: the round without training, thousands of runs in seconds."""

from freshband.simulation.monte_carlo import simulate
from freshband.simulation.result import load_result, save_result, summarise

__all__ = ["load_result", "save_result", "simulate", "summarise"]
