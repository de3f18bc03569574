//! Cyclone DDS as safe types.
//!
//! `shim.c` in this folder has the functions below, over `libddsc`, which `build.rs` builds from source. Each call is sound
//! because:
//! 1. A handle is a number that the library looks up; for an entity that has ended it returns an error. So no use
//!    of an entity after its end can access freed memory, and only pointers matter.
//! 2. A `struct chappe_end` is created and freed by [`End`] alone, which is neither cloned nor copied, and every call
//!    takes it by reference. An [`End`] holds its [`Presence`], so the topic whose type it points to, and the domain
//!    that the type points to, live as long as it does.
//! 3. [`ring`] and [`acknowledged`] are called by threads of the library with the address of the [`Bell`] that
//!    [`Presence`] keeps alive by its `Arc`. [`Presence`] deletes the participant before it drops the bell. That deletes
//!    its readers, which waits for running listeners and starts none afterwards. A writer's hook loses the bell before
//!    its [`End`], which holds the [`Presence`], is gone.
//! 4. Written bytes are borrowed for the time of a call, and copied there. Written structs and arrays are filled in the
//!    call, up to the room that it is given.
//! 5. Text is passed as C strings that outlive the call, and returned in arrays that `shim.c` terminates with a
//!    zero.
//! 6. The library calls [`log`] with a struct and texts that live during the call, of which the file's name is a
//!    constant of the library; and `shim.c` calls [`chappe_aborted`] with a number.
//! 7. The library may be called from any thread, and from several. [`End`] is `Send`, since nothing in it is bound to
//!    a thread, and not `Sync`.
//! 8. A taken sample has a count of references, of which one belongs to [`end`] alone until it is returned. It is
//!    memory of `shim.c` that points to nothing in its reader or domain, and is returned from any thread, also after their
//!    end. Only the thread that makes a sample writes its bytes.
#![allow(
    unsafe_code,
    reason = "a C library; the module comment lists the requirements of each call"
)]

use std::ffi::{CStr, CString};

#[cfg(feature = "planted")]
pub(crate) use self::bell::abort_in_library;
pub(crate) use self::end::{End, Refused};
pub(crate) use self::presence::{Found, Kind, Presence, WriterList};
use self::raw::dds_strretcode;
use crate::DdsError;
use crate::journal::Journal;

mod bell;
mod end;
mod presence;
mod raw;

/// The library's text for an error.
fn error(doing: &'static str, code: i64) -> DdsError {
    let code = i32::try_from(code).unwrap_or(i32::MIN);
    // SAFETY: it returns a static text of its own for any number.
    let words = unsafe { CStr::from_ptr(dds_strretcode(code)) };
    let why = words.to_string_lossy().into_owned();
    DdsError::Library { doing, why }
}

/// The library's text for an error, with its last warning, which has the reason.
fn refused(doing: &'static str, code: i64, journal: &Journal) -> DdsError {
    let mut error = error(doing, code);
    if let (DdsError::Library { why, .. }, Some(reason)) = (&mut error, journal.newest().last()) {
        *why = format!("{why}: {reason}");
    }
    error
}

fn text(of: &str) -> Result<CString, DdsError> {
    CString::new(of).map_err(|_| DdsError::Library {
        doing: "naming",
        why: "it contains a zero byte".into(),
    })
}
