//! The cost of each part of security for one event, with the product's keys on this machine: the
//! signature at the source and its verification at each sink, the tag of each hop, the receipt, the
//! first exchange with a peer, and storing the window of seen events on disk; and an event at a
//! source and eight sinks, with and without keys.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::Key;
use chappe_machine::ReplayWindow;
use chappe_notification_tree::{
    Contact, Event, EventId, Guard, Keys, Membership, TrustedNetwork, Window,
};
use chappe_transport::tree::{WindowFiles, Windows};

use super::machine::{Machines, SINKS};
use crate::{Error, Report, Settings, timing};

/// Bytes of an event's body.
const BODY_BYTES: usize = 200;
/// Bytes of a hop message: one with such an event, and the longest.
const HOPS_BYTES: [usize; 2] = [350, 1_216];
/// Batches, of which the median counts, and repetitions in each.
const BATCHES: usize = 21;
const REPETITIONS: u32 = 100;
/// Windows stored on disk.
const KEPT: usize = 100;

/// The median of the batches, for one repetition.
fn cost(work: impl FnMut()) -> Duration {
    Duration::from_secs_f64(timing::median_s(BATCHES, REPETITIONS, work))
}

/// Runs the measurements.
pub(super) fn run(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    (bench.progress)("what security costs");
    let keys = |seed: u8| Keys::new(Key::from_seed([seed; 32]));
    let (source, mut sink) = (keys(1), keys(2));
    let contact = Contact {
        address: ([127, 0, 0, 1], 9_000).into(),
        key: sink.public(),
    };
    let membership = Membership::new(1, 1, vec![contact]).map_err(Error::failed("the list"))?;
    let membership = Arc::new(membership);
    let id = EventId {
        topic: 1,
        boot: 1,
        sequence: 1,
    };
    let body = [0x21; BODY_BYTES];
    let signed = || {
        Event::new(&source, id, &membership, false, None, &body, 1_200)
            .map_err(Error::failed("an event"))
    };
    let event = signed()?;
    let mut row = |name: &str, cost: Duration, note: &str| {
        report.row(name, cost.as_secs_f64() * 1e6, "us", note);
    };
    let note = "Ed25519, 200 B of body; median of 21 times 100";
    let making = cost(|| drop(black_box(signed())));
    row("an event made and signed, at the source", making, note);
    let of_source = source.public();
    let verifying = cost(|| {
        black_box(event.verify(&of_source, &mut sink));
    });
    row("its signature verified, at each sink once", verifying, note);
    for bytes in HOPS_BYTES {
        let message = vec![7; bytes];
        let tagging = cost(|| {
            black_box(sink.hop_tag(&of_source, &message));
        });
        let name = format!("the tag of a hop message of {bytes} B, at either end");
        row(&name, tagging, "HMAC-SHA256, the pair's secret known");
    }
    let receipt = cost(|| {
        black_box(sink.receipt(&of_source, id, 0));
    });
    let note = "once at the sink, once for each sink at the source, after the event is on its way";
    row("a receipt", receipt, note);
    let first = cost(|| {
        black_box(keys(2).hop_tag(&of_source, &body));
    });
    row(
        "the first word with a peer",
        first,
        "X25519, HKDF, tag; and the own key made",
    );
    let list: Vec<Contact> = (0..1_000_u16)
        .map(|number| Contact {
            address: ([10, 0, (number >> 8) as u8, number as u8], 9_000).into(),
            key: [number as u8; 32],
        })
        .collect();
    let large = Membership::new(1, 2, list).map_err(Error::failed("the list"))?;
    let encoded = large.encode(&source);
    let reading = cost(|| {
        black_box(Membership::decode(&encoded, &of_source, &mut sink).is_ok());
    });
    let note = "once for each version of the list";
    row("a membership of 1,000 read and verified", reading, note);
    let keyed = |number: u8| (keys(number), keys(number).public());
    let trusted = |_| (TrustedNetwork, [0; 32]);
    for inline in [true, false] {
        let list = if inline { "list inside" } else { "list known" };
        let name = format!("an event at a source and {SINKS} sinks, {list}, with keys");
        let note = "all nine machines and messages, no sockets";
        row(&name, machine(Machines::new(keyed, inline)?, &body)?, note);
        let name = format!("an event at a source and {SINKS} sinks, {list}, trusted network");
        row(
            &name,
            machine(Machines::new(trusted, inline)?, &body)?,
            note,
        );
    }
    let folder = std::env::temp_dir().join(format!("chappe-lab-windows-{}", std::process::id()));
    let kept = keep(&folder);
    // The figures hold whether or not the folder can be removed.
    let _ = std::fs::remove_dir_all(&folder);
    report.times(
        "what was seen kept on disk, before an event is used",
        "two synchronizations; only where a restart must not deliver twice",
        &kept?,
    );
    Ok(())
}

/// The cost of an event for all nodes together, once the maximum number of events is kept.
fn machine<G: Guard>(mut machines: Machines<G>, body: &[u8]) -> Result<Duration, Error> {
    let warm_up = REPETITIONS as usize;
    (0..warm_up).for_each(|_| machines.event(body));
    let took = cost(|| machines.event(body));
    let events = warm_up + BATCHES * REPETITIONS as usize;
    match machines.delivered() == events * SINKS {
        true => Ok(took),
        false => Err(Error::Failed("a sink did not receive an event".to_owned())),
    }
}

fn keep(folder: &std::path::Path) -> Result<Vec<Duration>, Error> {
    let failed = || Error::io("storing a window");
    let mut files = WindowFiles::new(folder.to_owned()).map_err(failed())?;
    timing::each(KEPT, |newest| {
        let window = Window {
            boot: 1,
            numbers: ReplayWindow {
                newest: newest as u64,
                seen: 1,
            },
            since: 1,
        };
        files.store(1, &window).map_err(failed())
    })
}
