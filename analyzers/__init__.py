"""What is concluded from a run: one file per question, its SQL beside it; and the run reader."""
