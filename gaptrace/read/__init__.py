"""Readers: one module per format, each turning a file into a `Trace`."""
