//! Goal: a reader in another participant gets the samples of a reliable writer once and in order, and the writer knows
//! the exact number of unacknowledged ones.
//! Method: two participants of one process on loopback, in a domain that this process is unlikely to share with
//! another. Each has sockets of its own: what they exchange passes through the network.

#![cfg(cyclone)]

use std::time::{Duration, Instant};

use chappe_dds::{
    AnnouncedType, Bytes, DdsError, Durability, Event, Guid, MismatchKind, Octets, Participant,
    ParticipantConfig, Qos, Reader, Reliability, Sample, Topic, WriteError, Writer, open,
    write_within,
};

/// The time limit of every step; reason: a busy machine, and the timers of the library.
const PATIENCE: Duration = Duration::from_secs(240);

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
    const WINDOW: u32 = 16;
    let config = config(0);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = topic("pair");
    // A volatile topic may lose samples while reader and writer discover each other (docs/reference/dds.md).
    let kept = |qos: Qos| Qos {
        durability: Durability::TransientLocal,
        ..qos
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

#[test]
fn samples_of_a_batched_writer_arrive_after_a_flush_and_outlive_the_participants() {
    const COUNT: u64 = 200;
    let config = config(20);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = topic("batch");
    let kept = |qos: Qos| Qos {
        durability: Durability::TransientLocal,
        ..qos
    };
    let offered = kept(Qos::reliable_writer(1_000)).batched();
    let mut writer = here.writer(&topic, &offered).unwrap();
    let requested = kept(Qos::reliable_reader(1_000));
    let mut reader = there.reader(&topic, &requested).unwrap();
    let mut events = Vec::new();
    until(&mut [&mut here, &mut there], &mut events, |_| {
        writer_is_matched(&*writer, &*reader)
    });
    for number in 1..=COUNT {
        let octets = Octets {
            number,
            ..Octets::default()
        };
        // Longer ones fill datagrams.
        let bytes = vec![number as u8; number as usize * 20];
        let written = writer.write(&octets.payload_with(&bytes)).unwrap();
        assert_eq!(written, number);
    }
    writer.flush().unwrap();
    let mut got: Vec<Sample> = Vec::new();
    until(&mut [&mut here, &mut there], &mut events, |_| {
        reader.take(usize::MAX, &mut got).unwrap();
        got.len() as u64 >= COUNT && writer.unacknowledged() == 0
    });
    drop((writer, reader, here, there));
    for (sample, number) in got.iter().zip(1..=COUNT) {
        let octets = Octets::read(&sample.payload).unwrap();
        assert_eq!((octets.number, sample.number as u64), (number, number));
        assert_eq!(octets.octets.len() as u64, number * 20);
        assert!(octets.octets.iter().all(|byte| *byte == number as u8));
    }
}

/// The bytes of a sample need not be a multiple of four, whether it fits a datagram or not.
#[test]
fn samples_of_any_length_arrive_whole() {
    let config = config(22);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = topic("lengths");
    let mut writer = here.writer(&topic, &Qos::reliable_writer(64)).unwrap();
    let mut reader = there.reader(&topic, &Qos::reliable_reader(64)).unwrap();
    let mut events = Vec::new();
    until(&mut [&mut here, &mut there], &mut events, |_| {
        writer_is_matched(&*writer, &*reader)
    });
    let lengths: Vec<usize> = [1, 1_000, 70_000, 200_000]
        .into_iter()
        .flat_map(|length| length..length + 4)
        .collect();
    for length in &lengths {
        let bytes = vec![*length as u8; *length];
        let payload = Octets::default().payload_with(&bytes);
        writer.write(&payload).unwrap();
    }
    let mut got: Vec<Sample> = Vec::new();
    until(&mut [&mut here, &mut there], &mut events, |_| {
        reader.take(usize::MAX, &mut got).unwrap();
        got.len() == lengths.len()
    });
    for (sample, length) in got.iter().zip(lengths) {
        let octets = Octets::read(&sample.payload).unwrap().octets;
        assert_eq!(octets.len(), length);
        assert!(octets.iter().all(|byte| *byte == length as u8));
    }
}

/// A node may read a topic of any type to which it also writes.
#[test]
fn a_topic_has_ends_of_several_encodings_in_one_participant() {
    let config = config(24);
    let mut here = open(&config).unwrap();
    let topic = topic("encodings");
    let mut writer = here.writer(&topic, &Qos::reliable_writer(8)).unwrap();
    let any = Topic {
        type_name: String::new(),
        ..topic
    };
    let mut reader = here.reader(&any, &Qos::reliable_reader(8)).unwrap();
    let (mut events, mut got) = (Vec::new(), Vec::new());
    until(&mut [&mut here], &mut events, |_| {
        reader.take(usize::MAX, &mut got).unwrap();
        writer.matched() == 1
    });
    writer.write(&Octets::default().payload()).unwrap();
    until(&mut [&mut here], &mut events, |_| {
        reader.take(usize::MAX, &mut got).unwrap();
        got.len() == 1
    });
}

/// A reader acknowledges samples for which it has no room, and drops the oldest (docs/reference/dds.md).
#[test]
fn a_full_reader_counts_all_samples_that_it_drops() {
    let config = config(16);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
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
    let config = config(4);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = topic("mismatch");
    let offered = Qos::default().best_effort();
    let writer = here.writer(&topic, &offered).unwrap();
    let reader = there.reader(&topic, &Qos::default()).unwrap();
    let mut events = Vec::new();
    let find = |events: &[Event]| {
        let mut found = events.iter().filter_map(|event| match event {
            Event::Mismatch(mismatch) => Some(mismatch.clone()),
            _ => None,
        });
        found.find(|mismatch| mismatch.here == writer.guid())
    };
    until(&mut [&mut here, &mut there], &mut events, |events| {
        find(events).is_some()
    });
    let mismatch = find(&events).unwrap();
    assert_eq!(mismatch.there, reader.guid());
    let MismatchKind::Qos { offered, requested } = &mismatch.kind else {
        panic!("{mismatch}");
    };
    assert_eq!(offered.reliability, Reliability::BestEffort);
    assert_eq!(requested.reliability, Reliability::Reliable);
    assert_eq!(offered.misses(requested), ["reliability"]);
    let named = format!(" at 127.0.0.1, process {}", std::process::id());
    let words = mismatch.to_string();
    assert!(words.contains(&named), "{words}");
    assert_eq!(writer.matched(), 0);
}

#[test]
fn a_full_window_is_reported_and_does_not_block() {
    full_window_is_reported(&config(8), 4, 200_000);
    // At most 7.5 MiB are in flight, regardless of the window.
    full_window_is_reported(&config(9), 64, 3 << 19);
}

/// However fast the reader acknowledges, at most four samples of this size are in flight.
fn full_window_is_reported(config: &ParticipantConfig, window: u32, bytes: usize) {
    let mut here = open(config).unwrap();
    let mut there = open(config).unwrap();
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

/// The error of opening a participant with a changed configuration.
fn refusal(change: impl Fn(&mut ParticipantConfig)) -> DdsError {
    let mut config = config(12);
    change(&mut config);
    open(&config).map(drop).unwrap_err()
}

#[test]
fn an_interface_that_the_host_lacks_is_refused() {
    let foreign = "192.0.2.77".parse().unwrap();
    let error = refusal(|config| config.interfaces = vec![foreign]);
    assert_eq!(error, DdsError::Interface(foreign));
}

#[test]
fn a_domain_above_232_is_refused() {
    let error = refusal(|config| config.domain = 233);
    assert_eq!(error, DdsError::Domain(233));
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
fn a_topic_name_may_have_dots_and_hyphens() {
    let topic = Topic {
        name: "7ward.bed-1:x".into(),
        type_name: "c".into(),
    };
    let mut participant = open(&config(12)).unwrap();
    let made = participant.reader(&topic, &Qos::reliable_reader(8));
    assert_eq!(made.map(drop), Ok(()));
}

/// A writer without room waits for the acknowledgement itself: within a wait of the longest time, not at its end.
#[test]
fn an_acknowledgement_ends_a_wait() {
    let config = config(20);
    let mut here = open(&config).unwrap();
    let topic = topic("wakes");
    let mut writer = here.writer(&topic, &Qos::reliable_writer(1)).unwrap();
    let reading = std::thread::scope(|scope| {
        let (topic, config) = (&topic, &config);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let reader = scope.spawn(move || {
            let mut there = open(config).unwrap();
            let _reader = there.reader(topic, &Qos::reliable_reader(64)).unwrap();
            // The acknowledgements are the library's: nobody takes a sample.
            ended.recv_timeout(PATIENCE).unwrap();
        });
        until(&mut [&mut here], &mut Vec::new(), |_| writer.matched() == 1);
        let (begun, mut waits) = (Instant::now(), 0);
        for _ in 0..100 {
            writer.write(&Octets::default().payload()).unwrap();
            while writer.unacknowledged() > 0 {
                here.wait(Duration::from_secs(5)).unwrap();
                waits += 1;
            }
        }
        end.send(()).unwrap();
        reader.join().unwrap();
        (begun.elapsed(), waits)
    });
    // A wait that was not ended would take five seconds; each acknowledgement ends one, and so does a discovery.
    assert!(reading.0 < Duration::from_secs(30), "{reading:?}");
    assert!(reading.1 <= 200, "{reading:?}");
}

/// A writer of Chappe announces no type: its samples have none, and the bytes are those that it wrote.
#[test]
fn a_reader_of_any_type_gets_samples_of_its_partitions_only() {
    let config = config(31);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = topic("any");
    let kept = |partition: &str| Qos {
        durability: Durability::TransientLocal,
        partitions: vec![partition.into()],
        ..Qos::default()
    };
    let mut reader = there
        .reader(&Topic::of_any_type(&topic.name), &kept("nor*"))
        .unwrap();
    let mut writers: Vec<_> = ["south", "north"]
        .iter()
        .map(|partition| here.writer(&topic, &kept(partition)).unwrap())
        .collect();
    for (number, writer) in (1..).zip(&mut writers) {
        let octets = Octets {
            number,
            ..Octets::default()
        };
        writer.write(&octets.payload()).unwrap();
    }
    let (mut events, mut got) = (Vec::new(), Vec::new());
    until(&mut [&mut here, &mut there], &mut events, |_| {
        reader.take(usize::MAX, &mut got).unwrap();
        !got.is_empty() && reader.matched() == 1 && writers[1].unacknowledged() == 0
    });
    let sample: &Sample = &got[0];
    assert_eq!(got.len(), 1);
    assert_eq!(Octets::read(&sample.payload).unwrap().number, 2);
    assert_eq!((sample.writer, &sample.of), (writers[1].guid(), &None));
    assert!(sample.source_time_ns > 0);
    let ends = there.remote_ends();
    let end = ends.iter().find(|end| end.guid == sample.writer).unwrap();
    assert_eq!(
        (&end.topic, &*end.partitions),
        (&topic, &["north".to_owned()][..])
    );
    assert_eq!(end.of, AnnouncedType::Name);
}
