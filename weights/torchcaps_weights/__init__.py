"""Trained networks for torchcaps, one folder each; `torchcaps.load("mnist")` finds them here.

Each folder's README.md is its model card, with the terms of its weights: they are those of the data that it has seen.
"""
