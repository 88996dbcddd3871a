"""The shim that older tools ask for; everything stands in setup.cfg."""

from setuptools import setup

setup()
