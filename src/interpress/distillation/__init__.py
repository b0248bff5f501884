"""Distillation without labels: gradient steps from a compressed network towards its original."""
