//! Whether a device still listens: what a Bye claims and what a power cut does not say.
//!
//! A Bye is not authenticated. It is believed when nothing listens at the device's address any
//! more, which only the device (or whoever owns its address) can bring about.

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

/// Time in which a device takes a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// Pauses before the looks after a Bye: devices say it before they end.
const LOOKS_AFTER_BYE: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_500),
    Duration::from_secs(3),
];
/// Looks in a row without any answer after which a Bye is believed: one may be lost.
const SILENT_MAX: u32 = 2;
/// Looks in a row without any answer after which a device is gone.
const MISSED_MAX: u32 = 3;
/// Devices looked at together.
const LOOKS_MAX: usize = 32;
/// Devices of which claims are looked into together; each takes one connection for some seconds.
const CLAIMS_MAX: usize = 64;
/// Those of them that one host claims: three others can be heard beside one that forges.
const CLAIMS_OF_HOST_MAX: usize = CLAIMS_MAX / 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Listens,
    /// The host says that nothing listens there.
    Refused,
    /// Nothing is heard: the host or the network may be busy.
    Silent,
    /// We could not look: no more open files or ports, which says nothing of the device.
    Unknown,
}

pub(super) async fn look_at(address: SocketAddr) -> Look {
    match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Look::Listens,
        Ok(Err(error)) => of_error(&error),
        Err(_) => Look::Silent,
    }
}

/// What a connection that failed says of the device.
fn of_error(error: &io::Error) -> Look {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    match error.kind() {
        ConnectionRefused => Look::Refused,
        HostUnreachable | NetworkUnreachable | TimedOut => Look::Silent,
        _ => Look::Unknown,
    }
}

/// Where the device is reached: as it was described, or as it announced itself.
pub(super) fn contact_of(shared: &Shared, endpoint: &str) -> Option<Contact> {
    let table = shared.table();
    let entry = table.get(endpoint)?;
    let allowed = |xaddr: &String| shared.options.policy.check(xaddr, entry.found.from).ok();
    let announced = || entry.found.xaddrs.iter().find_map(allowed);
    entry.contact.clone().or_else(announced)
}

/// The devices of which something is claimed that is being looked into, with the hosts that claim it.
#[derive(Default)]
pub(super) struct Claims(HashMap<String, Host>);

impl Claims {
    /// Whether a claim is looked into; then it is open until it ends.
    fn begin(&mut self, endpoint: &str, host: Host) -> bool {
        let of_host = self.0.values().filter(|of| **of == host).count();
        let has_room = self.0.len() < CLAIMS_MAX && of_host < CLAIMS_OF_HOST_MAX;
        if !has_room || self.0.contains_key(endpoint) {
            return false;
        }
        self.0.insert(endpoint.to_owned(), host);
        true
    }
}

/// The right to look into what is claimed of one device. A claim that comes meanwhile is not looked
/// into, so that a flood of them makes no flood of connections.
pub(super) struct Claim<'a> {
    shared: &'a Shared,
    endpoint: &'a str,
}

