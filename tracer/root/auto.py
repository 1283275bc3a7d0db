"""`import rankscope.auto` observes this process as RANKSCOPE_* say. It never raises: wrong settings are one line."""

import os as _os

if _os.environ.get("RANKSCOPE", "").strip() != "0":
    from rankscope.tracer.api import attach_quietly as _attach_quietly

    _attach_quietly()
