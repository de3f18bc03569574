//! Devices found by other means than WS-Discovery, in the same list.

use std::sync::Arc;

use chappe_dpws::discovery::client::Command;
use chappe_transport::Hop;

use super::liveness::{Claim, ProbeResult, contact_of, forget, probe_address};
use super::{Found, Seen, Shared, Way, discovery};

/// Like [`learn`], for a description that nobody but its sender vouches for: it changes nothing about a device
/// that another host announced and that was not reached yet.
pub(super) async fn hear(shared: &Arc<Shared>, found: Found) {
    let is_of_another = shared
        .table()
        .get(&found.endpoint)
        .is_some_and(|entry| entry.contact.is_none() && entry.found.from.ip() != found.from.ip());
    match is_of_another {
        true => shared
            .drops
            .count(1, Hop::Discovery, "claim not looked into"),
        false => learn(shared, found).await,
    }
}

pub(super) async fn learn(shared: &Arc<Shared>, found: Found) {
    let (known, is_reached_elsewhere) = {
        let table = shared.table();
        let known = table.get(&found.endpoint).map(|entry| {
            let described = entry.contact.is_some();
            (entry.found.clone(), described)
        });
        (known, table.is_reached_elsewhere(&found))
    };
    let Some((known, described)) = known else {
        if discovery::insert(shared, &found) {
            discovery::heard(shared, found.from.ip(), Seen::Found(found));
        }
        return;
    };
    let is_newer = found.metadata_version > known.metadata_version;
    let is_elsewhere =
        is_reached_elsewhere || found.xaddrs.iter().any(|one| !known.xaddrs.contains(one));
    // A device that could not be described may be reachable at an address that another node vouches for.
    let is_vouched = !described && found.from != known.from && !found.from.ip().is_unspecified();
    if is_elsewhere && !is_vouched {
        let Some(_claim) = Claim::new(shared, &found.endpoint, found.host()) else {
            return;
        };
        if let Some(contact) = contact_of(shared, &found.endpoint)
            && matches!(
                probe_address(contact.address).await,
                ProbeResult::Listens | ProbeResult::Unknown
            )
        {
            // It has several addresses; the one at which it answers is sufficient.
            if is_newer {
                let found = Found {
                    metadata_version: found.metadata_version,
                    ..known
                };
                report_change(shared, found).await;
            }
            return;
        }
    }
    if is_elsewhere || is_newer || is_vouched {
        report_change(shared, found).await;
    }
}

async fn report_change(shared: &Arc<Shared>, found: Found) {
    if !discovery::insert(shared, &found) {
        return;
    }
    // The machine's record from WS-Discovery is outdated; another Hello counts as new.
    let endpoint = found.endpoint.clone().into();
    let _ = shared.command(Command::Forget { endpoint }).await;
    discovery::heard(shared, found.from.ip(), Seen::Changed(found));
}

pub(super) async fn unlearn(shared: &Shared, endpoint: &str) {
    let is_only_published = shared
        .table()
        .get(endpoint)
        .is_some_and(|entry| entry.contact.is_none() && entry.found.way != Way::Discovery);
    if is_only_published {
        forget(shared, endpoint, "it is no longer published").await;
    }
}
