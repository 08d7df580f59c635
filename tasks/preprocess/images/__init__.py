"""Decoding and scaling of images."""
