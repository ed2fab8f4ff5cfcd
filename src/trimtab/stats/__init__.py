"""Numpy formulas, each in one place: calibration, intervals, text measures. Nothing here needs torch."""
