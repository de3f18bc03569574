//! Middleware for networks of devices and sensors: find, understand, call, stream, compute, exchange.
