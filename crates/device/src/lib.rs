//! A DPWS device host and a client as libraries.
