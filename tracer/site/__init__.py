"""A folder that `rankscope run` puts first on PYTHONPATH: it holds a `sitecustomize`, and nothing else to import."""

import os


def job_path(before: str) -> str:
    """PYTHONPATH for an observed job, out of what it was ("" for not set): this folder, once, in front."""
    own = os.path.dirname(os.path.abspath(__file__))
    others = [part for part in before.split(os.pathsep) if part != own] if before else []
    return os.pathsep.join([own, *others])
