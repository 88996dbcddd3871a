"""Tests of ``adapters.gluon``, with MXNet's own DataLoader as the oracle."""
