"""Benchmarks of the loaders: `pytest benchmarks` runs them, `--full` in the published size.

One row of a table is one fresh process (`harness.row`), started and watched from outside
(`harness.processes`). Experiments differ in their row program and in their contestants; table, JSON
and figure are shared (`harness.results`, `harness.tables`, `harness.figures`)::

    test_*.py      which rows an experiment has, and what they must reach
    experiments/   what a row runs          imports peers, data, harness
    peers/         the loaders of others    imports data, harness
    data/          pictures and digits
    harness/       running and reporting

`data` and `harness` import none of the others.
"""
