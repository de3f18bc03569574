//! A network for this run alone: its loopback carries only the scenario's traffic, which can thus
//! be counted, and programs that listen on every interface are unreachable from outside.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

use crate::Error;

/// Moves this thread, and the processes that it starts from now on, into a separate network
/// namespace that has only a loopback.
///
/// # Errors
/// It is not permitted: a reason to continue without, not a failure.
pub(crate) fn enter() -> Result<(), Error> {
    let failed = |error: nix::Error| Error::io("creating a network namespace")(error.into());
    unshare(CloneFlags::CLONE_NEWNET).map_err(failed)?;
    let status = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .map_err(Error::io("bringing the loopback up with ip"))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed(
            "the loopback cannot be brought up".to_owned(),
        ))
    }
}

/// Bytes and packets that have crossed the loopback of this thread's namespace, heads included.
pub(crate) fn loopback() -> (u64, u64) {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("lo:"));
    let mut fields = line.unwrap_or_default().split_whitespace();
    let mut next = || fields.next().and_then(|field| field.parse().ok());
    (next().unwrap_or(0), next().unwrap_or(0))
}
