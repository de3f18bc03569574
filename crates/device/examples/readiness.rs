//! Measures the time to find and describe a device: Probe, Resolve, metadata, over the loopback without the
//! standard's delay. Prints percentiles in microseconds.
//!
//! Run: `taskset -c 0 cargo run --release -p chappe-device --example readiness -- 300`

use std::time::{Duration, Instant};

use chappe_device::client::{Discovery, Search, Seen};
use chappe_device::host::endpoint_of;
use chappe_device::{ClientOptions, DeviceClient, DeviceHost, HostOptions, Selection};
use chappe_dpws::hosting::HostedService;
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_identity::Key;
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_transport::Drops;
use chappe_xml::Name;

const NAMESPACE: &str = "https://example.org/readiness";

fn selection(address: &str) -> Selection {
    Selection::Addresses(address.parse().into_iter().collect())
}

fn host(seed: [u8; 32]) -> Result<DeviceHost, chappe_device::Error> {
    let event = ServiceOperation::event("Report", Name::new(NAMESPACE, "Report"));
    let service = Service {
        target_namespace: NAMESPACE.into(),
        name: "Sensor".into(),
        operations: vec![event],
        schemas: Vec::new(),
        address: None,
    };
    let options = HostOptions {
        selection: selection("127.0.9.1"),
        app_max_delay: Duration::ZERO,
        ..HostOptions::default()
    };
    DeviceHost::builder(endpoint_of(&Key::from_seed(seed)))
        .model(ThisModel {
            manufacturer: vec!["Example".into()],
            model_name: vec!["readiness".into()],
            ..ThisModel::default()
        })
        .device(ThisDevice {
            friendly_name: vec!["readiness".into()],
            ..ThisDevice::default()
        })
        .types([Name::new(NAMESPACE, "Readiness")])
        .service(HostedService::new(
            "urn:readiness",
            "/sensor",
            service.to_wsdl(),
        ))
        .options(options)
        .start(Drops::default())
}

/// Waits for the `wanted` event.
async fn until(discovery: &mut Discovery, wanted: impl Fn(&Seen) -> bool) {
    while let Some(seen) = discovery.next().await {
        if wanted(&seen) {
            return;
        }
    }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    println!(
        "{what:10} p50 {:6}  p90 {:6}  p99 {:6}",
        at(50),
        at(90),
        at(99)
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args()
        .nth(1)
        .map_or(Ok(300), |text| text.parse())?;
    let host = host(chappe_transport::seed()?)?;
    let options = ClientOptions {
        selection: selection("127.0.0.1"),
        probe_period: None,
        liveness_period: None,
        ..ClientOptions::default()
    };
    let client = DeviceClient::start(options, Drops::default())?;
    let mut discovery = client.discover().await?;
    let found = loop {
        match discovery.next().await {
            Some(Seen::Found(found)) if found.endpoint == host.endpoint() => break found,
            Some(_) => {}
            None => return Err("closed".into()),
        }
    };
    let mut times: [Vec<Duration>; 4] = Default::default();
    let search = Search {
        types: vec![Name::new(NAMESPACE, "Readiness")],
        ..Search::default()
    };
    for _ in 0..rounds {
        let start = Instant::now();
        let id = client.search(&search).await?;
        let matched = |seen: &Seen| matches!(seen, Seen::Match { id: of, .. } if *of == id);
        until(&mut discovery, matched).await;
        let probed = Instant::now();
        client.resolve(&found.endpoint).await?;
        let resolved = |seen: &Seen| matches!(seen, Seen::ResolveEnded { answered: true, .. });
        until(&mut discovery, resolved).await;
        let resolved = Instant::now();
        client.describe(&found).await?;
        let described = Instant::now();
        let steps = [
            probed - start,
            resolved - probed,
            described - resolved,
            described - start,
        ];
        times
            .iter_mut()
            .zip(steps)
            .for_each(|(times, step)| times.push(step));
        // Below the limit on answers of a device to one host.
        tokio::time::sleep(Duration::from_millis(110)).await;
    }
    let names = ["probe", "resolve", "metadata", "all"];
    names
        .into_iter()
        .zip(times)
        .for_each(|(name, times)| report(name, times));
    client.close().await;
    host.stop().await;
    Ok(())
}
