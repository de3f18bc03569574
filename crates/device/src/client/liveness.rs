//! Checks whether a device still listens, after a Bye or a power cut.
//!
//! A Bye is not authenticated. It is accepted only if nothing listens at the device's address any longer, which
//! only the device or the owner of its address can cause.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::discovery::Target;
use chappe_dpws::discovery::client::Command;
use chappe_identity::{Contact, Host};
use chappe_transport::Hop;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Found, Seen, Shared, discovery};

/// The time limit for a connection to a device.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// Pauses before the probes after a Bye: devices send it before they stop.
const PAUSES_AFTER_BYE: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_500),
    Duration::from_secs(3),
];
/// Consecutive probes without an answer that confirm a Bye: one may be lost.
const SILENT_PROBES_MAX: u32 = 2;
/// Consecutive probes without an answer after which a device is gone.
const MISSED_PROBES_MAX: u32 = 3;
/// Devices probed at the same time.
const PROBES_MAX: usize = 32;
/// Claims verified at the same time; each takes one connection for some seconds.
const CLAIMS_MAX: usize = 64;
/// Claims of one host among them, so that a forging host leaves room for three others.
const CLAIMS_PER_HOST_MAX: usize = CLAIMS_MAX / 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeResult {
    Listens,
    /// The host reports that nothing listens there.
    Refused,
    /// No answer: the host or the network may be busy.
    Silent,
    /// The probe failed locally, without files or ports: it says nothing about the device.
    Unknown,
}

pub(super) async fn probe_address(address: SocketAddr) -> ProbeResult {
    match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => ProbeResult::Listens,
        Ok(Err(error)) => classify(&error),
        Err(_) => ProbeResult::Silent,
    }
}

/// The result of a failed connection.
fn classify(error: &io::Error) -> ProbeResult {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    match error.kind() {
        ConnectionRefused => ProbeResult::Refused,
        HostUnreachable | NetworkUnreachable | TimedOut => ProbeResult::Silent,
        _ => ProbeResult::Unknown,
    }
}

/// The address of the device: from its description, or as it announced itself.
pub(super) fn contact_of(shared: &Shared, endpoint: &str) -> Option<Contact> {
    let table = shared.table();
    let entry = table.get(endpoint)?;
    let (known, policy) = (&shared.known, &shared.options.policy);
    let allowed = |xaddr: &String| known.check(policy, xaddr, entry.found.from).ok();
    let announced = || entry.found.xaddrs.iter().find_map(allowed);
    entry.contact.clone().or_else(announced)
}

/// The devices with a claim under verification, and the hosts that made the claims.
#[derive(Default)]
pub(super) struct Claims(HashMap<String, Host>);

impl Claims {
    /// Opens a claim, if there is room and the device has none.
    fn begin(&mut self, endpoint: &str, host: Host) -> bool {
        let of_host = self.0.values().filter(|of| **of == host).count();
        let has_room = self.0.len() < CLAIMS_MAX && of_host < CLAIMS_PER_HOST_MAX;
        if !has_room || self.0.contains_key(endpoint) {
            return false;
        }
        self.0.insert(endpoint.to_owned(), host);
        true
    }
}

/// A claim about a device under verification. Further claims about it are ignored meanwhile, so that a flood
/// of claims causes no flood of connections.
pub(super) struct Claim<'a> {
    shared: &'a Shared,
    endpoint: &'a str,
}

impl<'a> Claim<'a> {
    /// Opens a claim made by `host`.
    pub(super) fn new(shared: &'a Shared, endpoint: &'a str, host: Host) -> Option<Self> {
        let is_open = shared.claims().begin(endpoint, host);
        if !is_open {
            let reason = "claim not looked into";
            shared.drops.count(1, Hop::Discovery, reason);
        }
        is_open.then(|| Self { shared, endpoint })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.shared.claims().0.remove(self.endpoint);
    }
}

/// Accepts a Bye if the device no longer listens.
pub(super) async fn confirm_bye(shared: &Shared, endpoint: &str, from: SocketAddr) {
    let Some(_claim) = Claim::new(shared, endpoint, Host::from_address(from.ip())) else {
        return;
    };
    let Some(contact) = contact_of(shared, endpoint) else {
        forget(shared, endpoint, "said Bye").await;
        return;
    };
    let mut silent = 0;
    for pause in PAUSES_AFTER_BYE {
        tokio::time::sleep(pause).await;
        match probe_address(contact.address).await {
            ProbeResult::Listens | ProbeResult::Unknown => silent = 0,
            ProbeResult::Refused => silent = SILENT_PROBES_MAX,
            ProbeResult::Silent => silent += 1,
        }
        if silent >= SILENT_PROBES_MAX {
            forget(shared, endpoint, "it sent Bye and no longer listens").await;
            return;
        }
    }
    let detail = format!("{endpoint} still listens at {}", contact.address);
    let hint = Some("the Bye may be forged: check its sender".to_owned());
    let reason = "bye not believed";
    shared
        .drops
        .record(Hop::Discovery, reason, contact.address.ip(), detail, hint);
}

