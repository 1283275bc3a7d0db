"""Compilations: one span for each outermost one, named after its trigger, whatever becomes of it."""

from contextlib import ExitStack

import pytest
import torch

from rankscope.hooks import compile_time

pytestmark = pytest.mark.slow  # loads torch's compiler


@pytest.fixture
def compiling(recorder):
    with ExitStack() as undo:
        compile_time.install(recorder, undo)
        yield recorder
    torch._dynamo.reset()


def _artifacts(recorder):
    return [body["row"] for kind, body in recorder.lines if kind == "row"]


def test_forward_and_backward_of_each_compilation(compiling):
    @torch.compile(backend="aot_eager")
    def work(x):
        return (x * x).sum()

    for size in (2, 2, 3):
        work(torch.ones(size, requires_grad=True)).backward()
    spans = compiling.spans()
    assert spans[0] == "compile:dynamo" and set(spans) <= {"compile:dynamo", "compile:lazy_backward"}
    assert spans.count("compile:dynamo") == 2  # sizes 2 and 3, not the second call with 2
    assert all(row.values["end_ns"] > row.values["start_ns"] for row in compiling.of("span"))
    assert _artifacts(compiling) == [
        {"kind": "compiler", "name": "torch.compile", "version": torch.__version__, "source": "seen to compile"}
    ]


def test_it_outlives_a_reset_of_torch(compiling):
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    assert compiling.kinds()["compile"] == 1


def test_a_compilation_that_fails_is_closed(compiling):
    def broken(graph, inputs):
        raise ValueError("mine")

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(lambda x: x + 1, backend=broken)(torch.ones(1))
    assert compiling.spans() == ["compile:dynamo"]
    assert all("end_ns" in row.values for row in compiling.of("span"))


def test_callbacks_of_the_job_are_still_called(compiling):
    seen = []
    handler = torch._dynamo.callback.callback_handler
    start = handler.register_start_callback(lambda *_: seen.append("start"))
    end = handler.register_end_callback(lambda *_: seen.append("end"))
    torch.compile(lambda x: x + 2, backend="eager")(torch.ones(1))
    handler.remove_start_callback(start)
    handler.remove_end_callback(end)
    assert seen == ["start", "end"]
