"""Vocabularies are appended to, never reordered: rings store positions."""

import pytest

from rankscope.schema.enums import ENUMS, code

FIRST_RELEASE = {
    "op": "all_reduce all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor all_to_all"
    " all_to_all_single broadcast reduce gather scatter barrier send recv all_reduce_coalesced all_gather_coalesced"
    " all_gather_into_tensor_coalesced reduce_scatter_coalesced reduce_scatter_tensor_coalesced broadcast_coalesced"
    " coalesced all_reduce_sparse other",
    "dtype": "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64 complex128 float8_e4m3fn"
    " float8_e5m2 uint16 uint32 uint64 mixed other",
    "reduce_op": "sum avg product min max band bor bxor premul_sum other",
    "tier": "native class dispatcher functional imported",
    "timing_source": "wait poll device_event flight_recorder trace none",
    "state": "issued completed failed",
    "phase": "data h2d forward backward optimizer checkpoint eval other",
    "role": "gradients parameters activations embedding experts object other",
    "span_kind": "data h2d forward backward optimizer checkpoint eval compile gc microbatch_forward"
    " microbatch_input_gradient microbatch_weight_gradient user",
    "boundary": "explicit framework optimizer none",
    "left_out": "warmup checkpoint eval shadow",
}


@pytest.mark.parametrize("name", FIRST_RELEASE)
def test_values_keep_their_numbers(name: str) -> None:
    values = FIRST_RELEASE[name].split()
    assert list(ENUMS[name][: len(values)]) == values


@pytest.mark.parametrize("name", ENUMS)
def test_a_value_has_one_number_that_fits_a_byte(name: str) -> None:
    numbers = [code(name, value) for value in ENUMS[name]]
    assert numbers == list(range(1, len(numbers) + 1)) and numbers[-1] < 256
    assert code(name, None) == 0


def test_a_value_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError):
        code("op", "all_recude")
