//! The streams of a device's durable identity, which the device continues.
//!
//! An identity is only a claim. A device continues a stream of another endpoint address only if the
//! device of that address is gone: it does not answer at its last address, its task has stored its
//! elements, and the registry does not list it. Otherwise two devices have the same serial number, or
//! one claims the other's, and each gets its own streams.
//!
//! A device that has streams of its identity under its own endpoint address does not search for others.
//! Of several candidates, the stream with the name derived from the device's name comes first, then the
//! one defined first, so a later claimant of the identity comes after the real device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_identity::{Contact, Host};
use chappe_registry::Principal;
use chappe_stream::DeviceIdentity;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::identity::Product;
use super::key::endpoint_of;
use crate::catalogue::Entry;
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::tasks::shutdown;

/// Former devices of one identity to probe, in the order in which their streams would be continued; the
/// streams of others are not continued. Reason: there are several only where serial numbers are not
/// unique, or are forged.
const PREDECESSORS_MAX: usize = 8;
/// Former devices to probe per last address; reason: a host can claim an identity under any number of
/// endpoint addresses, and must not prevent the real predecessor from being probed.
const PREDECESSORS_OF_HOST_MAX: usize = PREDECESSORS_MAX / 2;
/// Time limit for establishing that a former device is gone; reason: three attempts of three seconds at
/// its address, and two seconds for its task to store its elements.
const DEADLINE: Duration = Duration::from_secs(15);
/// Pause between two checks whether a device that does not answer has been removed.
const LEAVING_PAUSE: Duration = Duration::from_millis(20);

/// A device that may continue streams.
pub(super) struct Successor<'a> {
    pub(super) client: &'a Arc<DeviceClient>,
    pub(super) key: &'a str,
    pub(super) product: &'a Product,
    /// Becomes true when the device has left; it then continues nothing.
    pub(super) left: &'a mut watch::Receiver<bool>,
}

/// The streams of a device's identity.
#[derive(Default)]
pub(super) struct Lineage {
    identity: Option<DeviceIdentity>,
    /// Streams by the last part of their names.
    streams: BTreeMap<String, Continued>,
    /// Keys of former devices whose continuation was reported in a notice.
    announced: BTreeSet<String>,
}

/// A continued stream.
struct Continued {
    name: String,
    /// The key of the former device that owns it, if any.
    predecessor: Option<String>,
}

impl Lineage {
    /// The identity stored with the device's streams.
    pub(super) fn identity(&self) -> Option<&DeviceIdentity> {
        self.identity.as_ref()
    }

    /// Sets the identity of the device; returns whether it or its address has changed.
    pub(super) async fn recognize(
        &mut self,
        app: &App,
        successor: Successor<'_>,
        identity: DeviceIdentity,
    ) -> bool {
        if self.identity.as_ref() == Some(&identity) {
            return false;
        }
        let known = self.identity.replace(identity.clone());
        if known.is_none_or(|known| known.identity != identity.identity) {
            self.trace(app, successor, &identity).await;
        }
        true
    }

    /// Finds the streams of an identity that the device continues.
    async fn trace(&mut self, app: &App, successor: Successor<'_>, identity: &DeviceIdentity) {
        self.streams.clear();
        let (key, base) = (successor.key, &successor.product.base);
        let mut streams = app.catalogue.streams_of_identity(&identity.identity);
        streams.sort_by_key(|entry| {
            let has_own_name = entry.name == format!("{base}.{}", last_part(&entry.name));
            (!has_own_name, entry.log.log().number())
        });
        let is_own = |entry: &Arc<Entry>| entry.source() == key;
        if streams.iter().any(is_own) {
            let own = streams.iter().filter(|entry| is_own(entry));
            own.for_each(|entry| self.add(entry, None));
            return;
        }
        let looked = look(app, successor, &streams).await;
        let gone = looked.iter().filter(|(_, is_gone)| **is_gone == Some(true));
        for owner in gone.map(|(owner, _)| owner) {
            // The device continues the place that an operator gave to its former endpoint address.
            if let Some(place) = app.devices.places.of(owner) {
                super::replace::assign(app, place, key, owner).await;
            }
        }
        for (owner, is_gone) in &looked {
            if *is_gone == Some(false) {
                notice_apart(app, key, identity, owner);
            }
        }
        for entry in streams {
            let owner = entry.source();
            if looked.get(&owner) == Some(&Some(true)) {
                self.add(&entry, Some(owner));
            }
        }
    }

    fn add(&mut self, entry: &Entry, predecessor: Option<String>) {
        let part = last_part(&entry.name).to_owned();
        let name = entry.name.clone();
        let continued = Continued { name, predecessor };
        self.streams.entry(part).or_insert(continued);
    }

    /// The stream that an offer with this name part continues.
    pub(super) fn stream(&self, part: &str) -> Option<String> {
        self.streams.get(part).map(|stream| stream.name.clone())
    }

