//! The integration tests of `chappe-gsn` in one program: linking one takes seconds.

mod as_gsn;
mod descriptors;
mod evaluated;
