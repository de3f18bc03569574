//! The integration tests of `chappe-gsn` in one program: linking one takes seconds.

mod descriptors;
mod evaluated;
