//! `chappe device run`: runs the device that a file describes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use chappe_device::file::{File, FileDevice};
use chappe_device::host::{HostTree, ProxyAddress, TreeOrder};
use chappe_device::recording::Recorded;
use chappe_device::{Error, HostOptions, Selection};
use chappe_dpws::Dialect;
use chappe_soap::udp::DISCOVERY_PORT;
use chappe_transport::{Drops, key_file};
use serde_json::json;
use tokio::sync::oneshot;

use super::session::failure;
use super::{network, overlay};
use crate::cli::{DeviceRun, Host};
use crate::output::{self, Failure, Outcome};

/// Time to withdraw publications from the distributed hash table.
const WITHDRAWING_MAX: Duration = Duration::from_secs(2);

/// Runs the device until a signal; then it ends its subscriptions and sends Bye.
pub(crate) fn run(flags: DeviceRun, json: bool) -> Outcome {
    network::block_on(async move {
        let source = Source::read(&flags.file)?;
        let name = source.name().to_owned();
        let fingerprint = source.fingerprint().map_err(failure)?;
        let selection = flags
            .address
            .map_or(Selection::Network, |one| Selection::Addresses(vec![one]));
        let defaults = HostOptions::default();
        let options = HostOptions {
            selection,
            dialects: match flags.dialects.as_slice() {
                [] => source
                    .dialect()
                    .map_or(defaults.dialects.clone(), |one| vec![one]),
                given => given.to_vec(),
            },
            proxies: flags.proxies.iter().map(proxy).collect(),
            port: flags.port,
            app_max_delay: flags.announce_within,
            tree: match &flags.tree {
                Some(folder) => Some(tree(folder, &flags)?),
                None => None,
            },
            ..defaults
        };
        let device = source.start(options).map_err(|error| {
            let is_alone = flags.address.is_none() && matches!(error, Error::NoInterface(_));
            let failure = failure(error);
            match is_alone {
                true => failure.hint(
                    "list the interfaces: ip address; to run it for this computer alone: --address 127.0.1.1",
                ),
                false => failure,
            }
        })?;
        let addresses = device.host().addresses();
        let overlay = match flags.entrances.as_slice() {
            [] => None,
            entrances => {
                // The device's own address, so that the network confirms the publisher's address.
                let any = addresses
                    .iter()
                    .find(|own| own.is_ipv4() == entrances[0].is_ipv4());
                let listen = match (flags.address, any) {
                    (Some(own), _) => SocketAddr::new(own, 0),
                    (None, Some(SocketAddr::V4(_))) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    (None, _) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let node = overlay::enter_at(listen, entrances, device.host().drops().clone())?;
                node.publish(0, device.host().announcement()).await;
                Some(node)
            }
        };
        if json {
            output::json(&json!({
                "event": "ready", "name": name, "endpoint": device.host().endpoint(),
                "addresses": addresses, "pid": std::process::id(), "fingerprint": fingerprint,
            }));
        } else {
            let words: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            output::line(format_args!("{name} is ready at {}", words.join(", ")));
            output::line(format_args!("endpoint {}", device.host().endpoint()));
            if let Some(fingerprint) = fingerprint {
                output::line(format_args!("certificate {fingerprint}"));
            }
        }
        tokio::select! {
            result = network::interrupted() => result?,
            result = input_end(), if flags.end_with_input => result?,
        }
        if let Some(overlay) = overlay {
            overlay.close(WITHDRAWING_MAX).await;
        }
        device.stop().await;
        Ok(())
    })
}

/// Where a device registers.
fn proxy(host: &Host) -> ProxyAddress {
    match host {
        Host::Address(address) => ProxyAddress::Udp(SocketAddr::new(*address, DISCOVERY_PORT)),
        Host::Url(contact) => ProxyAddress::Http(contact.clone()),
    }
}

/// What is run.
enum Source {
    Described(Box<File>),
    Recorded(Box<Recorded>),
}

impl Source {
    /// Reads a description, or a recording from a folder.
    fn read(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            let recorded = Recorded::read(path).map_err(|error| {
                let hint = error.hint.clone();
                Failure::from(error).hint(hint.unwrap_or_else(|| {
                    "name a folder that chappe device record wrote, or a description, a TOML file"
                        .to_owned()
                }))
            })?;
            return Ok(Self::Recorded(Box::new(recorded)));
        }
        let file = File::read(path).map_err(|error| {
            let hint = error.hint.clone();
            Failure::from(error).hint_if(hint)
        })?;
        Ok(Self::Described(Box::new(file)))
    }

    fn name(&self) -> &str {
        match self {
            Self::Described(file) => &file.name,
            Self::Recorded(recorded) => recorded.name(),
        }
    }

    /// The dialect in which it was recorded.
    fn dialect(&self) -> Option<Dialect> {
        match self {
            Self::Described(_) => None,
            Self::Recorded(recorded) => Some(recorded.dialect),
        }
    }

    /// The fingerprint of its certificate, if it is served over TLS.
    fn fingerprint(&self) -> Result<Option<String>, Error> {
        let Self::Described(file) = self else {
            return Ok(None);
        };
        let tls = file.mutual()?.and_then(|tls| tls.fingerprint());
        Ok(tls.map(|it| it.to_string()))
    }

    fn start(self, options: HostOptions) -> Result<FileDevice, Error> {
        match self {
            Self::Described(file) => file.start(options, Drops::default()),
            Self::Recorded(recorded) => recorded.start(options, Drops::default()),
        }
    }
}

/// Waits until standard input ends.
async fn input_end() -> std::io::Result<()> {
    let (ended, end) = oneshot::channel();
    // Not a task: at its end the runtime would wait for the read of standard input.
    std::thread::Builder::new()
        .name("input".into())
        .spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = ended.send(());
        })?;
    let _ = end.await;
    Ok(())
}

/// The notification tree of a device with its state in this directory.
fn tree(folder: &Path, flags: &DeviceRun) -> Result<HostTree, Failure> {
    output::folder(folder)?;
    let key = key_file::read_or_create(&folder.join("key.pem"));
    let (key, _) = key.map_err(|error| {
        let hint = error.hint();
        Failure::from(error).hint_if(hint)
    })?;
    let boot = Some(folder.join("boot"));
    Ok(HostTree {
        boot,
        deadline: flags.deadline,
        pacer: flags.pacer.clone(),
        order: TreeOrder {
            order: flags.order,
            rules: flags.criticality.clone(),
            ..TreeOrder::default()
        },
        ..HostTree::new(key)
    })
}
