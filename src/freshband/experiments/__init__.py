"""The paper figure by figure: one file a figure, each in two scales."""
