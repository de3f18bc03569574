//! The distributed hash table, tried: one entrance at a time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

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
    let entered = report.wait_for(|report| !report.contacts.is_empty());
    if tokio::time::timeout(PATIENCE, entered).await.is_err() {
        let check = Check::new(name, State::Failed, "no answer over UDP");
        return Ok(check.hint(
            "is a node there, with kad.listen at that address and port? Does a firewall on the way let \
             UDP through: nft list ruleset",
        ));
    }
    let took = began.elapsed().as_millis();
    let mut findings = node.find(device_key(), SEARCH_BYTES).await;
    let searched = async {
        let mut devices = 0;
        while let Some(Finding::Seen(_)) = findings.recv().await {
            devices += 1;
        }
        devices
    };
    let devices = tokio::time::timeout(SEARCH_PATIENCE, searched)
        .await
        .unwrap_or(0);
    let contacts = report.borrow_and_update().contacts.len();
    let detail = format!("answers in {took} ms; {contacts} nodes and {devices} devices seen by it");
    if devices > 0 {
        return Ok(Check::new(name, State::Ok, detail));
    }
    let check = Check::new(name, State::Warning, detail);
    Ok(check.hint(
        "nothing is published there yet, or it is a network of members, which hears members alone",
    ))
}
