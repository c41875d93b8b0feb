"""Lemmas and theorems as functions: what the paper prints, and what is true."""

from freshband.theory.age import constant_age, expected_age, mean_age_of_share, rotation_age

__all__ = ["constant_age", "expected_age", "mean_age_of_share", "rotation_age"]
