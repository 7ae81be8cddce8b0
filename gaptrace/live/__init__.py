"""Code that runs inside the profiled process."""
