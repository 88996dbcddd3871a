"""Diagnosis of training throughput: loader and step are timed together and part by part.

examination.py (rounds of all parts)  ->  verdict.py (the bottleneck)  ->  report.py (as text)
   timing.py (timed loops)                   advice.py (changes, and what each brings)
   ablation.py (plans that do only part of the work)
   contention.py (use of the CPUs by other programs)
script.py (the same within a training script)
sweep.py (the same source with other workers)  ->  ``adapters doctor --tune``

front_end.py defines the interface that a front end implements in its module ``diagnosed.py``;
registry.py has an entry for each front end.
"""

from adapters.diagnosis.examination import diagnose
from adapters.diagnosis.report import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
