//! Where multicast does not reach: the devices of this node are published in the distributed hash
//! table, those of others found there, into the one list of devices.

mod publish;
mod search;

use std::time::Duration;

use chappe_device::Selection;
use chappe_device::client::Found;
use chappe_dpws::discovery::Interface;
use chappe_kad::{Entrance, Membership, NodeKey};
use chappe_transport::kad::{KadNode, KadNodeOptions, announce, entrance, entrance_type};
use chappe_transport::key_file;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock;
use crate::error::StartError;
use crate::shared::{App, Shared};
use crate::tasks::ended;

pub(crate) use publish::publish;
pub(crate) use search::search;

/// Time for taking back what was published, when the node ends.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

fn refused(reason: impl ToString, hint: Option<&str>) -> StartError {
    StartError::Kad {
        reason: reason.to_string(),
        hint: hint.map(str::to_owned),
    }
}

/// Takes part, if the configuration says so.
///
/// # Errors
/// An address that cannot be listened on, a certificate that is none of this node's.
pub(crate) fn start(app: &App) -> Result<(), StartError> {
    let config = &app.config.kad;
    let Some(listen) = config.address() else {
        return Ok(());
    };
    let directory = app.config.data_directory.clone();
    let (key, _) = key_file::read_or_create(&directory.join("key.pem"))?;
    let membership = config.membership();
    let membership = membership.map_err(|(_, what, hint)| refused(what, Some(hint)))?;
    let key = match membership {
        Some(membership) => certified(key, &membership)?,
        None => key,
    };
    let options = KadNodeOptions {
        entrances: config.entrances.clone(),
        directory: Some(directory),
        reach: config.prefixes(),
        membership,
        ..KadNodeOptions::at(listen)
    };
    let node = KadNode::start(key, options, app.observability.drops.clone()).map_err(|source| {
        let hint = "take another address with kad.listen; see who has it: ss -lunp";
        refused(format!("{listen}: {source}"), Some(hint))
    })?;
    app.kad.get_or_init(|| node);
    Ok(())
}

/// The key, when the owner's certificate is its own and has not ended.
fn certified(
    key: chappe_identity::Key,
    membership: &Membership,
) -> Result<chappe_identity::Key, StartError> {
    let (public, certificate) = (key.public(), membership.certificate);
    let hint = format!("on the owner's host: chappe key admit {public}");
    let now_s = u64::try_from(clock::now().0 / 1_000_000_000).unwrap_or(0);
    // Who judges it needs a key, and any will do.
    let judge = NodeKey::new(chappe_identity::Key::from_seed([1; 32]));
    if !certificate.is_of(&judge, &membership.owner, &public) {
        let reason = "kad.certificate is not for this node's key, or not of kad.owner";
        return Err(refused(reason, Some(&hint)));
    }
    if certificate.expires_s <= now_s {
        return Err(refused("kad.certificate has ended", Some(&hint)));
    }
    Ok(key)
}

/// Tells the local network where it is entered, until the node ends; then takes back what was
/// published.
pub(crate) async fn run(app: App) {
    let Some(node) = app.kad.get() else { return };
    let mut drain = app.drain.clone();
    let discovery = &app.config.discovery;
    let announced = discovery.enabled && discovery.multicast && app.config.kad.announce;
    let interfaces = announced.then(|| interfaces(&discovery.interfaces));
    let telling = async {
        if let Some(interfaces) = interfaces {
            let endpoint = format!("urn:chappe:kad:{}", app.identity.public_key.clone());
            announce(
                interfaces,
                node.local_addr(),
                endpoint,
                app.observability.drops.clone(),
            )
            .await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = ended(&mut drain) => {}
        () = telling => {}
    }
    node.close(CLOSE_PATIENCE).await;
}

fn interfaces(names: &[String]) -> Vec<Interface> {
    let selection = match names {
        [] => Selection::All,
        names => Selection::Named(names.to_vec()),
    };
    selection.resolve().unwrap_or_default()
}

/// Whether what was found says of itself that it is a node of the distributed hash table.
pub(crate) fn says_entrance(found: &Found) -> bool {
    found.types.contains(&entrance_type())
}

/// Whether what was found by multicast is an entrance and no device; if it is, it is entered by.
pub(crate) async fn is_entrance(app: &App, found: &Found) -> bool {
    if !says_entrance(found) {
        return false;
    }
    if let (Some(node), Some(address)) = (app.kad.get(), entrance(&found.xaddrs, found.from.ip()))
        && address != node.local_addr()
    {
        let public = None;
        node.enter(vec![Entrance { address, public }]).await;
    }
    true
}

/// How the node takes part in the distributed hash table.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Status {
    /// The UDP address it listens on; null when it is off.
    listening: Option<String>,
    /// Whether only nodes with the owner's certificate are heard.
    members_only: bool,
    /// Nodes that it knows.
    contacts: usize,
    /// Nodes of the network, as far as it can tell.
    network_nodes: Option<u64>,
    /// Records that it keeps for others.
    records: usize,
    /// Bytes of those.
    record_bytes: usize,
    /// Devices that it publishes.
    publications: usize,
    /// Searches at work.
    searches: usize,
    /// Searches since the start.
    searches_begun: u64,
    /// Requests to others since the start.
    requests: u64,
    /// Of those, the ones that nobody answered in time.
    timeouts: u64,
    /// Requests of others that were answered.
    served: u64,
    /// Bytes sent since the start.
    sent_bytes: u64,
    /// Bytes received since the start.
    received_bytes: u64,
}

/// How it is, a few seconds ago at most.
pub(crate) fn status(app: &Shared) -> Status {
    let Some(node) = app.kad.get() else {
        return Status::default();
    };
    let report = node.report();
    let report = report.borrow();
    let counters = report.counters;
    Status {
        listening: Some(node.local_addr().to_string()),
        members_only: !app.config.kad.owner.is_empty(),
        contacts: report.contacts.len(),
        network_nodes: report.network_nodes,
        records: report.records,
        record_bytes: report.record_bytes,
        publications: report.publications,
        searches: report.searches,
        searches_begun: counters.searches,
        requests: counters.requests,
        timeouts: counters.timeouts,
        served: counters.served,
        sent_bytes: counters.sent_bytes,
        received_bytes: counters.received_bytes,
    }
}
