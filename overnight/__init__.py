"""Overnight: offline batch inference that people trust to run while they sleep."""
