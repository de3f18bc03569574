//! The devices that others publish, looked for again and again.

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

/// How long a device is remembered that nobody tells of any more: twice a record's life.
const REMEMBERED: Duration = Duration::from_secs(2 * 3_600);

/// What was last told of a device by one publisher.
struct Told {
    sequence: u64,
    confirmed: bool,
    at: Instant,
}

/// What is remembered of what was told.
type Memory = HashMap<(String, PublicKey), Told>;

/// Searches until it is aborted.
pub(crate) async fn search(app: App, client: Arc<DeviceClient>) {
    let Some(node) = app.kad.get() else { return };
    let period = Duration::from_secs(u64::from(app.config.kad.search_period_s));
    let mut memory = Memory::new();
    let mut report = node.report();
    loop {
        // Alone, and nothing was stored here: there is nothing to find. Devices that publish themselves
        // are no contacts, since they serve nobody.
        let something = |report: &Report| !report.contacts.is_empty() || report.records > 0;
        if report.wait_for(something).await.is_err() {
            return;
        }
        let types = app.config.kad.types.iter().map(|of| type_key(of));
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
                        seen(&app, (node, &client), &mut memory, &sighting).await
                    }
                    Finding::Ended {
                        exhausted: true, ..
                    } => tell_exhausted(&app),
                    Finding::Ended { .. } => {}
                }
            }
        }
        forget(&client, &mut memory).await;
        tokio::time::sleep(period).await;
    }
}

async fn seen(
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
        .mark(&crate::devices::key_of(endpoint), Way::Kad);
    let name = (endpoint.clone(), sighting.publisher);
    // A record outlives its device: only who renews it is taken for alive.
    let confirmed = sighting.confirmed.is_some();
    let news = memory
        .get(&name)
        .is_none_or(|told| sighting.sequence > told.sequence || confirmed && !told.confirmed);
    let room = 2 * app.config.discovery.max_devices as usize;
    if memory.contains_key(&name) || memory.len() < room {
        let (sequence, at) = (sighting.sequence, Instant::now());
        let told = Told {
            sequence,
            confirmed,
            at,
        };
        memory.insert(name, told);
    }
    if news {
        client.learn(Found::published(sighting)).await;
    }
}

fn tell_exhausted(app: &App) {
    let detail = format!(
        "more than {} bytes were offered",
        app.config.kad.search_bytes
    );
    let hint =
        Some("raise kad.search_bytes, or name the types that matter in kad.types".to_owned());
    app.observability
        .drops
        .record(Hop::Discovery, "search cut off", "", detail, hint);
}

async fn forget(client: &DeviceClient, memory: &mut Memory) {
    let old = |told: &Told| told.at.elapsed() >= REMEMBERED;
    let gone: Vec<_> = memory.iter().filter(|(_, told)| old(told)).collect();
    let gone: Vec<String> = gone
        .into_iter()
        .map(|((endpoint, _), _)| endpoint.clone())
        .collect();
    memory.retain(|_, told| !old(told));
    for endpoint in gone {
        if memory.keys().all(|(other, _)| *other != endpoint) {
            client.unlearn(&endpoint).await;
        }
    }
}
