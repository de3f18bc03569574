//! Runs machines on sockets, HTTP and files.
