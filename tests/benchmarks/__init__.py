"""Tests of the benchmarks' own parts: measuring, summing up, drawing."""
