"""Where does the time go: a loader and a training step measured whole, and part by part.

examination.py (the parts, on a clock)  ->  verdict.py (the bottleneck)  ->  report.py (for people)
sweep.py (the same source behind other workers)  ->  ``adapters tune``
"""

from adapters.diagnosis.examination import diagnose
from adapters.diagnosis.verdict import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
