"""The session in a training process and the node agent: what writes a run."""
