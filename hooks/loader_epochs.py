"""One epoch of a data loader in this process: what was drawn, in which batch, and the row that tells it at the end.

Batches are drawn from the sampler before they are handed over (prefetching workers), so digests wait under the number
of their batch. Padding is known for torch's own DistributedSampler: the last samples of the last replicas are drawn
again, at most one a replica.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from rankscope.schema import sample_indices
from rankscope.schema.sample_indices import Indices

ITERABLE: Final = "the data set is iterable: it has no indices"
NOT_WHOLE: Final = "the sampler's keys are not whole numbers"
NOT_SEEN: Final = "the loader was already running when it was first seen"
OVER_BUDGET: Final = "observing every batch would have cost more than the budget"
MAX_AT_ONCE: Final = 1 << 16
"""Indices of a batch up to which the arrays of its digest are kept for the next one (2 MiB)."""
MAX_KEPT: Final = 1 << 26
"""Indices of one epoch that are kept until its end (512 MiB); more are not."""


class Epoch:
    """An epoch in progress. `drew` and `handed_over` are called for every batch; `row` at the end."""

    __slots__ = (
        "_columns", "_dataset", "_digest", "_is_begun", "_is_plain", "_keeps", "_kept", "_last", "_num_kept",
        "_sampler", "_waiting", "digest", "end_ns", "is_from_begin", "is_single", "is_thinned", "loader", "num_batches",
        "num_samples", "number", "reference", "start_ns", "why",
    )  # fmt: skip

    def __init__(
        self, iterator: Any, loader: int, loader_name: str, number: int, start_ns: int, *, keeps: bool
    ) -> None:
        """start_ns: 0 if the begin was not seen. keeps: the indices are wanted."""
        self.loader, self.number, self.start_ns, self.end_ns = loader, number, start_ns, start_ns
        self.is_from_begin, self.is_single = start_ns > 0, iterator._num_workers == 0
        self.is_thinned = False
        self.reference: Any = None
        self._dataset, self._sampler = iterator._dataset, _sampler(iterator)
        shuffles = getattr(self._sampler, "shuffle", None)
        self._columns: dict[str, object] = {
            "epoch": number, "loader": loader_name, "sampler": type(self._sampler).__name__,
            "start_ns": start_ns or None, "num_workers": iterator._num_workers,
            "batch_size": getattr(iterator._index_sampler, "batch_size", None),
            "is_persistent": bool(iterator._persistent_workers),
            "drops_last": bool(iterator._drop_last or getattr(self._sampler, "drop_last", False)),
            "is_shuffled": shuffles if isinstance(shuffles, bool) else None,
            "num_replicas": getattr(self._sampler, "num_replicas", None),
            "replica": getattr(self._sampler, "rank", None),
        }  # fmt: skip
        self.digest, self.num_batches, self.num_samples = 0, 0, 0
        self.why = "" if _is_map_style(iterator) else ITERABLE
        self._keeps, self._num_kept, self._last = keeps and not self.why, 0, -1
        self._kept: list[Indices] = []
        self._waiting: dict[int, tuple[int, int]] = {}
        self._digest = sample_indices.Digester()  # of its own: an epoch is drawn by one thread
        self._is_begun, self._is_plain = False, not self.why and not self._keeps

    def drew(self, iterator: Any, key: Any) -> None:
        """The sampler gave `key`: a list of indices, or one index where the loader makes no batches."""
        if not self._is_begun:
            self._begin(iterator)
        if self.why != ITERABLE:
            self._waiting[0 if self.is_single else iterator._send_idx] = self._take(key)

    def _begin(self, iterator: Any) -> None:
        """What the iterator's own class sets only after the base class, where an epoch begins."""
        self._is_begun = True
        self._columns["prefetch_factor"] = getattr(iterator, "_prefetch_factor", None)

    def _take(self, key: Any) -> tuple[int, int]:
        """(samples, digest) of what the sampler gave."""
        if self._is_plain:
            few = [key] if type(key) is int else key
            if type(few) is list and 0 < len(few) <= MAX_AT_ONCE and type(few[0]) is int:
                try:
                    digest = self._digest(few)
                except struct.error:  # not whole numbers, or not all
                    return self._take_other(key)
                num = len(few)
                self.digest, self._last = self.digest + digest, few[-1]
                self.num_samples += num
                return num, digest
        return self._take_other(key)

    def _take_other(self, key: Any) -> tuple[int, int]:
        found = None if self.why else _indices(key)
        if found is None:
            self.why, self._is_plain = self.why or NOT_WHOLE, False
            num, digest = _length(key), 0
        else:
            num, digest = len(found), sample_indices.digest(found)
            self.digest += digest
            self._last = int(found[-1]) if num else self._last
            if self._keeps:
                self._keep(found)
        self.num_samples += num
        return num, digest

    def thin(self) -> None:
        """From now on not every batch is observed: what needs all of them is given up."""
        self.why, self._is_plain, self.is_thinned = self.why or OVER_BUDGET, False, True
        self._keeps, self.num_batches = False, -1
        self._kept.clear()
        self._waiting.clear()

    def handed_over(self, number: int = 0) -> tuple[int, int]:
        """(samples, digest) of the batch with that number (0 without workers): -1 and 0 where it is not known."""
        if not self.is_thinned:
            self.num_batches += 1
        num, digest = self._waiting.pop(number, (-1, 0))
        return num, 0 if self.why else digest

    def row(self, step: int, *, is_exhausted: bool) -> dict[str, object]:
        """The columns of sample_epoch. is_exhausted: the sampler had no more."""
        is_complete = is_exhausted and self.is_from_begin
        found = self._columns | {
            "step": step, "end_ns": self.end_ns or None, "dataset_size": self._size(),
            "num_batches": self.num_batches if self.num_batches >= 0 else None,
            "is_complete": is_complete, "why": self.why or ("" if self.is_from_begin else NOT_SEEN) or None,
        }  # fmt: skip
        if self.why not in (ITERABLE, OVER_BUDGET):
            found["num_samples"] = self.num_samples
        if not self.why:
            found["digest"] = sample_indices.signed(self.digest % sample_indices.MODULUS)
            found |= self._padding() if is_complete else {}
            found |= self._encoded()
        return found

    def _keep(self, found: Indices) -> None:
        self._num_kept += len(found)
        if self._num_kept <= MAX_KEPT:
            self._kept.append(found)

    def _encoded(self) -> dict[str, object]:
        if not self._keeps:
            return {}
        if self._num_kept > MAX_KEPT:
            return {"why": f"more than {MAX_KEPT} indices in an epoch are not kept"}
        try:
            form, text = sample_indices.encode(np.concatenate([np.empty(0, np.int64), *self._kept]))
        except ValueError as error:
            return {"why": str(error)}
        return {"indices": text, "indices_format": form}

    def _size(self) -> int | None:
        if self.why == ITERABLE:
            return None
        try:
            return len(self._dataset)
        except Exception:  # noqa: BLE001  the user's own __len__, which need not be there
            return None

    def _padding(self) -> dict[str, object]:
        from torch.utils.data.distributed import DistributedSampler

        sampler = self._sampler
        if not isinstance(sampler, DistributedSampler):
            return {} if hasattr(sampler, "num_replicas") else {"num_padded": 0, "padding_digest": 0}
        if type(sampler).__iter__ is not DistributedSampler.__iter__:
            return {}
        padding = 0 if sampler.drop_last else sampler.total_size - len(sampler.dataset)  # type: ignore[arg-type]
        # Dropped with the incomplete last batch: the padded sample is the last one.
        is_padded = sampler.rank >= sampler.num_replicas - padding and self.num_samples == sampler.num_samples
        last = np.array([self._last], np.int64)
        return {"num_padded": int(is_padded),
                "padding_digest": sample_indices.signed(sample_indices.digest(last)) if is_padded else 0}  # fmt: skip


