//! The streams that a device continues: those of its durable identity.
//!
//! An identity is a claim. A device continues a stream of another endpoint address only if the device
//! of that address is gone: it does not answer where it answered last, its task has stored its
//! elements, and the registry does not list it. Otherwise two devices have the same serial number, or
//! one claims the other's: each gets streams of its own.
//!
//! A device that has streams of its identity under its own endpoint address looks for no others. Of
//! several streams that a device could continue, the one that its own name gives comes first, then the
//! one that was defined first: whoever claims an identity later comes after the device.

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
use super::table::DeviceState;
use crate::catalogue::Entry;
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::tasks::ended;

/// Former devices of one identity that are asked whether they are present, in the order in which their
/// streams would be continued; streams of others are not continued. Reason: there is more than one only
/// where serial numbers are not unique, or somebody claims them.
const PREDECESSORS_MAX: usize = 8;
/// Of these, former devices that answered last at one address. Reason: a host can claim an identity
/// under any number of endpoint addresses, and must not keep the former device from being asked.
const PREDECESSORS_OF_HOST_MAX: usize = PREDECESSORS_MAX / 2;
/// Time in which it must be certain that a former device is gone. Reason: three attempts of three
/// seconds at its address, and two in which its task may store what it has.
const DEADLINE: Duration = Duration::from_secs(15);
/// Pause between two looks whether a device that does not answer has been removed.
const LEAVING_PAUSE: Duration = Duration::from_millis(20);

/// A device that may continue streams.
pub(super) struct Successor<'a> {
    pub(super) client: &'a Arc<DeviceClient>,
    pub(super) key: &'a str,
    pub(super) product: &'a Product,
    /// Says when the device has left: then it continues nothing.
    pub(super) left: &'a mut watch::Receiver<bool>,
}

/// The streams of a device's identity.
#[derive(Default)]
pub(super) struct Lineage {
    identity: Option<DeviceIdentity>,
    /// By the last part of their names.
    streams: BTreeMap<String, Continued>,
    /// Keys of former devices for which a notice says that their streams are continued.
    announced: BTreeSet<String>,
}

/// A stream that is continued.
struct Continued {
    name: String,
    /// The key of the device that it is of, when that is another one.
    predecessor: Option<String>,
}

impl Lineage {
    /// The identity that is stored with the device's streams.
    pub(super) fn identity(&self) -> Option<&DeviceIdentity> {
        self.identity.as_ref()
    }

    /// Takes the identity of the device as it is known now; says whether it or its address is another
    /// one than before.
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
        let mut streams = app.catalogue.of_identity(&identity.identity);
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

    /// The stream that an offer with this part of a name continues.
    pub(super) fn stream(&self, part: &str) -> Option<String> {
        self.streams.get(part).map(|stream| stream.name.clone())
    }

    /// Whether the device may take a stream of this owner.
    pub(super) fn may_take(&self, app: &App, name: &str, owner: &str) -> bool {
        let stream = self.streams.get(last_part(name));
        let is_predecessor = stream.is_some_and(|stream| {
            stream.name == name && stream.predecessor.as_deref() == Some(owner)
        });
        is_predecessor && has_left(app, owner)
    }

    /// The stream belongs to this device now: the device table and the notices say so.
    pub(super) fn taken(&mut self, app: &App, key: &str, name: &str) {
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
                .tell(NoticeKind::Device, key, text);
        }
    }

    /// The stream is of another device after all.
    pub(super) fn forget(&mut self, name: &str) {
        self.streams.retain(|_, stream| stream.name != name);
    }
}

/// What an offer's name becomes at the end of a stream's name.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Owners of streams, each with whether it is gone, as far as that is known.
type Looked = BTreeMap<String, Option<bool>>;

/// Asks the first owners of these streams, until it is known which ones are continued. What cannot be
/// decided in time counts as present.
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
            // One that failed is never decided.
            if let Ok((owner, is_gone)) = one {
                looked.insert(owner, Some(is_gone));
            }
        }
    };
    let is_late = tokio::select! {
        late = tokio::time::timeout(DEADLINE, all) => late.is_err(),
        () = ended(successor.left) => false,
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

/// The owners of streams that are asked, each with the address where it answered last.
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

/// Whether it is known of each last part of a name which of these streams is continued: the first one
/// whose owner is gone.
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

/// Whether a device is gone, with all that its task and the registry had of it.
fn has_left(app: &App, key: &str) -> bool {
    let device = app.devices.get(key);
    let is_gone = device.is_none_or(|device| device.state == DeviceState::Gone);
    // Its own entity is the last one that is removed.
    is_gone && app.registry.get(key, &Principal::Operator).is_none()
}

fn endpoint(key: &str) -> String {
    endpoint_of(key).unwrap_or_else(|| key.to_owned())
}

fn notice_apart(app: &App, key: &str, identity: &DeviceIdentity, owner: &str) {
    let text = format!(
        "{} is {}, as is {}, which is not known to be gone: they have streams of their own \
         (two devices have the same serial number, or one claims that of the other)",
        endpoint(key),
        identity.identity,
        endpoint(owner),
    );
    app.observability
        .notices
        .tell(NoticeKind::Device, key, text);
}
