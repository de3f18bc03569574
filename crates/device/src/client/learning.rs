//! Devices that something else than WS-Discovery found, in the same list.

use std::sync::Arc;

use chappe_dpws::discovery::client::Command;

use super::liveness::{Claim, Look, contact_of, forget, look_at};
use super::{Found, Seen, Shared, Way, discovery};

pub(super) async fn learn(shared: &Arc<Shared>, found: Found) {
    let known = shared.table().get(&found.endpoint).map(|entry| {
        let described = entry.contact.is_some();
        (entry.found.clone(), described)
    });
    let Some((known, described)) = known else {
        if discovery::insert(shared, &found) {
            shared.tell(Seen::Found(found));
        }
        return;
    };
    let newer = found.metadata_version > known.metadata_version;
    let elsewhere = found.xaddrs.iter().any(|one| !known.xaddrs.contains(one));
    // Whom nobody could describe may be reached by what another says of it.
    let vouched = !described && found.from != known.from && !found.from.ip().is_unspecified();
    if elsewhere && !vouched {
        let Some(_claim) = Claim::new(shared, &found.endpoint, found.host()) else {
            return;
        };
        if let Some(contact) = contact_of(shared, &found.endpoint)
            && matches!(
                look_at(contact.address).await,
                Look::Listens | Look::Unknown
            )
        {
            // It has more addresses than one; that it is asked at suffices.
            if newer {
                let found = Found {
                    metadata_version: found.metadata_version,
                    ..known
                };
                changed(shared, found).await;
            }
            return;
        }
    }
    if elsewhere || newer || vouched {
        changed(shared, found).await;
    }
}

async fn changed(shared: &Arc<Shared>, found: Found) {
    if !discovery::insert(shared, &found) {
        return;
    }
    // What WS-Discovery knows of it is old; when it is heard there again, it is new.
    let endpoint = found.endpoint.clone().into();
    let _ = shared.order(Command::Forget { endpoint }).await;
    shared.tell(Seen::Changed(found));
}

pub(super) async fn unlearn(shared: &Shared, endpoint: &str) {
    let only_told = shared
        .table()
        .get(endpoint)
        .is_some_and(|entry| entry.contact.is_none() && entry.found.way == Way::Kad);
    if only_told {
        forget(shared, endpoint, "nobody publishes it any more").await;
    }
}
