"""Recorders: run a program under Nsight Systems and return the file it wrote."""
