"""Keras's and MXNet's own tests, with this package in the place of what they test."""
