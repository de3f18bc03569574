//! The distributed hash table, tried: one entrance at a time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use chappe_kad::Report;
use chappe_kad::service::device_key;
use chappe_transport::Drops;
use chappe_transport::kad::Finding;

use super::{Check, State};
use crate::command::overlay;
use crate::output::Failure;

/// How long an entrance may take to answer: it is greeted again after a second.
const PATIENCE: Duration = Duration::from_secs(4);
/// Bytes that the search after it may bring in: it shows that there is a network.
const SEARCH_BYTES: u64 = 64 << 10;
/// How long that search may take.
const SEARCH_PATIENCE: Duration = Duration::from_secs(20);

/// Enters by one node alone, and looks for devices through it.
pub(crate) async fn entrance(at: SocketAddr) -> Result<Check, Failure> {
    let name = format!("entrance {at}");
    let node = overlay::enter(&[at], Drops::default())?;
    let (began, mut report) = (Instant::now(), node.report());
    let told =
        |report: &Report| !report.contacts.is_empty() || overlay::hears_members_alone(report);
    let entered = report.wait_for(told);
    if tokio::time::timeout(PATIENCE, entered).await.is_err() {
        let check = Check::new(name, State::Failed, "no answer over UDP");
        return Ok(check.hint(
            "is a node there, with kad.listen at that address and port? Does a firewall on the way let \
             UDP through: nft list ruleset",
        ));
    }
    let took = began.elapsed().as_millis();
    let mut findings = node.find(device_key(), SEARCH_BYTES).await;
    // Several may publish the same device.
    let mut endpoints = HashSet::new();
    let searched = async {
        while let Some(Finding::Seen(sighting)) = findings.recv().await {
            endpoints.insert(sighting.announcement.endpoint);
        }
    };
    let in_time = tokio::time::timeout(SEARCH_PATIENCE, searched).await;
    if overlay::hears_members_alone(&report.borrow_and_update()) {
        let what = "it answers, and hears members of its network alone";
        return Ok(Check::new(name, State::Failed, what).hint(overlay::MEMBERS_HINT));
    }
    let devices = endpoints.len();
    let contacts = report.borrow_and_update().contacts.len();
    let detail = format!("answers in {took} ms; {contacts} nodes and {devices} devices seen by it");
    if devices > 0 {
        return Ok(Check::new(name, State::Ok, detail));
    }
    let hint = match in_time {
        Ok(()) => "nothing is published there yet",
        Err(_) => "the search did not end in time: the nodes that it knows do not answer",
    };
    Ok(Check::new(name, State::Warning, detail).hint(hint))
}
