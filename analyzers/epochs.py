"""What was drawn in one epoch over all data coordinates: samples drawn twice, never drawn, padded by the sampler.

From digests alone it can be shown that all is right: the digests of all shares add up to that of the whole data set
plus that of the padding. Where they do not, only the kept indices (RANKSCOPE_INDICES=1) tell which samples; without
them the answer is none. The shares are those of the sampler (`num_replicas`): without one, a run of several ranks does
not say which of them are to see the same samples.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from rankscope.schema.sample_indices import MODULUS, Indices, decode, digest_of_range

from .groups import named_ranks

MAX_SIZE: Final = 300_000_000
"""Samples of a data set whose digest is worked out for a report (about two seconds)."""


@dataclass(frozen=True, slots=True)
class Share:
    """One row of sample_epoch, in the order of the statement `epochs` of loading.sql."""

    incarnation: int
    loader: str
    epoch: int
    rank: int | None
    proc: int
    dataset_size: int | None
    num_samples: int | None
    num_replicas: int | None
    replica: int | None
    num_padded: int | None
    digest: int | None
    padding_digest: int | None
    is_complete: bool
    drops_last: bool
    indices: str | None
    indices_format: str | None
    why: str | None
    is_shuffled: bool | None


@dataclass(frozen=True, slots=True)
class Drawn:
    """The answer. num_samples: drawn over all shares, padding included. duplicated, missing: None with a reason.

    is_wrong: the digests contradict the data set, so something was drawn twice, or never, beyond padding and rest.
    """

    num_samples: int | None
    num_padded: int | None
    duplicated: int | None
    missing: int | None
    reason: str = ""
    is_wrong: bool = False


def repeats(rows: Sequence[Share]) -> bool:
    """Every rank draws the same part of the data set in each epoch of one loader, although its sampler shuffles.

    So it is where nobody calls `set_epoch` of torch's DistributedSampler.
    """
    known = [row for row in rows if row.is_complete and row.digest is not None]
    is_part = all((row.num_replicas or 0) > 1 and row.is_shuffled and row.num_samples for row in known)
    by_rank: dict[tuple[int, int | None], set[int | None]] = defaultdict(set)
    for row in known:
        by_rank[row.proc, row.replica].add(row.digest)
    num_epochs = len({row.epoch for row in known})
    return is_part and num_epochs > 1 and len(known) > len(by_rank) and all(len(seen) == 1 for seen in by_rank.values())


def drawn(rows: Sequence[Share], num_ranks: int) -> Drawn:
    """What the shares of one epoch of one loader in one incarnation drew together."""
    shares, reason = _one_a_share(rows, num_ranks)
    known = [row.num_samples for row in shares if row.num_samples is not None]
    total = sum(known) if shares and len(known) == len(shares) else None
    padded = _sum([row.num_padded for row in shares])
    if reason:
        twice = _twice(rows, num_ranks)
        return Drawn(total, padded, None, None, "; ".join(filter(None, (twice, reason))), is_wrong=bool(twice))
    if all(row.indices is not None for row in shares):
        return _by_indices(shares, total, padded)
    return _by_digest(shares, total, padded)


def _one_a_share(rows: Sequence[Share], num_ranks: int) -> tuple[list[Share], str]:
    """One row for each share of the data set, or why that cannot be had."""
    first = rows[0]
    silent = next((row.why for row in rows if row.digest is None and row.why), None)
    if silent or not all(row.is_complete for row in rows):
        return list(rows), silent or "the epoch was left before its end, or not seen from its begin"
    if first.num_replicas is None:
        unknown = "the sampler does not say which share of the data set a rank is to draw"
        return (list(rows), unknown) if num_ranks > 1 else ([first], "")
    by_share = {row.replica: row for row in rows}
    if set(by_share) != set(range(first.num_replicas)):
        return list(by_share.values()), f"{len(by_share)} of {first.num_replicas} shares of the data set were seen"
    if any(row.digest != by_share[row.replica].digest for row in rows):
        return list(by_share.values()), "ranks of one share drew different samples"
    return [by_share[share] for share in sorted(by_share, key=lambda share: share or 0)], ""


def _twice(rows: Sequence[Share], num_ranks: int) -> str:
    """Which ranks drew the same share although others were left over for them; "" if none did.

    Only where every rank of the job drew: ranks of a tensor or pipeline group may share, but then no share is left.
    """
    num_shares = rows[0].num_replicas
    by_share: dict[int | None, list[Share]] = defaultdict(list)
    for row in rows:
        by_share[row.replica].append(row)
    if num_shares is None or not len(by_share) < num_shares <= num_ranks <= len({row.rank for row in rows}):
        return ""
    if not all(row.is_complete and row.digest is not None for row in rows):
        return ""
    share, those = next(item for item in by_share.items() if len(item[1]) > 1)
    ranks = tuple(sorted(row.rank for row in those if row.rank is not None))
    return f"{named_ranks(ranks)} all drew share {share} of {num_shares}"


def _by_digest(shares: list[Share], total: int | None, padded: int | None) -> Drawn:
    size = shares[0].dataset_size
    if size is None or total is None:
        return Drawn(total, padded, None, None, "the size of the data set is not known")
    if padded is None:
        return Drawn(total, padded, None, None, "the sampler pads the shares in a way that is not known")
    if size > MAX_SIZE:
        return Drawn(total, padded, None, None, f"more than {MAX_SIZE:,} samples: the digest is not worked out")
    found = sum(row.digest or 0 for row in shares) - sum(row.padding_digest or 0 for row in shares)
    if total - padded == size and (found - _whole(size)) % MODULUS == 0:
        return Drawn(total, padded, 0, 0)
    if any(row.drops_last for row in shares) and total - padded < size:
        why = f"{total - padded:,} of {size:,} samples drawn, the rest is dropped: the indices tell which"
        return Drawn(total, padded, None, None, why)
    why = f"the digests do not add up to the data set ({total - padded:,} drawn of {size:,}): the indices tell which"
    return Drawn(total, padded, None, None, why, is_wrong=True)


def _by_indices(shares: list[Share], total: int | None, padded: int | None) -> Drawn:
    try:
        sets: list[Indices] = [decode(row.indices_format or "", row.indices or "") for row in shares]
    except (ValueError, ImportError) as error:
        return Drawn(total, padded, None, None, str(error))
    distinct = np.unique(np.concatenate(sets))
    if total is None:
        return Drawn(total, padded, None, None, "the number of samples drawn is not known")
    size = shares[0].dataset_size
    missing = None if size is None else size - int(np.count_nonzero(distinct < size))
    duplicated = total - len(distinct) - (padded or 0)
    drops = any(row.drops_last for row in shares)
    is_wrong = (padded is not None and duplicated > 0) or bool(missing and not drops)
    return Drawn(total, padded, duplicated, missing, "" if missing is not None else "no size", is_wrong)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


@lru_cache(maxsize=16)
def _whole(size: int) -> int:
    return digest_of_range(size)
