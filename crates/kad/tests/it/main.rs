//! The integration tests of `chappe-kad` in one program: linking one takes seconds.

mod codec;
mod hostile;
mod network;
mod returning;
mod search;
