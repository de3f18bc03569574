//! A virtual Ethernet interface of the kernel (TAP): the only unsafe code of this crate.
//!
//! What the one call needs to be sound, and why it holds:
//! 1. `TUNSETIFF` takes a pointer to a `struct ifreq`, reads its name and flags, and writes the name
//!    that was given into it. [`Request`] has its size and layout (40 bytes on 64-bit Linux: a name of
//!    16, then a union that begins with the flags), is initialized in whole, and lives through the call.
//! 2. The descriptor is that of a file that is open through the call.
#![allow(
    unsafe_code,
    reason = "one call of the kernel; the module comment lists what it needs"
)]

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::libc;

/// Bytes of a name with the zero at its end.
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

/// Makes an interface in this thread's network. What is written to the file arrives there, one frame
/// for each write; what is sent there is read. It is there as long as the file is open. Reading and
/// writing do not wait.
///
/// # Errors
/// Without permission, or where the kernel has no such interfaces.
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
