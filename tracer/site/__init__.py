"""A folder that `rankscope run` puts first on PYTHONPATH: it holds a `sitecustomize`, and nothing else to import."""
