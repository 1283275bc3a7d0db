"""OpenTelemetry: live metrics and spans from the node agent, and what `rankscope export otlp` shares with it."""