    /// Whether the identity has streams that the device continues.
    pub(super) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether the device may take over a stream of this owner.
    pub(super) fn may_take(&self, app: &App, name: &str, owner: &str) -> bool {
        let stream = self.streams.get(last_part(name));
        let is_predecessor = stream.is_some_and(|stream| {
            stream.name == name && stream.predecessor.as_deref() == Some(owner)
        });
        is_predecessor && has_left(app, owner)
    }

    /// Records in the device table and in a notice that the stream now belongs to this device.
    pub(super) fn record_taken(&mut self, app: &App, key: &str, name: &str) {
        let Some(stream) = self.streams.get_mut(last_part(name)) else {
            return;
        };
        let Some(owner) = stream.predecessor.take_if(|_| stream.name == name) else {
            return;
        };
        app.devices.update(&owner, |device| {
            device.streams.retain(|stream| stream != name);
        });
        if self.announced.insert(owner.clone()) {
            let (old, new) = (endpoint(&owner), endpoint(key));
            let identity = self.identity.as_ref().map(|one| one.identity.as_str());
            let text = format!(
                "{new} continues the streams of {old}, which is gone: both are {}",
                identity.unwrap_or_default()
            );
            app.observability
                .notices
                .notify(NoticeKind::Device, key, text);
        }
    }

    /// Removes a stream that belongs to another device after all.
    pub(super) fn forget(&mut self, name: &str) {
        self.streams.retain(|_, stream| stream.name != name);
    }
}

/// The last part of a stream's name, derived from its offer's name.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Owners of streams, each with whether it is gone, if known.
type Looked = BTreeMap<String, Option<bool>>;

/// Probes the first owners of these streams until it is known which streams are continued. An owner
/// counts as present if this cannot be decided in time.
async fn look(app: &App, successor: Successor<'_>, streams: &[Arc<Entry>]) -> Looked {
    let (mut looked, mut looks) = (Looked::new(), JoinSet::new());
    for (owner, address) in predecessors(streams) {
        looked.insert(owner.clone(), None);
        let (app, client) = (app.clone(), successor.client.clone());
        let presence = successor.product.presence.clone();
        looks.spawn(async move {
            let Some(endpoint) = endpoint_of(&owner) else {
                return (owner, false);
            };
            let is_present = client.is_present(&endpoint, &address, &presence).await;
            while !is_present && !has_left(&app, &owner) {
                tokio::time::sleep(LEAVING_PAUSE).await;
            }
            (owner, !is_present)
        });
    }
    let all = async {
        while !is_decided(streams, &looked)
            && let Some(one) = looks.join_next().await
        {
            // A failed probe decides nothing.
            if let Ok((owner, is_gone)) = one {
                looked.insert(owner, Some(is_gone));
            }
        }
    };
    let is_late = tokio::select! {
        late = tokio::time::timeout(DEADLINE, all) => late.is_err(),
        () = shutdown(successor.left) => false,
    };
    if is_late {
        looked
            .values_mut()
            .for_each(|is_gone| *is_gone = is_gone.or(Some(false)));
    }
    // They hold the client.
    looks.shutdown().await;
    looked
}

/// The owners of streams to probe, each with its last address.
fn predecessors(streams: &[Arc<Entry>]) -> BTreeMap<String, String> {
    let mut owners = BTreeMap::new();
    let mut of_host: BTreeMap<Option<Host>, usize> = BTreeMap::new();
    for entry in streams {
        let owner = entry.source();
        let Some(device) = entry.log.device() else {
            continue;
        };
        if owners.len() >= PREDECESSORS_MAX || owners.contains_key(&owner) {
            continue;
        }
        let contact = Contact::parse(&device.address, 0).ok();
        let count = of_host
            .entry(contact.map(|it| Host::from_address(it.address.ip())))
            .or_default();
        if *count < PREDECESSORS_OF_HOST_MAX {
            *count += 1;
            owners.insert(owner, device.address);
        }
    }
    owners
}

/// Whether, for each last part of a name, it is known which stream is continued: the first one whose
/// owner is gone.
fn is_decided(streams: &[Arc<Entry>], looked: &Looked) -> bool {
    let mut continued = BTreeSet::new();
    streams.iter().all(|entry| {
        let part = last_part(&entry.name);
        match looked.get(&entry.source()) {
            Some(None) => continued.contains(part),
            Some(Some(true)) => {
                continued.insert(part);
                true
            }
            Some(Some(false)) | None => true,
        }
    })
}

/// Whether a device is gone, and its task and registry entries have ended.
pub(super) fn has_left(app: &App, key: &str) -> bool {
    // The device's own entity is removed last.
    app.devices.is_absent(key) && app.registry.get(key, &Principal::Operator).is_none()
}

fn endpoint(key: &str) -> String {
    endpoint_of(key).unwrap_or_else(|| key.to_owned())
}

fn notice_apart(app: &App, key: &str, identity: &DeviceIdentity, owner: &str) {
    let text = format!(
        "{} is {}, as is {}, which may still be present: each has streams of its own \
         (two devices have the same serial number, or one claims the other's)",
        endpoint(key),
        identity.identity,
        endpoint(owner),
    );
    app.observability
        .notices
        .notify(NoticeKind::Device, key, text);
}