/// Accepts that a device moved if it no longer listens at its old address. Returns whether it did.
pub(super) async fn confirm_move(shared: &Arc<Shared>, target: Target, from: SocketAddr) -> bool {
    let endpoint = target.endpoint.address.to_string();
    let Some(_claim) = Claim::new(shared, &endpoint, Host::from_address(from.ip())) else {
        return false;
    };
    if let Some(contact) = contact_of(shared, &endpoint)
        && matches!(
            probe_address(contact.address).await,
            ProbeResult::Listens | ProbeResult::Unknown
        )
    {
        let detail = format!("{endpoint} still listens at {}", contact.address);
        let hint = Some("two devices share one identifier, or one of them is forged".to_owned());
        let reason = "move not believed";
        shared
            .drops
            .record(Hop::Discovery, reason, from.ip(), detail, hint);
        return false;
    }
    let dialect = shared
        .table()
        .get(&endpoint)
        .map(|entry| entry.found.dialect);
    let Some(dialect) = dialect else {
        return false;
    };
    let found = Found::new(&target, dialect, from);
    let remembered = shared.table().relocate(&found);
    if !discovery::admit(shared, &found, remembered) {
        let command = Command::Forget {
            endpoint: endpoint.clone().into(),
        };
        let _ = shared.command(command).await;
        shared.emit(Seen::Gone {
            endpoint: endpoint.clone(),
            reason: "it moved to an address that has too many devices".to_owned(),
        });
        return true;
    }
    if shared
        .command(Command::Accept { target, from })
        .await
        .is_ok()
    {
        discovery::heard(shared, from.ip(), Seen::Changed(found));
    }
    true
}

/// Verifies a device that is known here at another address: one that is new to the machine, which had evicted it, or
/// that sent another address from its host, as it seems.
pub(super) async fn confirm_found(shared: &Arc<Shared>, target: Target, from: SocketAddr) {
    let endpoint = target.endpoint.address.clone();
    if !confirm_move(shared, target, from).await {
        // The machine must not use the unverified address.
        let _ = shared.command(Command::Forget { endpoint }).await;
    }
}

pub(super) async fn forget(shared: &Shared, endpoint: &str, reason: &str) {
    if shared.table().remove(endpoint).is_none() {
        return;
    }
    let command = Command::Forget {
        endpoint: endpoint.to_owned().into(),
    };
    // A closed client has nothing to forget.
    let _ = shared.command(command).await;
    shared.emit(Seen::Gone {
        endpoint: endpoint.to_owned(),
        reason: reason.to_owned(),
    });
}

/// Periodically probes described devices.
pub(super) async fn watch(shared: Arc<Shared>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let described: Vec<String> = {
            let table = shared.table();
            let described = table.keys().filter(|endpoint| table.is_described(endpoint));
            described.cloned().collect()
        };
        let mut probes = JoinSet::new();
        for endpoint in described {
            let Some(contact) = contact_of(&shared, &endpoint) else {
                continue;
            };
            if probes.len() >= PROBES_MAX {
                record_probe(&shared, probes.join_next().await).await;
            }
            probes.spawn(async move { (endpoint, probe_address(contact.address).await) });
        }
        while let Some(ended) = probes.join_next().await {
            record_probe(&shared, Some(ended)).await;
        }
    }
}

async fn record_probe(
    shared: &Shared,
    ended: Option<Result<(String, ProbeResult), tokio::task::JoinError>>,
) {
    let Some(Ok((endpoint, result))) = ended else {
        return;
    };
    let missed = shared
        .table()
        .update_missed(&endpoint, |before| match result {
            ProbeResult::Listens => 0,
            ProbeResult::Refused => MISSED_PROBES_MAX,
            ProbeResult::Silent => before + 1,
            ProbeResult::Unknown => before,
        });
    if missed.is_some_and(|missed| missed >= MISSED_PROBES_MAX) {
        forget(shared, &endpoint, "it no longer listens").await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_host_leave_room_for_those_of_others() {
        let mut claims = Claims::default();
        let hosts = [66, 7].map(|number| Host::from_address([192, 0, 2, number].into()));
        let open = |claims: &mut Claims, host: usize| {
            let claim = |n: &usize| claims.begin(&format!("urn:{host}:{n}"), hosts[host]);
            (0..1_000).filter(claim).count()
        };
        assert_eq!(open(&mut claims, 0), CLAIMS_PER_HOST_MAX);
        assert_eq!(open(&mut claims, 1), CLAIMS_PER_HOST_MAX);
        assert!(!claims.begin("urn:0:0", hosts[1]), "it is being verified");
    }

    #[test]
    fn local_errors_say_nothing_about_the_device() {
        // EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS, EACCES.
        for code in [24, 23, 99, 105, 13] {
            let result = classify(&io::Error::from_raw_os_error(code));
            assert_eq!(result, ProbeResult::Unknown, "error {code}");
        }
        // ECONNREFUSED, EHOSTUNREACH.
        assert_eq!(
            classify(&io::Error::from_raw_os_error(111)),
            ProbeResult::Refused
        );
        assert_eq!(
            classify(&io::Error::from_raw_os_error(113)),
            ProbeResult::Silent
        );
    }
}
