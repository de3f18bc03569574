//! Replaces a device by a rule: a newcomer that reports the same friendly name, types and scopes takes the place of a
//! device that has been gone for `devices.replace_after_s`.
//!
//! Everything that a newcomer reports is a claim. It takes a place only if the former device is not in the table, and does not
//! answer at its last address either, so nobody takes the place of a device that is alive. [`claims`](super::claims)
//! says which claims are doubtful; these are left to an operator, and each newcomer stores under names of its own
//! meanwhile. A replacement by the rule is on record like one by an operator.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chappe_device::DeviceClient;
use chappe_device::client::Presence;
use chappe_transport::Hop;

use super::claims::{Circumstances, PlaceClaim, claims};
use super::device::DeviceState;
use super::key::endpoint_of;
use super::lineage::has_left;
use super::places::place_of_stream;
use super::profiles::{ALWAYS, Profile};
use super::replace::replace;
use super::rule::{Rule, lock};
use crate::accounts::{Audit, Change};
use crate::clock;
use crate::notices::NoticeKind;
use crate::shared::App;

/// The account of replacements by the rule in the audit stream.
const ACCOUNT: &str = "node";

/// The present claims.
fn present_claims(app: &App, rule: &Rule) -> Vec<PlaceClaim> {
    let places = &app.devices.places;
    // Read once, and only if somebody claims a place: there may be very many streams.
    let filled = LazyCell::new(|| places_by_source(app));
    let places_of = |device: &str| {
        let mut own = filled.get(device).cloned().unwrap_or_default();
        if let Some(assigned) = places.of(device) {
            own.retain(|place| *place == assigned);
        }
        own.retain(|place| places.device_of(place).is_none_or(|one| one == device));
        own.into_iter().collect()
    };
    let is_out = |device: &str| {
        let state = app.devices.get(device).map(|device| device.state);
        state == Some(DeviceState::Excluded) || places.of(device).is_some()
    };
    let circumstances = Circumstances {
        now: clock::now().0,
        after: i64::try_from(rule.after.as_nanos()).unwrap_or(i64::MAX),
        places_of: &places_of,
        is_out: &is_out,
    };
    claims(&rule.profiles.all(), &circumstances)
}

/// The places of the streams of each source.
fn places_by_source(app: &App) -> BTreeMap<String, BTreeSet<String>> {
    let mut filled: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in app.catalogue.entries() {
        let places = filled.entry(entry.source()).or_default();
        places.insert(place_of_stream(&entry.name).to_owned());
    }
    filled
}

/// The claims to places of devices that have left; none without the rule.
pub(crate) fn place_claims(app: &App) -> Vec<PlaceClaim> {
    let rule = app.devices.rule.as_ref();
    rule.map_or_else(Vec::new, |rule| present_claims(app, rule))
}

/// Records a device that is described, and gives it the place of its predecessor if the rule says so. `is_known`:
/// whether it was here before, perhaps under another endpoint address. May take some seconds.
pub(super) async fn arrived(
    app: &App,
    client: &DeviceClient,
    device: &str,
    presence: &Presence,
    is_known: bool,
) {
    let Some(rule) = &app.devices.rule else {
        return;
    };
    let Some(described) = app.devices.get(device) else {
        return;
    };
    lock(&rule.presences).insert(device.to_owned(), presence.clone());
    let since = match is_known || app.catalogue.stream_count(device) > 0 {
        true => ALWAYS,
        false => clock::now().0,
    };
    let profile = Profile::of(&described, presence.contact.to_string(), since);
    if let Err(error) = rule.profiles.arrived(profile).await {
        record_failure(app, device, &error);
    }
    look(app, rule, client, Some(device)).await;
}

/// Records that a device has left.
pub(super) async fn left(app: &App, device: &str) {
    let Some(rule) = &app.devices.rule else {
        return;
    };
    lock(&rule.presences).remove(device);
    if let Err(error) = rule.profiles.left(device, clock::now().0).await {
        record_failure(app, device, &error);
    }
}

fn record_failure(app: &App, device: &str, error: &std::io::Error) {
    let hint = Some("check the data directory's disk".to_owned());
    let drops = &app.observability.drops;
    drops.record(
        Hop::Discovery,
        "profile not kept",
        device,
        error.to_string(),
        hint,
    );
}

