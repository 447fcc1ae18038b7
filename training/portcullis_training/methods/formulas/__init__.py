"""Formulas that several methods share: scores of logits, distances to prototypes. No module here is a method."""
