//! Descriptors of this process by their numbers: for sockets that a library keeps to itself.
//!
//! What the calls need to be sound, and why it holds:
//! 1. `fcntl` with `F_DUPFD_CLOEXEC` takes two integers and touches no memory of the process; a number
//!    that is no open descriptor is answered with an error.
//! 2. An [`OwnedFd`] is made of what that call returned: a new descriptor, which nobody else knows.
//!
//! The duplicate keeps what it refers to open until it is dropped, so it is dropped soon, and nothing
//! is read or written through it: whose descriptor it is, is found out with it.
#![allow(
    unsafe_code,
    reason = "a call of the system; the head says what it needs"
)]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// A second descriptor for what the first refers to.
///
/// # Errors
/// It is none, or there are too many.
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: 1.
    let copy = unsafe { nix::libc::fcntl(number, nix::libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: 2.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