/// Applies the rule until the task is aborted.
pub(super) async fn watch(app: App, client: Arc<DeviceClient>) {
    let Some(rule) = &app.devices.rule else {
        return;
    };
    let mut changes = rule.profiles.changes();
    loop {
        look(&app, rule, &client, None).await;
        tokio::select! {
            // Cannot fail: the sender is part of the rule.
            _ = changes.changed() => {}
            () = tokio::time::sleep(rule.period()) => {}
        }
    }
}

/// Lets newcomers, or only one of them, take the places that are due, and announces doubts.
async fn look(app: &App, rule: &Rule, client: &DeviceClient, only: Option<&str>) {
    let claims = present_claims(app, rule);
    announce_doubts(app, rule, &claims);
    let due = claims.iter().filter_map(|claim| {
        let successor = claim.successor()?;
        let is_wanted = only.is_none_or(|only| only == successor);
        is_wanted.then_some((claim, successor))
    });
    for (claim, successor) in due {
        if app.devices.is_absent(successor)
            || !has_left(app, &claim.former)
            || is_alive(rule, client, &claim.former, successor).await
        {
            continue;
        }
        // The replacement and its record complete even if the newcomer leaves meanwhile.
        let (app, claim, successor) = (app.clone(), claim.clone(), successor.to_owned());
        let taking = tokio::spawn(async move { take(&app, &claim, &successor).await });
        // A failed task has ended as well.
        let _ = taking.await;
    }
}

/// Whether a device that is not in the table answers at its last address.
async fn is_alive(rule: &Rule, client: &DeviceClient, former: &str, successor: &str) -> bool {
    if rule.is_deferred(former) {
        return true;
    }
    let presence = lock(&rule.presences).get(successor).cloned();
    let profiles = rule.profiles.all();
    let profile = profiles.iter().find(|one| one.device == former);
    let (Some(presence), Some(profile), Some(endpoint)) = (presence, profile, endpoint_of(former))
    else {
        return true;
    };
    let is_alive = client
        .is_present(&endpoint, &profile.address, &presence)
        .await;
    if is_alive {
        rule.defer(former);
    }
    is_alive
}

/// Lets a newcomer take a place if its claim still stands, on record like an operator's decision.
async fn take(app: &App, claim: &PlaceClaim, successor: &str) {
    let Some(rule) = &app.devices.rule else {
        return;
    };
    let _deciding = rule.deciding.lock().await;
    // Another newcomer may have come meanwhile.
    if !present_claims(app, rule).contains(claim) {
        return;
    }
    let replaced = replace(app, successor, &claim.former, None).await;
    let (status, subject) = match &replaced {
        Ok(place) => (
            200,
            format!(
                "{} of {}: same name, types and scopes",
                place.place, claim.former
            ),
        ),
        Err(error) => {
            rule.defer(&claim.former);
            let text = format!("cannot take the place of {}: {error}", claim.former);
            let notices = &app.observability.notices;
            notices.notify(NoticeKind::Device, successor, text.clone());
            (409, text)
        }
    };
    let change = Change {
        account: ACCOUNT.to_owned(),
        address: None,
        operation: "replace_device",
        method: String::new(),
        path: format!("/api/v1/devices/{successor}/replace"),
        subject: Some(subject),
        status,
    };
    Audit::record(app, change, None).await;
}

/// Announces each doubt once.
fn announce_doubts(app: &App, rule: &Rule, claims: &[PlaceClaim]) {
    let mut announced = lock(&rule.announced);
    let doubts = claims.iter().filter_map(|claim| {
        let doubt = claim.doubt.as_ref()?;
        Some((claim, (claim.former.clone(), doubt.clone())))
    });
    let doubts: Vec<_> = doubts.collect();
    announced.retain(|known| doubts.iter().any(|(_, doubt)| doubt == known));
    for (claim, doubt) in doubts {
        if announced.insert(doubt.clone()) {
            let text = format!(
                "the place {} is free, and the rule does not decide: {}; `chappe device replace` does",
                claim.places.join(", "),
                doubt.1
            );
            let notices = &app.observability.notices;
            notices.notify(NoticeKind::Device, &claim.former, text);
        }
    }
}
