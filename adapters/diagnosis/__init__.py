"""Diagnosis of training throughput: loader and step are timed together and part by part.

examination.py (rounds of all parts)  ->  verdict.py (bottleneck, doubts), report.py (advice)
   timing.py (timed loops)
   ablation.py (plans that do only part of the work)
script.py (the same within a training script; user code by name)
sweep.py (the same source with other workers)  ->  ``adapters doctor --tune``

front_end.py defines the interface that a front end implements in its module ``diagnosed.py``, and
has an entry for each front end.
"""

from adapters.diagnosis.examination import diagnose
from adapters.diagnosis.report import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
