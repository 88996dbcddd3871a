"""Where does the time go: a loader and a training step measured whole, and part by part.

examination.py (rounds of all parts)  ->  verdict.py (the bottleneck)  ->  report.py (for people)
   loaders.py, trainers.py, parts.py         doubts.py (whether the figures hold), advice.py
   timing.py (a loop on a clock), ablation.py (a plan without a part of its work)
   contention.py (who had the CPUs)
sweep.py (the same source behind other workers)  ->  ``adapters tune``

faces.py is what is asked of the face towards a framework, and registry.py has a line for each; what
they answer is in a file of theirs, ``diagnosed.py``.
"""

from adapters.diagnosis.examination import diagnose
from adapters.diagnosis.report import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
