"""rotel, a collector that others wrote: receives OTLP over HTTP and gRPC, and hands all of it on to a receiver of ours.

From PyPI, starts in 0.2 s. What it hands on went through its own decoding and encoding, so it says what a collector
understood.
"""

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import rotel  # type: ignore[import-untyped]
from otlp_receiver import Receiver

PATIENCE_SECONDS = 30.0


class Rotel:
    """A collector in front of `receiver`: `with Rotel(receiver, folder) as collector`."""

    def __init__(self, receiver: Receiver, folder: Path) -> None:
        self.http_port, self.grpc_port = free_port(), free_port()
        self._receiver, self._log = receiver, folder / "rotel.log"
        self._process: subprocess.Popen[bytes] | None = None

    def endpoint(self, protocol: str) -> str:
        return f"http://127.0.0.1:{self.grpc_port if protocol == 'grpc' else self.http_port}"

    def __enter__(self) -> "Rotel":
        binary = Path(rotel.__file__).with_name("rotel-agent")
        command = [
            str(binary), "start", "--otlp-grpc-endpoint", f"127.0.0.1:{self.grpc_port}",
            "--otlp-http-endpoint", f"127.0.0.1:{self.http_port}",
        ]  # fmt: skip
        forward = {
            "ROTEL_EXPORTERS": "px:otlp", "ROTEL_EXPORTERS_TRACES": "px", "ROTEL_EXPORTERS_METRICS": "px",
            "ROTEL_EXPORTER_PX_ENDPOINT": self._receiver.endpoint, "ROTEL_EXPORTER_PX_PROTOCOL": "http",
        }  # fmt: skip
        own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=own | forward, stdout=log, stderr=log)
        for port in (self.http_port, self.grpc_port):
            self._wait_for(port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _wait_for(self, port: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise AssertionError(f"rotel does not listen: {self._log.read_text()[-2000:]}") from None
                time.sleep(0.05)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
