//! Goal: a reader in another participant gets the samples of a reliable writer once and in order, and the writer knows
//! the exact number of unacknowledged ones, with every library and any pair of libraries.
//! Method: two participants of one process on loopback, in a domain that this process is unlikely to share with
//! another; with the feature `cyclone` also Cyclone DDS, and one of each.

use std::time::{Duration, Instant};

use chappe_dds::{
    Backend, Bytes, DdsError, Durability, Event, Guid, Octets, Participant, ParticipantConfig, Qos,
    Reader, Reliability, Sample, Topic, WriteError, Writer, open, write_within,
};

/// The time limit of every step; reason: a busy machine, and the timers of the library.
const PATIENCE: Duration = Duration::from_secs(240);

/// The libraries of writer and reader.
const PAIRS: &[(Backend, Backend)] = &[
    (Backend::Rustdds, Backend::Rustdds),
    #[cfg(feature = "cyclone")]
    (Backend::Cyclone, Backend::Cyclone),
    #[cfg(feature = "cyclone")]
    (Backend::Rustdds, Backend::Cyclone),
    #[cfg(feature = "cyclone")]
    (Backend::Cyclone, Backend::Rustdds),
];

/// Runs the test with each pair, in a separate domain; the domains start at `first`.
fn with_each_pair(first: u32, run: impl Fn(Backend, Backend, &ParticipantConfig)) {
    for (number, (writes, reads)) in (first..).zip(PAIRS) {
        println!("{} to {}", writes.as_str(), reads.as_str());
        run(*writes, *reads, &config(number));
    }
}

fn config(offset: u32) -> ParticipantConfig {
    // Below 101 its ports are below the ephemeral range.
    let domain = 1 + (std::process::id().wrapping_mul(7) + offset * 53) % 100;
    ParticipantConfig {
        domain: u16::try_from(domain).unwrap(),
        ..ParticipantConfig::default()
    }
}

fn topic(name: &str) -> Topic {
    Topic {
        name: format!("chappe/test/{name}/{}", std::process::id()),
        type_name: Octets::TYPE_NAME.into(),
    }
}

fn until(
    participants: &mut [&mut Box<dyn Participant>],
    events: &mut Vec<Event>,
    mut done: impl FnMut(&[Event]) -> bool,
) {
    let begun = Instant::now();
    while !done(events) {
        assert!(begun.elapsed() < PATIENCE, "so far: {events:?}");
        for participant in participants.iter_mut() {
            participant.wait(Duration::from_millis(5)).unwrap();
            events.extend(std::iter::from_fn(|| participant.event()));
        }
    }
}

#[test]
fn samples_arrive_once_and_in_order_and_are_acknowledged() {
    with_each_pair(0, samples_arrive);
}

fn samples_arrive(writes: Backend, reads: Backend, config: &ParticipantConfig) {
    const WINDOW: u32 = 16;
    let mut here = open(writes, config).unwrap();
    let mut there = open(reads, config).unwrap();
    let topic = topic("pair");
    let kept = |qos: Qos| match writes == reads {
        true => qos,
        // Cyclone DDS ignores a volatile writer before its first heartbeat (docs/dds.md).
        false => Qos {
            durability: Durability::TransientLocal,
            ..qos
        },
    };
    let offered = kept(Qos::reliable_writer(WINDOW));
    let mut writer = here.writer(&topic, &offered).unwrap();
    let requested = kept(Qos::reliable_reader(WINDOW));
    let mut reader = there.reader(&topic, &requested).unwrap();
    let mut events = Vec::new();
    let (writes, reads) = (writer.guid(), reader.guid());
    let matched = |events: &[Event], here: Guid, there: Guid| {
        events.contains(&Event::Matched { here, there })
    };
    until(&mut [&mut here, &mut there], &mut events, |events| {
        matched(events, writes, reads) && matched(events, reads, writes)
    });
    assert_eq!((writer.matched(), reader.matched()), (1, 1));

    let count = 200;
    let mut got: Vec<Sample> = Vec::new();
    let mut acknowledged = Vec::new();
    for number in 0..count {
        let octets = Octets {
            source: 1,
            number,
            time_ns: 0,
            octets: Bytes::from(vec![number as u8; (number as usize % 4) * 30_000]),
        };
        let payload = octets.payload();
        let (at, _) = write_within(&mut *here, &mut *writer, &payload, PATIENCE).unwrap();
        assert_eq!(at, number + 1);
        assert!(writer.unacknowledged() <= WINDOW.into());
        writer.acknowledged(&mut |one| acknowledged.push(one.number));
        reader.take(usize::MAX, &mut got).unwrap();
    }
    until(&mut [&mut here, &mut there], &mut events, |_| {
        reader.take(usize::MAX, &mut got).unwrap();
        writer.acknowledged(&mut |one| acknowledged.push(one.number));
        got.len() as u64 >= count && writer.unacknowledged() == 0
    });
    let read = |sample: &Sample| Octets::read(&sample.payload).unwrap();
    let numbers: Vec<u64> = got.iter().map(|sample| read(sample).number).collect();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    assert!(got.iter().all(|sample| sample.writer == writes));
    assert!(got.iter().all(|sample| {
        let octets = read(sample);
        octets
            .octets
            .iter()
            .all(|byte| *byte == octets.number as u8)
    }));
    assert_eq!(acknowledged, (1..=count).collect::<Vec<_>>());
    assert_eq!(reader.lost(), 0);
}

