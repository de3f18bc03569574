//! The task that follows a device, and the means to direct it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chappe_device::client::Found;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Time for which the task of a device that is gone may wait for room on a full disk.
const DRAIN: Duration = Duration::from_secs(2);
/// Queued commands of a device's task.
const COMMANDS_MAX: usize = 16;

/// A command to a device's task.
#[derive(Debug)]
pub(super) enum DeviceCommand {
    /// Describe the device again, because discovery found a change. Boxed to keep the queue small.
    Redescribe(Box<Found>),
    /// Check that the subscriptions are still valid, because the device may have restarted.
    VerifySubscriptions,
}

/// The task of a followed device.
#[derive(Debug)]
pub(super) struct Follower {
    commands: mpsc::Sender<DeviceCommand>,
    /// Dropped when the device has left, so that its task waits for no answer.
    _left: watch::Sender<bool>,
    /// Once set, the task does not wait for a full disk: unstored elements are counted as lost.
    is_cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Starts a task, given the receivers of its commands and of its device's departure, and the flag
    /// that ends its wait for a full disk.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        task: impl FnOnce(mpsc::Receiver<DeviceCommand>, watch::Receiver<bool>, Arc<AtomicBool>) -> F,
    ) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (left, has_left) = watch::channel(false);
        let is_cut = Arc::<AtomicBool>::default();
        Self {
            commands,
            _left: left,
            is_cut: is_cut.clone(),
            task: tokio::spawn(task(receiver, has_left, is_cut)),
        }
    }

    /// Gives the task a command, unless it has ended.
    pub(super) fn command(&self, command: DeviceCommand) -> bool {
        // The commands of a full queue have the same effect: the task reads them before its next attempt.
        let _ = self.commands.try_send(command);
        !self.task.is_finished()
    }

    /// Lets the task store all acknowledged notifications; it waits only briefly for a full disk.
    pub(super) async fn end(self) {
        let is_cut = self.is_cut.clone();
        let mut task = self.detach();
        if tokio::time::timeout(DRAIN, &mut task).await.is_err() {
            is_cut.store(true, Ordering::Relaxed);
            // The task waits only for the disk now. A failed task has ended as well.
            let _ = task.await;
        }
    }

    /// Tells the task that the device has left.
    pub(super) fn detach(self) -> JoinHandle<()> {
        self.task
    }
}
