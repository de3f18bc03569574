//! Entry to the distributed hash table for `find`, `doctor` and `device run`: a client with a
//! temporary key, for as long as the command runs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use chappe_identity::Key;
use chappe_kad::Report;
use chappe_transport::Drops;
use chappe_transport::kad::{KadNode, KadNodeOptions};

use crate::output::Failure;

/// The remedy in a network that answers members only.
pub(crate) const MEMBERS_HINT: &str = "find, doctor and device run have no certificate; ask a node of that \
     network instead: curl http://HOST:8470/api/v1/devices. To admit a node, run on the owner's host: \
     chappe key admit KEY owner.toml";

/// True if a node refused this client because it has no certificate of the network's owner.
pub(crate) fn answers_members_only(report: &Report) -> bool {
    report.counters.uncertified > 0
}

/// The entrances that flags and configuration name.
pub(crate) fn entrances(
    flags: &[SocketAddr],
    config: Option<&Path>,
) -> Result<Vec<SocketAddr>, Failure> {
    let mut entrances = flags.to_vec();
    if let Some(path) = config {
        let kad = super::config::load(Some(path), Vec::new())?.config.kad;
        if !kad.owner.is_empty() {
            let text = format!("{}: its network answers members only", path.display());
            let hint = "ask one of its nodes: curl http://HOST:8470/api/v1/devices";
            return Err(Failure::new(text).coded("argument_invalid").hint(hint));
        }
        // The node itself if it listens on one address, then its own entrances.
        let own = kad
            .address()
            .filter(|own| own.port() != 0 && !own.ip().is_unspecified());
        entrances.extend(own.into_iter().chain(kad.entrances));
    }
    Ok(entrances)
}

/// Starts a client that enters through these entrances, at least one.
pub(crate) fn enter(entrances: &[SocketAddr], drops: Drops) -> Result<KadNode, Failure> {
    let local = entrances.iter().any(|entrance| entrance.ip().is_loopback());
    let v6 = entrances.first().is_some_and(SocketAddr::is_ipv6);
    let listen: SocketAddr = match (local, v6) {
        (true, false) => (Ipv4Addr::LOCALHOST, 0).into(),
        (true, true) => (Ipv6Addr::LOCALHOST, 0).into(),
        (false, false) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        (false, true) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A user waits for the result.
    start(listen, entrances, Duration::from_millis(200), drops)
}

/// Starts a client at `listen` that enters through these entrances.
pub(crate) fn enter_at(
    listen: SocketAddr,
    entrances: &[SocketAddr],
    drops: Drops,
) -> Result<KadNode, Failure> {
    start(listen, entrances, Duration::from_secs(5), drops)
}

fn start(
    listen: SocketAddr,
    entrances: &[SocketAddr],
    report_period: Duration,
    drops: Drops,
) -> Result<KadNode, Failure> {
    let options = KadNodeOptions {
        client: true,
        entrances: entrances.to_vec(),
        report_period,
        ..KadNodeOptions::at(listen)
    };
    let key = Key::from_seed(chappe_transport::seed()?);
    Ok(KadNode::start(key, options, drops)?)
}
