"""Mirrors ``adapters/``: a folder per room, a file per module."""
