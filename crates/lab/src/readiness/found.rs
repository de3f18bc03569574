//! Probe, Resolve and metadata, each timed from its question to its answer.

use std::time::{Duration, Instant};

use chappe_device::client::{Discovery, Found, Search, Seen};
use chappe_device::{ClientOptions, DeviceClient, Selection};
use chappe_transport::Drops;
use chappe_xml::Name;

use super::{Bench, CLIENT_ADDRESS, runtime};
use crate::Error;

/// Number of unanswered searches after which the device counts as unusable.
const ATTEMPTS: usize = 5;

/// The times of each step.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) probe: Vec<Duration>,
    pub(super) resolve: Vec<Duration>,
    pub(super) metadata: Vec<Duration>,
    pub(super) all: Vec<Duration>,
}

/// A client that searches only on request.
pub(crate) fn client(address: &str) -> Result<DeviceClient, Error> {
    let address = address.parse();
    let options = ClientOptions {
        selection: Selection::Addresses(address.into_iter().collect()),
        probe_period: None,
        liveness_period: None,
        ..ClientOptions::default()
    };
    DeviceClient::start(options, Drops::default()).map_err(Error::failed("starting the client"))
}

/// Each round has its own client, and a pause: a device limits its answers.
pub(super) fn measure(bench: &Bench<'_>, rounds: usize, pause: Duration) -> Result<Steps, Error> {
    let search = Search {
        types: vec![Name::owned(bench.namespace.clone(), "Readiness".to_owned())],
        ..Search::default()
    };
    runtime()?.block_on(async {
        let mut steps = Steps::default();
        for _ in 0..rounds {
            round(&search, &mut steps).await?;
            tokio::time::sleep(pause).await;
        }
        Ok(steps)
    })
}

async fn round(search: &Search, steps: &mut Steps) -> Result<(), Error> {
    let client = client(CLIENT_ADDRESS)?;
    let mut discovery = client.listen();
    let asking = || Error::failed("asking for the device");
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        let id = client.search(search).await.map_err(asking())?;
        let Some(found) = matched(&mut discovery, id).await else {
            continue;
        };
        let probed = Instant::now();
        client.resolve(&found.endpoint).await.map_err(asking())?;
        if !resolved(&mut discovery).await {
            return Err(Error::Failed(
                "the device did not answer the resolve".to_owned(),
            ));
        }
        let resolved = Instant::now();
        let description = client.describe(&found).await;
        let described = Instant::now();
        let description = description.map_err(Error::failed("describing the device"))?;
        if description.services.is_empty() || !description.notes.is_empty() {
            let what = format!("an unexpected description: {:?}", description.notes);
            return Err(Error::Failed(what));
        }
        steps.probe.push(probed - start);
        steps.resolve.push(resolved - probed);
        steps.metadata.push(described - resolved);
        steps.all.push(described - start);
        client.close().await;
        return Ok(());
    }
    Err(Error::Failed("the device was not found".to_owned()))
}

/// The device that matches the search, if one does.
pub(super) async fn matched(discovery: &mut Discovery, search: u64) -> Option<Found> {
    let mut known: Vec<Found> = Vec::new();
    loop {
        match discovery.next().await? {
            Seen::Found(found) | Seen::Changed(found) => known.push(found),
            Seen::Match { id, endpoint } if id == search => {
                let position = known.iter().position(|found| found.endpoint == endpoint);
                return position.map(|position| known.swap_remove(position));
            }
            Seen::SearchEnded { id, .. } if id == search => return None,
            _ => {}
        }
    }
}

async fn resolved(discovery: &mut Discovery) -> bool {
    while let Some(seen) = discovery.next().await {
        if let Seen::ResolveEnded { answered, .. } = seen {
            return answered;
        }
    }
    false
}
