//! From a device's appearance to its first element in the log of a node.
//!
//! The node is `chappe serve`, level `power`. The device is in this process, so that one clock has
//! both ends: it starts when the device is started (before its sockets are bound and its Hello is
//! sent), the device sends its event as soon as it has a subscriber, and it ends when the node's
//! REST interface reports that the element is acknowledged. The end is polled every half
//! millisecond, on the same processor, so the figure is an upper bound.

use std::process::Command;
use std::time::{Duration, Instant};

use chappe_device::host::endpoint_of;
use chappe_device::{DeviceHost, HostOptions, Selection};
use chappe_dpws::hosting::HostedService;
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_identity::{Contact, Key};
use chappe_soap::schema::{FlatField, FlatType, XsdType, to_schema};
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_transport::Drops;
use chappe_transport::http::{Client, ClientLimits};
use chappe_xml::{Element, Name};
use serde_json::Value;

use super::{Bench, Floors, runtime};
use crate::process::Process;
use crate::{Error, Limit, Reference, Report};

/// Time between two polls of the node.
const LOOK: Duration = Duration::from_micros(500);
/// A device without an element within this time is a failure.
const DEADLINE: Duration = Duration::from_secs(20);

pub(super) fn run(bench: &Bench<'_>, floors: Floors, report: &mut Report) -> Result<(), Error> {
    let mut node = Command::new(&bench.program);
    let data = bench.folder.path().join("data");
    let sensors = bench.folder.path().join("sensors");
    let set = |key: &str, value: String| ["--set".to_owned(), format!("{key}={value}")];
    node.args(["--json", "serve"])
        .args(set("http.listen", "127.0.0.1:0".into()))
        .args(set("data_directory", data.display().to_string()))
        .args(set("sensors_directory", sensors.display().to_string()))
        .args(set("discovery.interfaces", "lo".into()));
    let mut node = Process::start(&mut node, "chappe serve")?;
    let ready: Value = serde_json::from_str(&node.line()?)
        .map_err(Error::failed("reading the node's first line"))?;
    let address = ready["address"].as_str().unwrap_or_default();
    let streams = Contact::parse(&format!("{address}/api/v1/streams"), 0)
        .map_err(Error::failed("the node's address"))?;
    let rounds = bench.rounds(40, 5);
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        // Each device has its own runtime, so that nothing remains of the previous one.
        times.push(runtime()?.block_on(appear(bench, round, &streams))?);
    }
    let note = "device started -> node reports its event as acknowledged (level power)";
    let name = "device appears -> first element";
    let (median, _) = report.times(name, note, &times);
    // Search and answer; description, subscription and event; the event and its storage.
    let floor = 2.0 * floors.udp_ms + 3.0 * floors.tcp_ms + 2.0 * floors.sync_ms;
    let floor = Reference::new("floor: 2 UDP, 3 TCP, 2 syncs, p50", floor);
    report.target(
        format!("{name}, p50"),
        (median, "ms"),
        floor,
        Limit::AtMost(25.0),
    );
    Ok(())
}

async fn appear(bench: &Bench<'_>, round: usize, streams: &Contact) -> Result<Duration, Error> {
    let mut seed = [0; 32];
    fastrand::Rng::with_seed(
        bench.settings.seed ^ (round as u64) << 32 ^ u64::from(std::process::id()),
    )
    .fill(&mut seed);
    let name = Name::owned(bench.namespace.clone(), "Report".to_owned());
    let builder = device(bench, endpoint_of(&Key::from_seed(seed)), round, &name);
    let action = format!("{}/Sensor/Report", bench.namespace);
    let http = Client::new(ClientLimits::default());
    let start = Instant::now();
    let host = builder
        .start(Drops::default())
        .map_err(Error::failed("starting the device"))?;
    let endpoint = host.endpoint().to_owned();
    let reporting = async {
        let mut state = host.state();
        let subscribed = state
            .wait_for(|state| state.subscriptions > 0)
            .await
            .is_ok();
        let celsius = Element::new(Name::owned(bench.namespace.clone(), "celsius".to_owned()));
        let report = Element::new(name.clone()).with_child(celsius.with_text("20.5"));
        if subscribed {
            let _ = host.notify(action, report).await;
        }
        std::future::pending::<()>().await;
    };
    let looking = async {
        while !acknowledged(&http, streams, &endpoint).await? {
            if start.elapsed() > DEADLINE {
                let what = format!("the node has no element of {endpoint} after {DEADLINE:?}");
                return Err(Error::Failed(what));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(start.elapsed())
    };
    let elapsed = tokio::select! {
        () = reporting => Err(Error::Failed("the device ended".to_owned())),
        elapsed = looking => elapsed,
    };
    host.stop().await;
    elapsed
}

/// Whether the node reports an acknowledged element of this device.
async fn acknowledged(http: &Client, streams: &Contact, device: &str) -> Result<bool, Error> {
    let what = "asking the node for its streams";
    let answer = http.get(streams).await.map_err(Error::failed(what))?;
    let answer: Value = serde_json::from_slice(&answer.body).map_err(Error::failed(what))?;
    let mut all = answer["streams"].as_array().into_iter().flatten();
    // The key of a device has its endpoint at its end.
    let is_of_device = |stream: &Value| {
        let source = stream["source"].as_str();
        source.is_some_and(|source| source.ends_with(device))
    };
    Ok(all.any(|stream| is_of_device(stream) && stream["last"].as_u64() > Some(0)))
}

fn device(
    bench: &Bench<'_>,
    endpoint: String,
    round: usize,
    name: &Name,
) -> chappe_device::host::Builder {
    let namespace = bench.namespace.clone();
    let celsius = Name::owned(namespace.clone(), "celsius".to_owned());
    let element = FlatType {
        name: name.clone(),
        fields: vec![FlatField::new(celsius, XsdType::Double).with_unit("Cel")],
        doc: None,
    };
    let service = Service {
        target_namespace: namespace.clone(),
        name: "Sensor".into(),
        operations: vec![ServiceOperation::event("Report", name.clone())],
        schemas: vec![to_schema(&namespace, &[element])],
        address: None,
    };
    let address = format!("127.0.7.{}", 1 + round % 250).parse();
    let options = HostOptions {
        selection: Selection::Addresses(address.into_iter().collect()),
        app_max_delay: Duration::ZERO,
        ..HostOptions::default()
    };
    DeviceHost::builder(endpoint)
        .model(ThisModel {
            manufacturer: vec!["Chappe".into()],
            model_name: vec!["bench".into()],
            ..ThisModel::default()
        })
        .device(ThisDevice {
            friendly_name: vec![format!("appearing {round}").as_str().into()],
            ..ThisDevice::default()
        })
        .types([Name::owned(namespace.clone(), "Appearing".to_owned())])
        .service(HostedService::new(
            format!("{namespace}/1"),
            "/sensor",
            service.to_wsdl(),
        ))
        .options(options)
}
