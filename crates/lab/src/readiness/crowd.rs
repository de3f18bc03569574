//! Many devices, probed at once with the delay off: all answer at the same moment.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use chappe_device::client::{Discovery, Search, Seen};
use chappe_device::host::endpoint_of;
use chappe_device::{DeviceHost, HostOptions, Selection};
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_identity::Key;
use chappe_transport::Drops;
use chappe_xml::Name;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::found::client;
use super::{Bench, CLIENT_ADDRESS, runtime};
use crate::{Error, Limit, Reference, Report};

/// Devices, each on its own loopback address.
const DEVICES: u8 = 200;
/// Time for the Hellos of all devices, which all of them receive, to end.
const SETTLE: Duration = Duration::from_secs(3);
/// Searches, one after another, until any device answers: a busy machine takes longer to settle.
const WARM_UPS: usize = 10;

pub(super) fn run(bench: &Bench<'_>, report: &mut Report) -> Result<(), Error> {
    open_many_files()?;
    let (started, starting) = mpsc::channel();
    let (end, ending) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let devices = scope.spawn(move || {
            let hosting = async {
                let hosts: Result<Vec<_>, _> = (1..=DEVICES).map(|n| host(bench, n)).collect();
                let hosts = hosts.map(|hosts| (hosts, ending));
                match hosts {
                    Ok((hosts, ending)) => {
                        let _ = started.send(Ok(()));
                        let _ = ending.await;
                        drop(hosts);
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            };
            runtime().map(|runtime| runtime.block_on(hosting))
        });
        let searched = match starting.recv() {
            Ok(Ok(())) => runtime()?.block_on(search(bench)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Failed("the devices did not start".to_owned())),
        };
        drop(end);
        devices
            .join()
            .map_err(|_| Error::Failed("the devices stopped".to_owned()))??;
        let (counts, times) = searched?;
        let least = counts.iter().copied().min().unwrap_or(0) as f64;
        let note = "from the search to the last match; delay off, found twice or more count once";
        report.times("200 devices probed at once, last match", note, &times);
        let name = "200 devices probed at once: found, fewest";
        let all = Reference::new("all", f64::from(DEVICES));
        report.target(name, (least, "devices"), all, Limit::AtLeast(1.0));
        Ok(())
    })
}

/// The outcome of each search.
async fn search(bench: &Bench<'_>) -> Result<(Vec<usize>, Vec<Duration>), Error> {
    tokio::time::sleep(SETTLE).await;
    let search = Search {
        types: vec![Name::owned(bench.namespace.clone(), "Crowd".to_owned())],
        ..Search::default()
    };
    for _ in 0..WARM_UPS {
        if once(&search).await?.0 > 0 {
            break;
        }
    }
    let (mut counts, mut times) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(10, 3) {
        let (count, time) = once(&search).await?;
        counts.push(count);
        times.push(time);
    }
    Ok((counts, times))
}

/// One search by a new client: the number of matches, and the time of the last.
async fn once(search: &Search) -> Result<(usize, Duration), Error> {
    let client = client(CLIENT_ADDRESS)?;
    let mut discovery = client.listen();
    let start = Instant::now();
    let asking = Error::failed("asking for the devices");
    let id = client.search(search).await.map_err(asking)?;
    let (count, last) = count(&mut discovery, id).await;
    client.close().await;
    Ok((count, last.map_or(search.timeout, |last| last - start)))
}

async fn count(discovery: &mut Discovery, search: u64) -> (usize, Option<Instant>) {
    let mut endpoints = std::collections::HashSet::new();
    let mut last = None;
    while let Some(seen) = discovery.next().await {
        match seen {
            Seen::Match { id, endpoint } if id == search => {
                last = endpoints.insert(endpoint).then(Instant::now).or(last);
            }
            Seen::SearchEnded { id, .. } if id == search => break,
            _ => {}
        }
    }
    (endpoints.len(), last)
}

fn host(bench: &Bench<'_>, number: u8) -> Result<DeviceHost, Error> {
    let mut seed = [number; 32];
    seed[..8].copy_from_slice(&bench.settings.seed.to_le_bytes());
    seed[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    let address = format!("127.0.6.{number}").parse();
    let options = HostOptions {
        selection: Selection::Addresses(address.into_iter().collect()),
        app_max_delay: Duration::ZERO,
        ..HostOptions::default()
    };
    DeviceHost::builder(endpoint_of(&Key::from_seed(seed)))
        .model(ThisModel {
            manufacturer: vec!["Chappe".into()],
            model_name: vec!["bench".into()],
            ..ThisModel::default()
        })
        .device(ThisDevice {
            friendly_name: vec![format!("one of many, {number}").as_str().into()],
            ..ThisDevice::default()
        })
        .types([Name::owned(bench.namespace.clone(), "Crowd".to_owned())])
        .options(options)
        .start(Drops::default())
        .map_err(Error::failed(format!("starting device {number}")))
}

/// Five descriptors for each device are more than the usual 1,024.
fn open_many_files() -> Result<(), Error> {
    let failed = |error: nix::Error| Error::io("raising the limit of open files")(error.into());
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(failed)
}
