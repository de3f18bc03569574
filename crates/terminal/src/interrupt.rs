//! Interrupts (SIGINT) and requests to end (SIGTERM).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::Failure;

/// Returns at an interrupt or a request to end.
///
/// # Errors
/// The system refuses to deliver the signals.
pub async fn interrupted() -> Result<(), Failure> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Runs `action` on a separate thread, at the first interrupt and at each later one.
///
/// # Errors
/// The runtime of the thread cannot be started.
pub fn at_interrupt(mut action: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        while runtime.block_on(interrupted()).is_ok() {
            action();
        }
    });
    Ok(())
}

/// A flag that the first interrupt sets; the second ends the program with exit code 130.
///
/// # Errors
/// The errors of [`at_interrupt`].
pub fn stop_at_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    at_interrupt(move || {
        if set.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    Ok(stop)
}