/// RustDDS acknowledges samples for which a reader has no room, and drops the oldest (docs/dds.md).
#[test]
fn a_full_reader_of_rustdds_counts_all_samples_that_it_drops() {
    let config = config(16);
    let mut here = open(Backend::Rustdds, &config).unwrap();
    let mut there = open(Backend::Rustdds, &config).unwrap();
    let topic = topic("drop");
    let qos = |max_samples| Qos {
        durability: Durability::TransientLocal,
        max_samples,
        ..Qos::default()
    };
    let mut writer = here.writer(&topic, &qos(16)).unwrap();
    let mut reader = there.reader(&topic, &qos(32)).unwrap();
    let mut events = Vec::new();
    until(&mut [&mut here, &mut there], &mut events, |_| {
        writer_is_matched(&*writer, &*reader)
    });
    let mut got = Vec::new();
    // Dropped are the first samples of the writer, and then some between others.
    for written in [200, 400] {
        for _ in 0..200 {
            let payload = Octets::default().payload();
            write_within(&mut *here, &mut *writer, &payload, PATIENCE).unwrap();
        }
        until(&mut [&mut here, &mut there], &mut events, |_| {
            writer.unacknowledged() == 0
        });
        until(&mut [&mut here, &mut there], &mut events, |_| {
            reader.take(usize::MAX, &mut got).unwrap();
            got.last().is_some_and(|last| last.number == written)
        });
        let received = i64::try_from(got.len()).unwrap();
        assert!(received < written);
        assert_eq!(i64::try_from(reader.lost()).unwrap(), written - received);
    }
    assert!(got[0].number > 1, "{got:?}");
}

#[test]
fn incompatible_ends_are_reported_with_both_sides_values() {
    with_each_pair(4, mismatch_is_reported);
}

fn mismatch_is_reported(writes: Backend, reads: Backend, config: &ParticipantConfig) {
    let mut here = open(writes, config).unwrap();
    let mut there = open(reads, config).unwrap();
    let topic = topic("mismatch");
    let offered = Qos::default().best_effort();
    let writer = here.writer(&topic, &offered).unwrap();
    let reader = there.reader(&topic, &Qos::default()).unwrap();
    let mut events = Vec::new();
    let find = |events: &[Event]| {
        let mut found = events.iter().filter_map(|event| match event {
            Event::QosMismatch(mismatch) => Some(mismatch.clone()),
            _ => None,
        });
        found.find(|mismatch| mismatch.here == writer.guid())
    };
    until(&mut [&mut here, &mut there], &mut events, |events| {
        find(events).is_some()
    });
    let mismatch = find(&events).unwrap();
    assert_eq!(mismatch.there, reader.guid());
    assert_eq!(mismatch.offered.reliability, Reliability::BestEffort);
    assert_eq!(mismatch.requested.reliability, Reliability::Reliable);
    assert_eq!(
        mismatch.offered.misses(&mismatch.requested),
        ["reliability"]
    );
    let named = format!(" at 127.0.0.1, process {}", std::process::id());
    let words = mismatch.to_string();
    assert!(words.contains(&named), "{words}");
    assert_eq!(writer.matched(), 0);
}

