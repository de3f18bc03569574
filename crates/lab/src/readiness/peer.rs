//! The peer: sdc11073, the reference implementation of SDC, found and described by our client.

use std::process::Command;
use std::time::{Duration, Instant};

use chappe_device::client::{Search, Seen};

use super::found::client;
use super::{Bench, CLIENT_ADDRESS, runtime};
use crate::process::Process;
use crate::{Error, Report, checkout};

const ADDRESS: &str = "127.0.0.1";

pub(super) fn run(bench: &Bench<'_>, report: &mut Report) -> Result<(), Error> {
    let provider = checkout::root().map(|root| root.join("check/sdc/provider.py"));
    let (Some(python), Some(provider)) = (checkout::peers_python(), provider) else {
        let reason = "sdc11073 is not installed (`check/peers sdc` installs it)";
        report.skipped.push(reason.to_owned());
        return Ok(());
    };
    (bench.settings.progress)("sdc11073 as the device");
    let mut command = Command::new(python);
    command.arg(provider).args([ADDRESS, "300"]);
    let mut process = Process::start(&mut command, "the sdc11073 provider")?;
    let line = match process.line() {
        Ok(line) => line,
        Err(error) => {
            report.skipped.push(format!("sdc11073: {error}"));
            return Ok(());
        }
    };
    let endpoint = line.strip_prefix("ready ").unwrap_or_default().to_owned();
    let rounds = bench.rounds(10, 3);
    let found = runtime()?.block_on(async {
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(find(&endpoint).await?);
        }
        Ok::<_, Error>(times)
    });
    match found {
        Ok(times) => {
            let (probe, all): (Vec<_>, Vec<_>) = times.into_iter().unzip();
            report.times("peer sdc11073: probe", "its own random delay on", &probe);
            report.times(
                "peer sdc11073: probe + metadata",
                "Get, its services, WSDL",
                &all,
            );
        }
        Err(error) => report.skipped.push(format!("sdc11073: {error}")),
    }
    Ok(())
}

/// Until it matches a search, and until it is described.
async fn find(endpoint: &str) -> Result<(Duration, Duration), Error> {
    let client = client(CLIENT_ADDRESS)?;
    let mut discovery = client.listen();
    let start = Instant::now();
    let asking = Error::failed("asking for the provider");
    let search = client.search(&Search::default()).await.map_err(asking)?;
    loop {
        match discovery.next().await {
            Some(Seen::Found(found)) if found.endpoint == endpoint => {
                let probed = start.elapsed();
                let described = client.describe(&found).await;
                let all = start.elapsed();
                described.map_err(Error::failed("describing the provider"))?;
                client.close().await;
                return Ok((probed, all));
            }
            Some(Seen::SearchEnded { id, .. }) if id == search => {
                return Err(Error::Failed("the provider does not answer".to_owned()));
            }
            Some(_) => {}
            None => return Err(Error::Failed("the client ended".to_owned())),
        }
    }
}
