"""``shard="auto"``: which part of the data is this process's.

    frameworks (sys.modules) --\
                                claims --> believed --> (index, count), and why
    launchers (environment) ---/

Nothing is kept but which warnings were given. Any thread may call.
"""

from __future__ import annotations

import logging
from typing import Any

from adapters.ranks.claims import Claim, ContradictionError, believed
from adapters.ranks.frameworks import FRAMEWORKS, mxnet_workers, unplaced_in_cluster
from adapters.ranks.launchers import LAUNCHERS, unplaced

log = logging.getLogger("adapters")

_warned: set[str] = set()


def claim_of_this_process() -> Claim | None:
    """What is believed of this process's place; None if nobody says anything.

    Raises:
        ValueError: Two contradict each other, one says what can't be, or only MXNet's kvstore knows
            the rank.
    """
    frameworks = [claim for each in FRAMEWORKS if (claim := each()) is not None]
    workers = mxnet_workers()
    if not frameworks and workers is not None and workers > 1:
        raise ValueError(
            f'shard="auto" needs the rank of this process, and MXNet says only that there are '
            f"{workers} workers (DMLC_NUM_WORKER): give gluon_loader shard=kv, the kvstore of "
            'mx.kv.create("dist_sync"), or shard=(kv.rank, kv.num_workers)'
        )
    launchers = [claim for each in LAUNCHERS if (claim := each()) is not None]
    for claim in (*frameworks, *launchers):
        if not claim.possible:
            raise ValueError(
                f'shard="auto" needs a rank in range(world), and {claim}: set the variables right, '
                "or give shard=(index, count)"
            )
    return believed(frameworks, launchers)


def auto_shard(last: bool) -> tuple[int, int] | None:
    """``(index, count)`` of this process for ``shard="auto"``, said in one line of the log.

    Args:
        last: Nobody who is silent now will be asked again.

    Returns:
        None where nobody says anything yet, unless ``last``: then ``(0, 1)``.

    Raises:
        ValueError: As ``claim_of_this_process``; or it is only known that there are others.
    """
    claim = claim_of_this_process()
    if claim is not None:
        log.info('shard="auto": %d of %d, as %s', claim.rank, claim.world, claim)
        return claim.shard
    if not last:
        return None
    if said := "; ".join((*unplaced(), *unplaced_in_cluster())):
        raise ValueError(
            f'shard="auto" needs the rank of this process, which can\'t be read, got {said}: set '
            "the variables right, or give shard=(index, count)"
        )
    log.info(
        'shard="auto": 0 of 1, all of the data: neither JAX, PyTorch, TF_CONFIG or Horovod nor '
        "torchrun, Open MPI, MPICH, Slurm or SageMaker says that there are more processes"
    )
    return 0, 1


def shard_of_kvstore(kv: Any) -> tuple[int, int]:
    """``(index, count)`` of an MXNet kvstore, said in one line of the log."""
    shard = int(kv.rank), int(kv.num_workers)
    log.info("shard: %d of %d, as the kvstore %s says", *shard, getattr(kv, "type", ""))
    return shard


def notice_same_shard(shard: tuple[int, int] | None, auto: bool = False) -> None:
    """Warn, once, where this process seems to load what another one of its job loads, too.

    Args:
        shard: What it loads; None for all of the data.
        auto: That was found out, before anybody said anything.
    """
    try:
        claim = claim_of_this_process()
    except ContradictionError:
        return
    except ValueError:
        workers = mxnet_workers()
        if shard is None and workers:
            _warn(
                "all",
                "all of the data is loaded in each of %d workers (DMLC_NUM_WORKER): give "
                "shard=kv, the kvstore, for a part of it",
                workers,
            )
        return
    if claim is None or claim.world == 1 or shard == claim.shard:
        return
    if auto and shard == (0, 1):
        _warn(
            "early",
            'shard="auto" was asked for a batch or its length before anybody spoke, and '
            "gives all of the data; now %s: start that before the loader is used",
            claim,
        )
    elif shard is None:
        _warn(
            "all",
            'all of the data is loaded in each of %d processes (%s): give shard="auto" for '
            "a part of it; shard=(0, 1) says that it is meant",
            claim.world,
            claim,
        )
    elif shard[1] == claim.world:
        _warn("another's", "shard=%s is another process's, as %s", shard, claim)


def _warn(kind: str, message: str, *values: object) -> None:
    if kind not in _warned:
        _warned.add(kind)
        log.warning(message, *values)
