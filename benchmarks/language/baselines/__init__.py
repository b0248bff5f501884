"""Baselines that drop neurons: one file each, with a function `choose`.

All get the same number of neurons to keep in every layer. `layers.py` drops whole layers instead.
"""
