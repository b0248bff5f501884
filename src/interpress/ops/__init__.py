"""Operator rules: how every operator moves channels, and what it costs.

One file per operator family. The registry imports all files of this package on first use.
"""
