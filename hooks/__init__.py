"""What is observed in a live job: one file per observed thing, installed by the session through `registry`."""
