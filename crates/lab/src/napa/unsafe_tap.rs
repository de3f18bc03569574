//! A virtual Ethernet interface of the kernel (TAP): the only unsafe code of this crate.
//!
//! The requirements of the one unsafe call, and why they hold:
//! 1. `TUNSETIFF` takes a pointer to a `struct ifreq`, reads its name and flags, and writes the
//!    assigned name into it. [`Request`] has its size and layout (40 bytes on 64-bit Linux: a name of
//!    16, then a union that starts with the flags), is fully initialized, and outlives the call.
//! 2. The descriptor belongs to a file that is open during the call.
#![allow(
    unsafe_code,
    reason = "one system call; the module comment lists its requirements"
)]

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::libc;

/// Length of a name including the terminating zero, in bytes.
const NAME_BYTES: usize = libc::IFNAMSIZ;

/// A `struct ifreq`, as this call reads it.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    flags: i16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

nix::ioctl_write_ptr_bad!(
    set_interface,
    nix::request_code_write!(b'T', 202, size_of::<c_int>()),
    Request
);

/// Creates an interface in this thread's network. Each write to the file arrives there as one
/// frame; frames sent there are read from the file. The interface exists as long as the file is
/// open. Reads and writes do not block.
///
/// # Errors
/// Permission is missing, or the kernel has no such interfaces.
pub(super) fn open(name: &str) -> io::Result<File> {
    let mut request = Request {
        name: [0; NAME_BYTES],
        flags: (libc::IFF_TAP | libc::IFF_NO_PI) as i16,
        rest: [0; 22],
    };
    if name.len() >= NAME_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: 1 and 2 in the head of this module.
    unsafe { set_interface(file.as_raw_fd(), &raw const request) }?;
    Ok(file)
}
