//! The node as a service: readiness, reload, watchdog and end, as `sd_notify(3)` describes them.
//!
//! Without a service manager (no `NOTIFY_SOCKET` in the environment) nothing is sent.

use std::path::Path;
use std::time::Duration;

use chappe_node::{Node, shutdown_signal};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::output;

/// Exit status of a wrong configuration, `EX_CONFIG` of `sysexits.h`. The unit names it in
/// `RestartPreventExitStatus`: a restart cannot repair a file.
pub(crate) const WRONG_CONFIGURATION: u8 = 78;

/// Time between two checks without a watchdog; reason: no check is then needed, and a timer that
/// rarely fires costs nothing.
const WITHOUT_WATCHDOG: Duration = Duration::from_secs(3600);

/// Serves until a signal ends the service.
///
/// The watchdog is notified twice in its period, from the thread that serves: a node that hangs or
/// no longer accepts connections does not notify it, and the service manager restarts it.
pub(crate) async fn run(node: &Node, file: Option<&Path>) -> std::io::Result<()> {
    let mut reload = signal(SignalKind::hangup())?;
    let watchdog = sd_notify::watchdog_enabled()
        .map(|period| period / 2)
        .filter(|period| !period.is_zero());
    let mut check = interval(watchdog.unwrap_or(WITHOUT_WATCHDOG));
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = shutdown_signal();
    tokio::pin!(end);
    notify(&[
        NotifyState::Ready,
        NotifyState::Status(&format!("ready at {}", node.url())),
    ]);
    loop {
        tokio::select! {
            result = &mut end => {
                notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
                return result;
            }
            _ = reload.recv() => reread(node, file),
            _ = check.tick() => {
                if watchdog.is_some() && node.is_serving() {
                    notify(&[NotifyState::Watchdog]);
                }
            }
        }
    }
}

/// Rereads the directories of sensors, wrappers and exporters, and checks the configuration, whose
/// changes need a restart.
fn reread(node: &Node, file: Option<&Path>) {
    let mut state = vec![NotifyState::Reloading];
    state.extend(NotifyState::monotonic_usec_now());
    notify(&state);
    node.reread();
    let status = match super::config::load(file, Vec::new()) {
        Ok(_) => format!("ready at {}", node.url()),
        Err(failure) => {
            output::note(format_args!("error: {}", failure.message));
            output::note("hint: the node runs on with the configuration it was started with");
            "the changed configuration is wrong: see the journal".to_owned()
        }
    };
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Sends a state. A service manager that cannot be reached does not stop the node.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