#[test]
fn a_full_window_is_reported_and_does_not_block() {
    with_each_pair(8, |writes, reads, config| {
        // Between participants of one process Cyclone DDS delivers a sample within the call.
        if (writes.as_str(), reads.as_str()) != ("cyclone", "cyclone") {
            full_window_is_reported(writes, reads, config, 4, 200_000);
            // At most 7.5 MiB are in flight, regardless of the window.
            full_window_is_reported(writes, reads, config, 64, 3 << 19);
        }
    });
}

/// However fast the reader acknowledges, at most four samples of this size are in flight.
fn full_window_is_reported(
    writes: Backend,
    reads: Backend,
    config: &ParticipantConfig,
    window: u32,
    bytes: usize,
) {
    let mut here = open(writes, config).unwrap();
    let mut there = open(reads, config).unwrap();
    let topic = topic("full");
    let offered = Qos::reliable_writer(window);
    let mut writer = here.writer(&topic, &offered).unwrap();
    let reader = there.reader(&topic, &Qos::reliable_reader(4)).unwrap();
    let mut events = Vec::new();
    until(&mut [&mut here, &mut there], &mut events, |_| {
        writer_is_matched(&*writer, &*reader)
    });
    let payload = Octets {
        octets: Bytes::from(vec![0; bytes]),
        ..Octets::default()
    }
    .payload();
    let (mut full, mut tries) = (0, 0);
    let begun = Instant::now();
    while full == 0 || tries < 50 {
        assert!(
            begun.elapsed() < PATIENCE,
            "{tries} were acknowledged at once"
        );
        tries += 1;
        match writer.write(&payload) {
            Ok(_) => assert!(writer.unacknowledged() <= 4),
            Err(WriteError::Full(unacknowledged)) => {
                assert_eq!(unacknowledged, 4);
                full += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    let large = Octets {
        octets: Bytes::from(vec![0; chappe_dds::SAMPLE_BYTES_MAX]),
        ..Octets::default()
    };
    let refused = writer.write(&large.payload());
    assert!(matches!(refused, Err(WriteError::TooLarge { .. })));
}

fn writer_is_matched(writer: &dyn Writer, reader: &dyn Reader) -> bool {
    writer.matched() == 1 && reader.matched() == 1
}

/// The errors of opening a participant of each library with a changed configuration.
fn refusals(change: impl Fn(&mut ParticipantConfig)) -> Vec<DdsError> {
    let mut config = config(12);
    change(&mut config);
    let refused = PAIRS
        .iter()
        .map(|(library, _)| open(*library, &config).map(drop).unwrap_err());
    refused.collect()
}

#[test]
fn an_interface_that_the_host_lacks_is_refused() {
    let foreign = "192.0.2.77".parse().unwrap();
    for error in refusals(|config| config.interfaces = vec![foreign]) {
        assert_eq!(error, DdsError::Interface(foreign));
    }
}

#[test]
fn a_domain_above_232_is_refused() {
    for error in refusals(|config| config.domain = 233) {
        assert_eq!(error, DdsError::Domain(233));
    }
}

#[test]
fn a_topic_name_with_a_space_is_refused() {
    let topic = Topic {
        name: "a b".into(),
        type_name: "c".into(),
    };
    let refused = topic.check();
    assert!(
        matches!(refused, Err(DdsError::Name { what: "topic", .. })),
        "{refused:?}"
    );
}

#[test]
fn cyclone_alone_refuses_dots_and_hyphens() {
    let dotted = Topic {
        name: "ward.bed-1".into(),
        type_name: "c".into(),
    };
    for (number, (library, _)) in (12..).zip(PAIRS) {
        let mut participant = open(*library, &config(number)).unwrap();
        let made = participant.reader(&dotted, &Qos::reliable_reader(8));
        let expected = match library.as_str() {
            "cyclone" => Err(DdsError::CycloneName("ward.bed-1".into())),
            _ => Ok(()),
        };
        assert_eq!(made.map(drop), expected);
    }
}
