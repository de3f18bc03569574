//! Ends a computation of a sensor that runs on another thread, when the sensor ends: steps of SQLite may be so long that
//! it would go on for minutes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_stream::VirtualSensor;

/// Interrupts the computation when it is dropped.
#[derive(Default)]
pub(super) struct Interrupting(Computation);

/// What the computation shares.
#[derive(Clone, Default)]
pub(super) struct Computation(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    is_interrupted: bool,
    interrupts: Vec<Box<dyn Fn() + Send>>,
}

impl Interrupting {
    /// The part for the thread that computes.
    pub(super) fn computation(&self) -> Computation {
        self.0.clone()
    }
}

impl Drop for Interrupting {
    fn drop(&mut self) {
        self.0.interrupt();
    }
}

impl Computation {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares for the next input, whose statements may be other ones than before; false if it shall end.
    pub(super) fn begin(&self, machine: &VirtualSensor) -> bool {
        let mut shared = self.lock();
        let handles = machine.interrupt_handles();
        let interrupts = handles.map(|handle| {
            let interrupt: Box<dyn Fn() + Send> = Box::new(move || handle.interrupt());
            interrupt
        });
        shared.interrupts = interrupts.collect();
        !shared.is_interrupted
    }

    /// Interrupts what runs and all that follows.
    pub(super) fn interrupt(&self) {
        let mut shared = self.lock();
        shared.is_interrupted = true;
        for interrupt in &shared.interrupts {
            interrupt();
        }
    }

    /// Whether it was interrupted.
    pub(super) fn is_interrupted(&self) -> bool {
        self.lock().is_interrupted
    }

    /// The computation has ended.
    pub(super) fn end(&self) {
        self.lock().interrupts.clear();
    }
}
