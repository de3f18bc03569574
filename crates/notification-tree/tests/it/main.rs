//! The integration tests of `chappe-notification-tree` in one program: linking one takes seconds.

mod held;
mod net;
mod repair;
mod secure;
mod silence;
mod suspects;
mod taken_over;
