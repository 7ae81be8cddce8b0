"""Frames in, text or JSON out; nothing here computes a statistic."""
