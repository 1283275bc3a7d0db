"""What is concluded from a run: the run reader, and one file per question, its SQL beside it. Never imports torch."""
