//! Discovery where multicast does not reach: this node publishes its devices in the distributed hash
//! table, and adds devices found there to its device table.

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
use crate::tasks::shutdown;

pub(crate) use publish::publish;
pub(crate) use search::search;

/// Time for withdrawing publications when the node shuts down.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

fn start_error(reason: impl ToString, hint: Option<&str>) -> StartError {
    StartError::Kad {
        reason: reason.to_string(),
        hint: hint.map(str::to_owned),
    }
}

/// Joins the network, if configured.
///
/// # Errors
/// The node cannot listen on the address, or the certificate is not for this node.
pub(crate) fn start(app: &App) -> Result<(), StartError> {
    let config = &app.config.kad;
    let Some(listen) = config.address() else {
        return Ok(());
    };
    let directory = app.config.data_directory.clone();
    let (key, _) = key_file::read_or_create(&directory.join("key.pem"))?;
    let membership = config.membership();
    let membership = membership.map_err(|(_, fault, hint)| start_error(fault, Some(hint)))?;
    let key = match membership {
        Some(membership) => check_certificate(key, &membership)?,
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
        let hint = "find the program that uses it: ss -lunp; or set kad.listen to another address";
        start_error(format!("cannot listen on {listen}: {source}"), Some(hint))
    })?;
    app.kad.get_or_init(|| node);
    Ok(())
}

/// Checks that the owner's certificate is for this key and has not expired.
fn check_certificate(
    key: chappe_identity::Key,
    membership: &Membership,
) -> Result<chappe_identity::Key, StartError> {
    let (public, certificate) = (key.public(), membership.certificate);
    let hint = format!("on the owner's host: chappe key admit {public}");
    let now_s = u64::try_from(clock::now().0 / 1_000_000_000).unwrap_or(0);
    // The check needs any key to run.
    let judge = NodeKey::new(chappe_identity::Key::from_seed([1; 32]));
    if !certificate.is_of(&judge, &membership.owner, &public) {
        let reason = "kad.certificate is not for this node's key, or not of kad.owner";
        return Err(start_error(reason, Some(&hint)));
    }
    if certificate.expires_s <= now_s {
        return Err(start_error("kad.certificate has expired", Some(&hint)));
    }
    Ok(key)
}

/// Announces the node as an entrance on the local network until shutdown, then withdraws its
/// publications.
pub(crate) async fn run(app: App) {
    let Some(node) = app.kad.get() else { return };
    let mut drain = app.drain.clone();
    let discovery = &app.config.discovery;
    let announced = discovery.enabled && discovery.multicast && app.config.kad.announce;
    let interfaces = announced.then(|| interfaces(&discovery.interfaces));
    let announcing = async {
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
        () = shutdown(&mut drain) => {}
        () = announcing => {}
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

/// Whether a found target service claims to be a node of the distributed hash table.
pub(crate) fn claims_entrance(found: &Found) -> bool {
    found.types.contains(&entrance_type())
}

/// Whether a service found by multicast is an entrance and not a device; if so, the node joins through
/// it.
pub(crate) async fn is_entrance(app: &App, found: &Found) -> bool {
    if !claims_entrance(found) {
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

/// The node's part in the distributed hash table.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = KademliaStatus)]
pub(crate) struct Status {
    /// The UDP address it listens on; null when it is off.
    listening: Option<String>,
    /// Whether only nodes with the owner's certificate are accepted.
    members_only: bool,
    /// Known nodes.
    contacts: usize,
    /// Estimated number of nodes in the network.
    network_nodes: Option<u64>,
    /// Records stored for others.
    records: usize,
    /// Bytes of these records.
    record_bytes: usize,
    /// Published devices.
    publications: usize,
    /// Running searches.
    searches: usize,
    /// Searches since the start.
    searches_begun: u64,
    /// Requests to others since the start.
    requests: u64,
    /// Requests that timed out.
    timeouts: u64,
    /// Answered requests of others.
    served: u64,
    /// Bytes sent since the start.
    sent_bytes: u64,
    /// Bytes received since the start.
    received_bytes: u64,
}

/// The status, at most a few seconds old.
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
