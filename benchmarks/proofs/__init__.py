"""What the learning algorithms learn: one kind of task a file, run by `python -m benchmarks.learning`."""
