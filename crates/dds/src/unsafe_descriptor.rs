//! Duplicates descriptors of this process by number, for sockets that a library does not expose.
//!
//! The calls are sound because:
//! 1. `fcntl` with `F_DUPFD_CLOEXEC` takes two integers and touches no memory of the process; for a number that is
//!    not an open descriptor it returns an error.
//! 2. An [`OwnedFd`] owns the result of that call: a new descriptor without another owner.
//!
//! The duplicate keeps its file open until it is dropped, so it is dropped soon. Nothing is read or written through
//! it: it serves to identify and configure the socket.
#![allow(
    unsafe_code,
    reason = "a system call; the module comment lists its requirements"
)]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// A second descriptor for the same file.
///
/// # Errors
/// The number is not an open descriptor, or there are too many.
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: 1.
    let copy = unsafe { nix::libc::fcntl(number, nix::libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: 2.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
