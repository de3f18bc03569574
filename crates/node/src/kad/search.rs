//! Periodic searches for the devices that others publish.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_device::DeviceClient;
use chappe_device::client::{Found, Way};
use chappe_identity::PublicKey;
use chappe_kad::Report;
use chappe_kad::service::{device_key, type_key};
use chappe_transport::Hop;
use chappe_transport::kad::{Finding, KadNode, Sighting};

use crate::shared::App;

/// A device is forgotten when no record of it was found for this long: twice a record's lifetime.
const REMEMBERED: Duration = Duration::from_secs(2 * 3_600);

/// The last sighting of a device by one publisher.
struct LastSighting {
    sequence: u64,
    confirmed: bool,
    at: Instant,
}

/// The last sightings by endpoint and publisher.
type Memory = HashMap<(String, PublicKey), LastSighting>;

/// Searches until it is aborted.
pub(crate) async fn search(app: App, client: Arc<DeviceClient>) {
    let Some(node) = app.kad.get() else { return };
    let period = Duration::from_secs(u64::from(app.config.kad.search_period_s));
    let mut memory = Memory::new();
    let mut report = node.report();
    loop {
        // Without contacts and records there is nothing to find. Devices that publish themselves are
        // not contacts, because they serve no requests.
        let can_search = |report: &Report| !report.contacts.is_empty() || report.records > 0;
        if report.wait_for(can_search).await.is_err() {
            return;
        }
        let types = app.config.kad.types.iter().map(|name| type_key(name));
        let mut keys: Vec<_> = types.collect();
        if keys.is_empty() {
            keys.push(device_key());
        }
        for key in keys {
            let credit = u64::from(app.config.kad.search_bytes);
            let mut findings = node.find(key, credit).await;
            while let Some(finding) = findings.recv().await {
                match finding {
                    Finding::Seen(sighting) => {
                        on_sighting(&app, (node, &client), &mut memory, &sighting).await
                    }
                    Finding::Ended {
                        exhausted: true, ..
                    } => record_exhausted(&app),
                    Finding::Ended { .. } => {}
                }
            }
        }
        forget_old(&client, &mut memory).await;
        tokio::time::sleep(period).await;
    }
}

async fn on_sighting(
    app: &App,
    (node, client): (&KadNode, &DeviceClient),
    memory: &mut Memory,
    sighting: &Sighting,
) {
    if sighting.publisher == node.public() {
        return;
    }
    let endpoint = &sighting.announcement.endpoint;
    app.devices
        .mark(&crate::devices::device_key(endpoint), Way::Kad);
    let name = (endpoint.clone(), sighting.publisher);
    // A record may outlive its device, so only a renewed record counts as a sign of life.
    let confirmed = sighting.confirmed.is_some();
    let is_news = memory
        .get(&name)
        .is_none_or(|last| sighting.sequence > last.sequence || confirmed && !last.confirmed);
    let room = 2 * app.config.discovery.max_devices as usize;
    if memory.contains_key(&name) || memory.len() < room {
        let (sequence, at) = (sighting.sequence, Instant::now());
        let last = LastSighting {
            sequence,
            confirmed,
            at,
        };
        memory.insert(name, last);
    }
    if is_news {
        client.learn(Found::published(sighting)).await;
    }
}

fn record_exhausted(app: &App) {
    let detail = format!(
        "more than {} bytes were offered",
        app.config.kad.search_bytes
    );
    let hint = Some("raise kad.search_bytes, or restrict the search with kad.types".to_owned());
    app.observability
        .drops
        .record(Hop::Discovery, "search cut off", "", detail, hint);
}

async fn forget_old(client: &DeviceClient, memory: &mut Memory) {
    let is_old = |last: &LastSighting| last.at.elapsed() >= REMEMBERED;
    let gone: Vec<_> = memory.iter().filter(|(_, last)| is_old(last)).collect();
    let gone: Vec<String> = gone
        .into_iter()
        .map(|((endpoint, _), _)| endpoint.clone())
        .collect();
    memory.retain(|_, last| !is_old(last));
    for endpoint in gone {
        if memory.keys().all(|(other, _)| *other != endpoint) {
            client.unlearn(&endpoint).await;
        }
    }
}
