//! Benchmark scenarios beside their peers and floors.