def _is_map_style(iterator: Any) -> bool:
    from torch.utils.data import IterableDataset

    return not isinstance(iterator._dataset, IterableDataset)


def _sampler(iterator: Any) -> Any:
    """The sampler behind the batch sampler, if it says which."""
    return getattr(iterator._index_sampler, "sampler", iterator._index_sampler)


def _indices(key: Any) -> Indices | None:
    """`key` as an array; None if it is not made of whole numbers."""
    try:
        if isinstance(key, Sequence) and not isinstance(key, (str, bytes)):
            return np.fromiter(key, np.int64, len(key)) if not key or _is_whole(key[0]) else None
        if getattr(key, "ndim", 0) == 1:  # a batch as a tensor or an array
            values = [] if _is_elsewhere(key) else key.tolist()
            return np.array(values, np.int64) if _is_whole(values[0]) else None
        return np.array([int(key)], np.int64) if _is_whole(key) else None
    except (TypeError, ValueError, OverflowError, IndexError, AttributeError):
        return None


def _is_whole(key: Any) -> bool:
    if isinstance(key, int):
        return True
    return hasattr(key, "__index__") and not getattr(key, "ndim", 0) and not _is_elsewhere(key)


def _is_elsewhere(key: Any) -> bool:
    """`key` is a tensor on a device: to read it would be to wait for the device."""
    return getattr(getattr(key, "device", None), "type", "cpu") != "cpu"


def _length(key: Any) -> int:
    return len(key) if isinstance(key, Sequence) and not isinstance(key, (str, bytes)) else 1