impl<'a> Claim<'a> {
    /// The right to look into what `host` claims.
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

/// Believes a Bye when the device does not listen any more.
pub(super) async fn confirm_bye(shared: &Shared, endpoint: &str, from: SocketAddr) {
    let Some(_claim) = Claim::new(shared, endpoint, Host::from_address(from.ip())) else {
        return;
    };
    let Some(contact) = contact_of(shared, endpoint) else {
        forget(shared, endpoint, "said Bye").await;
        return;
    };
    let mut silent = 0;
    for pause in LOOKS_AFTER_BYE {
        tokio::time::sleep(pause).await;
        match look_at(contact.address).await {
            Look::Listens | Look::Unknown => silent = 0,
            Look::Refused => silent = SILENT_MAX,
            Look::Silent => silent += 1,
        }
        if silent >= SILENT_MAX {
            forget(shared, endpoint, "said Bye and listens no more").await;
            return;
        }
    }
    let detail = format!("{endpoint} still listens at {}", contact.address);
    let hint = Some("the Bye may be forged: see who sent it".to_owned());
    let reason = "bye not believed";
    shared
        .drops
        .record(Hop::Discovery, reason, contact.address.ip(), detail, hint);
}

/// Believes that a device moved when it does not listen at its old address any more; says whether it
/// does.
pub(super) async fn confirm_move(shared: &Arc<Shared>, target: Target, from: SocketAddr) -> bool {
    let endpoint = target.endpoint.address.to_string();
    let Some(_claim) = Claim::new(shared, &endpoint, Host::from_address(from.ip())) else {
        return false;
    };
    if let Some(contact) = contact_of(shared, &endpoint)
        && matches!(
            look_at(contact.address).await,
            Look::Listens | Look::Unknown
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
    // Its new host must have room for it, as for a new device.
    shared.table().remove(&endpoint);
    if !discovery::insert(shared, &found) {
        let command = Command::Forget {
            endpoint: endpoint.clone().into(),
        };
        let _ = shared.order(command).await;
        shared.tell(Seen::Gone {
            endpoint: endpoint.clone(),
            reason: "moved to an address that has too many devices".to_owned(),
        });
        return true;
    }
    if shared.order(Command::Accept { target, from }).await.is_ok() {
        shared.tell(Seen::Changed(found));
    }
    true
}

/// Looks into a device that the machine takes for new, since it made room there, and that is known
/// here at another address.
pub(super) async fn confirm_found(shared: &Arc<Shared>, target: Target, from: SocketAddr) {
    let endpoint = target.endpoint.address.clone();
    if !confirm_move(shared, target, from).await {
        // The machine must not go by what the other says.
        let _ = shared.order(Command::Forget { endpoint }).await;
    }
}

pub(super) async fn forget(shared: &Shared, endpoint: &str, reason: &str) {
    if shared.table().remove(endpoint).is_none() {
        return;
    }
    let command = Command::Forget {
        endpoint: endpoint.to_owned().into(),
    };
    // When the client ends, there is nothing to forget.
    let _ = shared.order(command).await;
    shared.tell(Seen::Gone {
        endpoint: endpoint.to_owned(),
        reason: reason.to_owned(),
    });
}

/// Looks regularly whether described devices still listen.
pub(super) async fn look(shared: Arc<Shared>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let described: Vec<String> = {
            let table = shared.table();
            let described = table.keys().filter(|endpoint| table.is_described(endpoint));
            described.cloned().collect()
        };
        let mut looks = JoinSet::new();
        for endpoint in described {
            let Some(contact) = contact_of(&shared, &endpoint) else {
                continue;
            };
            if looks.len() >= LOOKS_MAX {
                take(&shared, looks.join_next().await).await;
            }
            looks.spawn(async move { (endpoint, look_at(contact.address).await) });
        }
        while let Some(ended) = looks.join_next().await {
            take(&shared, Some(ended)).await;
        }
    }
}

async fn take(shared: &Shared, ended: Option<Result<(String, Look), tokio::task::JoinError>>) {
    let Some(Ok((endpoint, look))) = ended else {
        return;
    };
    let missed = shared.table().missed(&endpoint, |before| match look {
        Look::Listens => 0,
        Look::Refused => MISSED_MAX,
        Look::Silent => before + 1,
        Look::Unknown => before,
    });
    if missed.is_some_and(|missed| missed >= MISSED_MAX) {
        forget(shared, &endpoint, "listens no more").await;
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
        assert_eq!(open(&mut claims, 0), CLAIMS_OF_HOST_MAX);
        assert_eq!(open(&mut claims, 1), CLAIMS_OF_HOST_MAX);
        assert!(
            !claims.begin("urn:0:0", hosts[1]),
            "it is being looked into"
        );
    }

    #[test]
    fn what_this_host_lacks_says_nothing_of_the_device() {
        // EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS, EACCES.
        for code in [24, 23, 99, 105, 13] {
            let look = of_error(&io::Error::from_raw_os_error(code));
            assert_eq!(look, Look::Unknown, "error {code}");
        }
        // ECONNREFUSED, EHOSTUNREACH.
        assert_eq!(of_error(&io::Error::from_raw_os_error(111)), Look::Refused);
        assert_eq!(of_error(&io::Error::from_raw_os_error(113)), Look::Silent);
    }
}
