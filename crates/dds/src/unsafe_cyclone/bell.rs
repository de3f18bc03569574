//! What threads of the library call.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Wake;
use std::time::{Duration, Instant};

use super::raw::RawLog;
#[cfg(feature = "planted")]
use super::raw::ddsrt_malloc;
#[cfg(feature = "planted")]
use crate::Guid;
use crate::journal;

/// Wakes a waiting thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    #[cfg(feature = "planted")]
    pub(super) participant: std::sync::OnceLock<Guid>,
}

impl Bell {
    /// Ends the present or the next wait.
    pub(crate) fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let was_rung = std::mem::replace(&mut *rung, true);
        drop(rung);
        // A thread that waits is notified once: a system call for each sample would cost as much as the sample.
        if !was_rung {
            self.changed.notify_all();
        }
    }

    /// Waits until it is rung, also since the last wait, or the timeout passes. Returns whether it was rung.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *rung || left.is_zero() {
                return std::mem::take(&mut *rung);
            }
            let waited = self.changed.wait_timeout(rung, left);
            rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// Called by the library with a warning or an error.
pub(super) extern "C" fn log(_: *mut c_void, data: *const RawLog) {
    // SAFETY: 6 of the head.
    let (domain, line, file, message) = unsafe {
        let data = &*data;
        let (file, message) = (CStr::from_ptr(data.file), CStr::from_ptr(data.message));
        (data.domain, data.line, file, message)
    };
    let place = (line, file.to_str().unwrap_or_default());
    journal::warn(domain, place, &message.to_string_lossy());
}

/// Called by `shim.c` when the library has ended a thread.
#[unsafe(no_mangle)]
extern "C" fn chappe_aborted(domain: u32) {
    journal::abort(domain);
}

/// Lets the library end a thread: it does so when it has no memory.
#[cfg(feature = "planted")]
pub(crate) fn abort_in_library() {
    // SAFETY: it returns memory or ends the thread; so much memory there is not.
    unsafe { ddsrt_malloc(usize::MAX / 2) };
}

/// Called by the library when data or an event is available.
pub(super) extern "C" fn ring(_: i32, bell: *mut c_void) {
    // SAFETY: 3 of the head: it points to the bell of a live presence.
    let bell = unsafe { &*bell.cast::<Bell>() };
    bell.ring();
}

/// Called by the library when the last number that all readers of a writer have acknowledged has grown.
pub(super) extern "C" fn acknowledged(writer: i32, bell: *mut c_void) {
    #[cfg(feature = "planted")]
    {
        // SAFETY: 3 of the head: it points to the bell of a live presence.
        let bell = unsafe { &*bell.cast::<Bell>() };
        if let Some(participant) = bell.participant.get() {
            crate::planted::fail_if_planted(*participant, crate::planted::Fault::Stall);
            crate::planted::fail_if_planted(*participant, crate::planted::Fault::Abort);
        }
    }
    ring(writer, bell);
}
