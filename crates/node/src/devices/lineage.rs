//! The streams that a device continues: those of its durable identity.
//!
//! An identity is a claim. A device continues a stream of another endpoint address only if the device
//! of that address is gone: it does not answer where it answered last, its task has stored its
//! elements, and the registry does not list it. Otherwise two devices have the same serial number, or
//! one claims the other's: each gets streams of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_registry::Principal;
use chappe_stream::DeviceIdentity;
use tokio::task::JoinSet;

use super::identity::Product;
use super::key::endpoint_of;
use super::table::DeviceState;
use crate::catalogue::Entry;
use crate::notices::NoticeKind;
use crate::shared::{App, ended};

/// Former devices of one identity that are asked whether they are present, those with the newest
/// elements first; streams of others are not continued. Reason: there is more than one only where
/// serial numbers are not unique.
const PREDECESSORS_MAX: usize = 8;
/// Time in which it must be certain that a former device is gone. Reason: three attempts of three
/// seconds at its address, and two in which its task may store what it has.
const DEADLINE: Duration = Duration::from_secs(15);
/// Pause between two looks whether a device that does not answer has been removed.
const LEAVING_PAUSE: Duration = Duration::from_millis(20);

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
        client: &Arc<DeviceClient>,
        key: &str,
        product: &Product,
        identity: DeviceIdentity,
    ) -> bool {
        if self.identity.as_ref() == Some(&identity) {
            return false;
        }
        let known = self.identity.replace(identity.clone());
        if known.is_none_or(|known| known.identity != identity.identity) {
            self.trace(app, client, key, product, &identity).await;
        }
        true
    }

    /// Finds the streams of an identity that the device continues.
    async fn trace(
        &mut self,
        app: &App,
        client: &Arc<DeviceClient>,
        key: &str,
        product: &Product,
        identity: &DeviceIdentity,
    ) {
        self.streams.clear();
        let (own, foreign): (Vec<_>, Vec<_>) = app
            .catalogue
            .of_identity(&identity.identity)
            .into_iter()
            .partition(|entry| entry.source() == key);
        for entry in own {
            self.add(&entry, None);
        }
        let is_new = |entry: &Arc<Entry>| !self.streams.contains_key(last_part(&entry.name));
        let mut foreign: Vec<_> = foreign.into_iter().filter(is_new).collect();
        // Of several streams with the same last part, the newest is continued.
        foreign.sort_by_key(|entry| std::cmp::Reverse(entry.last_time()));
        let mut gone: BTreeMap<String, bool> = BTreeMap::new();
        for (owner, is_gone) in look(app, client, product, &foreign).await {
            if !is_gone {
                notice_apart(app, key, identity, &owner);
            }
            gone.insert(owner, is_gone);
        }
        for entry in foreign {
            let owner = entry.source();
            if gone.get(&owner) == Some(&true) {
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
        if app.devices.get(&owner).is_some() {
            app.devices.update(&owner, |device| {
                device.streams.retain(|stream| stream != name);
            });
        }
        if self.announced.insert(owner.clone()) {
            let (old, new) = (endpoint(&owner), endpoint(key));
            let identity = self.identity.as_ref().map(|one| one.identity.as_str());
            let text = format!(
                "{new} continues the streams of {old}, which is gone: both are {}",
                identity.unwrap_or_default()
            );
            app.notices.tell(NoticeKind::Device, key, text);
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

/// The first owners of these streams, each with whether it is gone.
async fn look(
    app: &App,
    client: &Arc<DeviceClient>,
    product: &Product,
    streams: &[Arc<Entry>],
) -> BTreeMap<String, bool> {
    let mut owners = BTreeMap::new();
    let mut looks = JoinSet::new();
    for entry in streams {
        let owner = entry.source();
        if owners.contains_key(&owner) || owners.len() >= PREDECESSORS_MAX {
            continue;
        }
        let Some(device) = entry.log.device() else {
            continue;
        };
        owners.insert(owner.clone(), false);
        let (app, client, successor) = (app.clone(), client.clone(), product.presence.clone());
        looks.spawn(async move {
            let endpoint = endpoint_of(&owner)?;
            if client
                .is_present(&endpoint, &device.address, &successor)
                .await
            {
                return None;
            }
            while !has_left(&app, &owner) {
                tokio::time::sleep(LEAVING_PAUSE).await;
            }
            Some(owner)
        });
    }
    let mut drain = app.drain.clone();
    let all = async {
        while let Some(looked) = looks.join_next().await {
            // One that failed is as one that is present.
            if let Ok(Some(owner)) = looked {
                owners.insert(owner, true);
            }
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(DEADLINE, all) => {}
        () = ended(&mut drain) => {}
    }
    // They hold the client.
    looks.shutdown().await;
    owners
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
    app.notices.tell(NoticeKind::Device, key, text);
}
