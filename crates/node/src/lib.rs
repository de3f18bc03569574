//! The server: configuration, wiring, REST API, console, metrics.
