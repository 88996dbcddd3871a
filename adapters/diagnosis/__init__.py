"""Where does the time go: a loader and a training step measured whole, and part by part.

examination.py (rounds of all parts)  ->  verdict.py (the bottleneck)  ->  report.py (for people)
   loaders.py, trainers.py, parts.py         doubts.py (whether the figures hold), advice.py
   contention.py (who had the CPUs)
sweep.py (the same source behind other workers)  ->  ``adapters tune``
"""

from adapters.diagnosis.examination import diagnose
from adapters.diagnosis.verdict import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
