//! Whether a device still listens: what a Bye claims and what a power cut does not say.
//!
//! A Bye is not authenticated. It is believed when nothing listens at the device's address any
//! more, which only the device (or whoever owns its address) can bring about.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::discovery::Target;
use chappe_dpws::discovery::client::Command;
use chappe_identity::Contact;
use chappe_transport::Hop;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Found, Seen, Shared};

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

/// The right to look into what is claimed of one device. A claim that comes meanwhile is not looked
/// into, so that a flood of them makes no flood of connections.
pub(super) struct Claim<'a> {
    shared: &'a Shared,
    endpoint: &'a str,
}

impl<'a> Claim<'a> {
    pub(super) fn new(shared: &'a Shared, endpoint: &'a str) -> Option<Self> {
        let mut claims = shared.claims();
        if claims.len() >= CLAIMS_MAX || !claims.insert(endpoint.to_owned()) {
            drop(claims);
            let reason = "claim not looked into";
            shared.drops.count(1, Hop::Discovery, reason);
            return None;
        }
        drop(claims);
        Some(Self { shared, endpoint })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.shared.claims().remove(self.endpoint);
    }
}

/// Believes a Bye when the device does not listen any more.
pub(super) async fn confirm_bye(shared: &Shared, endpoint: &str) {
    let Some(_claim) = Claim::new(shared, endpoint) else {
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

/// Believes that a device moved when it does not listen at its old address any more.
pub(super) async fn confirm_move(shared: &Shared, target: Target, from: SocketAddr) {
    let endpoint = target.endpoint.address.to_string();
    let Some(_claim) = Claim::new(shared, &endpoint) else {
        return;
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
        return;
    }
    let dialect = shared
        .table()
        .get(&endpoint)
        .map(|entry| entry.found.dialect);
    let Some(dialect) = dialect else { return };
    let found = Found::new(&target, dialect, from);
    shared.table().moved(&found);
    if shared.order(Command::Accept { target, from }).await.is_ok() {
        shared.tell(Seen::Changed(found));
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
        let described: Vec<(String, SocketAddr)> = {
            let table = shared.table();
            let described = table.iter().filter_map(|(endpoint, entry)| {
                let contact = entry.contact.as_ref()?;
                Some((endpoint.clone(), contact.address))
            });
            described.collect()
        };
        let mut looks = JoinSet::new();
        for (endpoint, address) in described {
            if looks.len() >= LOOKS_MAX {
                take(&shared, looks.join_next().await).await;
            }
            looks.spawn(async move { (endpoint, look_at(address).await) });
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
