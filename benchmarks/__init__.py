"""Benchmarks of the loaders: `pytest benchmarks` runs them, `--full` in the published size.

One row of a table is one fresh process (`row`), started and watched from outside (`processes`).
Experiments differ in their row program and in their contestants; table, JSON and figure are shared
(`results`, `tables`, `figures`).
"""
