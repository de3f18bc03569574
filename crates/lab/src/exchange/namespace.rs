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
    let [bytes, packets, ..] = traffic("lo");
    (bytes, packets)
}

/// Bytes and packets that an interface of this thread's namespace has received, and those that it has sent.
pub(crate) fn traffic(interface: &str) -> [u64; 4] {
    /// The columns of the table: eight of what was received come before those of what was sent.
    const COLUMNS: [usize; 4] = [0, 1, 8, 9];
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let of_interface = |line: &str| {
        let (name, fields) = line.trim().split_once(':')?;
        let fields: Vec<u64> = fields
            .split_whitespace()
            .map_while(|it| it.parse().ok())
            .collect();
        (name == interface).then(|| COLUMNS.map(|column| fields.get(column).copied().unwrap_or(0)))
    };
    table.lines().find_map(of_interface).unwrap_or_default()
}
