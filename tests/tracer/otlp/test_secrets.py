"""What logs in somewhere is in no line: not of an address that is shown, not of what the SDK says about it."""

import pytest

from rankscope.tracer.otlp.reasons import MAX_TEXT, one_line
from rankscope.tracer.otlp.secrets import hidden, secrets_of, without_secrets


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:secret@host/x?key=1", "https://host/x"),
        ("me:secret@host:4317", "host:4317"),
        ("http://host?key=1", "http://host"),
        ("http://host/x#key", "http://host/x"),
        ("http://host:4318", "http://host:4318"),
        ("", ""),
    ],
)
def test_an_address_as_it_is_shown(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


@pytest.mark.parametrize(
    ("variables", "said", "shown"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h/x?token=a b"}, "url: /x?token=a%20b/v1", "url: /x[redacted]/v1"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "u:pw@h:1"}, "resolving u:pw@h:1", "resolving [redacted]h:1"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "Authorization Bearer abcdef"}, "occurrences: Authorization Bearer abcdef",
         "occurrences: [redacted]"),
        ({"OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=1,auth=Basic%20abcdef"}, "sent 1 and Basic abcdef",
         "sent 1 and [redacted]"),
        ({}, "nothing to hide", "nothing to hide"),
    ],
)  # fmt: skip
def test_what_is_said(variables: dict[str, str], said: str, shown: str) -> None:
    assert hidden(said, secrets_of(variables)) == shown


def test_of_an_address_that_is_given() -> None:
    said = hidden("no host me:secret@host?q=5", secrets_of({}, "me:secret@host?q=5"))
    assert said == "no host [redacted]host[redacted]"


def test_of_a_long_chain_of_causes_the_system_s_own_words_are_told() -> None:
    chain = f"HTTPConnectionPool({'x' * MAX_TEXT}): (Caused by NewConnectionError('[Errno 111] Connection refused'))"
    assert one_line(chain) == "Connection refused"
    assert one_line("short: [Errno 111] Connection\nrefused") == "short: [Errno 111] Connection refused"
    assert one_line("y" * 2 * MAX_TEXT) == "y" * MAX_TEXT
