"""The argument ``shard`` of a loader: its value, when ``"auto"`` is resolved, and warnings.

    detection.py (frameworks, launchers)  -->  ShardArgument("auto")  -->  (index, count)

May be called from any thread. The only module state is the set of warnings already given.
"""

from __future__ import annotations

import logging
from typing import Any

from adapters.ranks.detection import detected_rank, incomplete_reports, mxnet_workers

log = logging.getLogger("adapters")

_warned: set[str] = set()


class ShardArgument:
    """The argument ``shard`` of a loader.

    ``"auto"`` is resolved when the loader is created, if a framework or launcher reports a rank by
    then. Otherwise it is resolved on first use, because ``torch.distributed`` and others may be
    initialised in between. A resolved value is final, also in copies and pickles.

    Args:
        shard: None, ``(index, count)``, ``"auto"``, or an MXNet kvstore; already validated.

    Raises:
        ValueError: ``"auto"`` can't be resolved: a rank is out of range, reports contradict each
            other, or only MXNet's kvstore knows the rank.
    """

    def __init__(self, shard: Any) -> None:
        self.auto = isinstance(shard, str)
        self.value: tuple[int, int] | None = None
        if self.auto:
            self.value = _detected_shard()
        elif hasattr(shard, "num_workers"):
            self.value = int(shard.rank), int(shard.num_workers)
            kind = getattr(shard, "type", "")
            log.info("shard: %d of %d, as the kvstore %s says", *self.value, kind)
        elif shard is not None:
            self.value = int(shard[0]), int(shard[1])

    @property
    def open(self) -> bool:
        """True while ``"auto"`` isn't resolved."""
        return self.auto and self.value is None

    @property
    def requested(self) -> tuple[int, int] | None:
        """``(index, count)``, or ``(0, 1)`` while unresolved; None without the argument."""
        return self.part if self.auto else self.value

    @property
    def part(self) -> tuple[int, int]:
        """``(index, count)``; ``(0, 1)`` without the argument."""
        return self.value or (0, 1)

    def settle(self) -> bool:
        """Resolve ``"auto"``, for good.

        Returns:
            True if ``part`` has changed.

        Raises:
            ValueError: The reports contradict each other or are incomplete.
        """
        if not self.open:
            return False
        self.value = _detected_shard()
        if self.value is None:
            if found := "; ".join(incomplete_reports()):
                raise ValueError(
                    'shard="auto" needs the rank of this process, which can\'t be read, got '
                    f"{found}: correct the variables, or give shard=(index, count)"
                )
            log.info(
                'shard="auto": 0 of 1, all of the data: neither JAX, PyTorch, TF_CONFIG or Horovod '
                "nor torchrun, Open MPI, MPICH, Slurm or SageMaker says that there are more "
                "processes"
            )
            self.value = 0, 1
        return self.part != (0, 1)

    def notice(self) -> None:
        """Warn once if another process of the job seems to load the same data."""
        shard = self.value
        try:
            report = detected_rank()
        except ValueError:  # Reports that contradict each other say nothing.
            workers = mxnet_workers() or 0
            if shard is None and workers > 1:
                _warn(
                    "all",
                    "all of the data is loaded in each of %d workers (DMLC_NUM_WORKER): give "
                    "shard=kv, the kvstore, for a part of it",
                    workers,
                )
            return
        if report is None or report.world == 1 or shard == report.shard:
            return
        if self.auto and shard == (0, 1):
            _warn(
                "early",
                'shard="auto" gives all of the data, as nothing reported a rank when the loader '
                "was first used; now %s: start that before the loader is used",
                report,
            )
        elif shard is None:
            _warn(
                "all",
                'all of the data is loaded in each of %d processes (%s): give shard="auto" for '
                "a part of it; shard=(0, 1) says that it is meant",
                report.world,
                report,
            )
        elif shard[1] == report.world:
            _warn("another's", "shard=%s is another process's, as %s", shard, report)

    def warn_of_batches(self, state: Any, samples: int, elastic: bool) -> None:
        """Warn that a sharded loader resumes from a state that counts batches of ``samples``.

        If ``elastic``, states of this loader count samples when it has a ``shard``.
        """
        remedy = "With shard=..., state_dict() counts samples, which any number of shards can load"
        log.warning(
            "load_state_dict: %s counts batches, taken to be of %d samples over all shards, as "
            "here: right only if the run that it comes from had the same%s",
            state,
            samples,
            f". {remedy}" if elastic else "",
        )


def _detected_shard() -> tuple[int, int] | None:
    report = detected_rank()
    if report is None:
        return None
    log.info('shard="auto": %d of %d, as %s', report.rank, report.world, report)
    return report.shard


def _warn(kind: str, message: str, *values: object) -> None:
    if kind not in _warned:
        _warned.add(kind)
        log.warning(message, *values)
