"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

import pytest

from rankscope.hooks.visible_devices import ListedDevice, Visible, own_device, visible_devices

WHOLE = [ListedDevice(f"GPU-{name}", "A100") for name in ("aa11", "aa22", "bb33")]
DIVIDED = [*WHOLE[:2], ListedDevice("MIG-1", "A100 MIG", "GPU-aa22"), ListedDevice("MIG-2", "A100 MIG", "GPU-aa22")]
MIXED = [ListedDevice("GPU-1", "A100"), ListedDevice("GPU-2", "T4")]


@pytest.mark.parametrize(
    ("variable", "uuids"),
    [
        (None, ["aa11", "aa22", "bb33"]),
        ("", []),
        ("-1", []),
        ("2,0", ["bb33", "aa11"]),
        (" 1 , 2 ", ["aa22", "bb33"]),
        ("0,9,1", ["aa11"]),
        ("0,0", ["aa11"]),
        ("GPU-bb33,GPU-aa11", ["bb33", "aa11"]),
        ("GPU-bb", ["bb33"]),
        ("GPU-aa", []),
        ("GPU-bb33,1", ["bb33"]),
        ("NoDevFiles", []),
    ],
)
def test_the_list(variable: str | None, uuids: list[str]) -> None:
    assert visible_devices(variable, None, WHOLE).uuids == tuple(f"GPU-{uuid}" for uuid in uuids)


def test_what_ends_the_list_is_said() -> None:
    assert "'9'" in visible_devices("0,9", None, WHOLE).why
    assert "'GPU-x'" in visible_devices("GPU-x", None, WHOLE).why
    assert visible_devices("0,1", None, WHOLE).why == "" == visible_devices("", None, WHOLE).why.partition("''")[0]


def test_parts_by_uuid_and_by_the_ordinal_of_their_whole() -> None:
    assert visible_devices("MIG-2", None, DIVIDED).uuids == ("MIG-2",)
    assert visible_devices("0,1", None, DIVIDED).uuids == ("GPU-aa11", None)
    assert visible_devices("1", None, DIVIDED[:3]).uuids == ("MIG-1",)


def test_several_kinds_need_the_bus_order() -> None:
    unknown = visible_devices("1", None, MIXED)
    assert unknown.uuids == (None,) and "PCI_BUS_ID" in unknown.why
    assert visible_devices("1", "PCI_BUS_ID", MIXED).uuids == ("GPU-2",)
    assert visible_devices("GPU-2", None, MIXED).uuids == ("GPU-2",)


@pytest.mark.parametrize(
    ("uuids", "index", "local_rank", "own"),
    [
        (("a", "b"), None, 1, "b"),
        (("a",), None, 3, "a"),
        (("a", "b"), 0, 1, "a"),
        (("a", "b"), None, None, "a"),
        (("a", "b"), None, 2, None),
        ((), None, 0, None),
        ((None, "b"), None, 0, None),
    ],
)
def test_the_own_device(
    uuids: tuple[str | None, ...], index: int | None, local_rank: int | None, own: str | None
) -> None:
    assert own_device(Visible(uuids), index, local_rank) == own
