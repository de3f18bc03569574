//! Checks of the distributed hash table, one entrance at a time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use chappe_kad::Report;
use chappe_kad::service::device_key;
use chappe_terminal::counted;
use chappe_transport::Drops;
use chappe_transport::kad::Finding;

use super::{Check, State};
use crate::command::overlay;
use crate::output::Failure;

/// Time for an entrance to answer; a second attempt follows after one second.
const PATIENCE: Duration = Duration::from_secs(4);
/// Maximum number of bytes received in the search, which only shows that a network exists.
const SEARCH_BYTES: u64 = 64 << 10;
/// Time for the search.
const SEARCH_PATIENCE: Duration = Duration::from_secs(20);

/// Enters through one node and searches for devices.
pub(crate) async fn entrance(at: SocketAddr) -> Result<Check, Failure> {
    let name = format!("entrance {at}");
    let node = overlay::enter(&[at], Drops::default())?;
    let (began, mut report) = (Instant::now(), node.report());
    let is_answered =
        |report: &Report| !report.contacts.is_empty() || overlay::answers_members_only(report);
    let entered = report.wait_for(is_answered);
    if tokio::time::timeout(PATIENCE, entered).await.is_err() {
        let check = Check::new(name, State::Failed, "no answer over UDP");
        return Ok(check.hint(
            "run a node there with kad.listen at that address and port, and let firewalls on the \
             path pass its UDP port: nft list ruleset",
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
    if overlay::answers_members_only(&report.borrow_and_update()) {
        let what = "it answers members of its network only";
        return Ok(Check::new(name, State::Failed, what).hint(overlay::MEMBERS_HINT));
    }
    let devices = endpoints.len();
    let contacts = report.borrow_and_update().contacts.len();
    let found = [counted(contacts, "node"), counted(devices, "device")].join(" and ");
    let detail = format!("answers in {took} ms; {found} found through it");
    if devices > 0 {
        return Ok(Check::new(name, State::Ok, detail));
    }
    let hint = match in_time {
        Ok(()) => "no device is published there yet",
        Err(_) => "the search timed out: the other nodes of the network do not answer",
    };
    Ok(Check::new(name, State::Warning, detail).hint(hint))
}
