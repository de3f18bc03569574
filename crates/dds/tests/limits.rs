//! Goal: what strangers announce is bounded: writers and readers of a participant, and types of a topic; those beyond the limit
//! are named, and a writer that was ignored is read once there is room. The samples that nobody takes are bounded, and those
//! beyond are counted as lost.
//! Method: two participants of one process on loopback, in a domain that this process is unlikely to share with
//! another.

#![cfg(cyclone)]

use std::time::{Duration, Instant};

use chappe_dds::{
    Durability, Event, Octets, Participant, ParticipantConfig, Qos, SAMPLE_BYTES_MAX, Topic,
    WriteError, Writer, open,
};

/// The time limit of every step; reason: a busy machine, and the timers of the library.
const PATIENCE: Duration = Duration::from_secs(240);
/// The limits of a participant and of a topic of any type (docs/reference/dds.md).
const ENDS_OF_ONE_MAX: usize = 1_024;
const TYPES_MAX: usize = 8;

fn config(offset: u32) -> ParticipantConfig {
    // Below 101 its ports are below the ephemeral range.
    let domain = 1 + (std::process::id().wrapping_mul(11) + offset * 53) % 100;
    ParticipantConfig {
        domain: u16::try_from(domain).unwrap(),
        ..ParticipantConfig::default()
    }
}

fn topic(name: &str, type_name: &str) -> Topic {
    Topic {
        name: format!("chappe/test/{name}/{}", std::process::id()),
        type_name: type_name.to_owned(),
    }
}

/// Runs both until it is done.
fn until([here, there]: [&mut Box<dyn Participant>; 2], mut done: impl FnMut(Vec<Event>) -> bool) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE);
        there.wait(Duration::from_millis(1)).unwrap();
        while there.event().is_some() {}
        here.wait(Duration::from_millis(5)).unwrap();
        let events = std::iter::from_fn(|| here.event()).collect();
        if done(events) {
            return;
        }
    }
}

#[test]
fn writers_of_a_participant_are_bounded_and_named() {
    const MORE: usize = 40;
    let config = config(0);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = topic("many", Octets::TYPE_NAME);
    let qos = Qos::reliable_writer(4);
    let new = |_| there.writer(&topic, &qos).unwrap();
    let writers: Vec<Box<dyn Writer>> = (0..ENDS_OF_ONE_MAX + MORE).map(new).collect();
    let prefix = there.guid().prefix();
    let (mut dropped, mut warnings) = (Vec::new(), 0);
    until([&mut here, &mut there], |events| {
        for event in events {
            match event {
                Event::EndDropped { topic, detail } => dropped.push((topic, detail)),
                Event::Warnings { count, .. } => warnings += count,
                _ => {}
            }
        }
        dropped.len() >= MORE && warnings >= MORE as u64
    });
    let known = here.remote_ends();
    let known = known.iter().filter(|end| end.guid.prefix() == prefix);
    assert_eq!(known.count(), ENDS_OF_ONE_MAX);
    let (_, detail) = &dropped[0];
    assert!(
        detail.contains("is dropped: 1024 of its participant are known"),
        "{detail}"
    );
    drop(writers);
}

#[test]
fn a_writer_of_one_type_too_many_is_read_when_another_leaves() {
    let config = config(1);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let qos = Qos {
        durability: Durability::TransientLocal,
        ..Qos::default()
    };
    let name = topic("types", "any").name;
    let mut reader = here.reader(&Topic::of_any_type(&name), &qos).unwrap();
    let mut writers = Vec::new();
    for number in 0..=TYPES_MAX as u64 {
        let topic = topic("types", &format!("lab::T{number}"));
        let mut writer = there.writer(&topic, &qos).unwrap();
        let octets = Octets {
            number,
            ..Octets::default()
        };
        writer.write(&octets.payload()).unwrap();
        writers.push(writer);
    }
    let mut read = Vec::new();
    let mut faults = Vec::new();
    until([&mut here, &mut there], |_| {
        let mut taken = Vec::new();
        reader.take(usize::MAX, &mut taken).unwrap();
        faults.extend(reader.faults());
        read.extend(
            taken
                .iter()
                .map(|it| (it.writer, Octets::read(&it.payload).unwrap().number)),
        );
        read.len() == TYPES_MAX && !faults.is_empty()
    });
    assert!(faults[0].contains("too many types"), "{faults:?}");
    let first = read[0].0;
    writers.retain(|writer| writer.guid() != first);
    until([&mut here, &mut there], |_| {
        let mut taken = Vec::new();
        reader.take(usize::MAX, &mut taken).unwrap();
        read.extend(
            taken
                .iter()
                .map(|it| (it.writer, Octets::read(&it.payload).unwrap().number)),
        );
        read.len() > TYPES_MAX
    });
    let mut numbers: Vec<u64> = read.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..=TYPES_MAX as u64).collect::<Vec<_>>());
}

#[test]
fn samples_that_nobody_takes_are_bounded_by_their_bytes() {
    const HELD_BYTES_MAX: usize = 256 << 20;
    const SAMPLES: u64 = 70;
    let config = config(2);
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = topic("large", Octets::TYPE_NAME);
    let mut reader = here.reader(&topic, &Qos::default()).unwrap();
    let mut writer = there.writer(&topic, &Qos::default()).unwrap();
    until([&mut here, &mut there], |_| writer.matched() == 1);
    let payload = |number, bytes| {
        let octets = vec![0; bytes].into();
        let octets = Octets {
            number,
            octets,
            ..Octets::default()
        };
        octets.payload()
    };
    let mut written = 0;
    until([&mut here, &mut there], |_| {
        while written < SAMPLES {
            match writer.write(&payload(written, SAMPLE_BYTES_MAX - 64)) {
                Ok(_) => written += 1,
                Err(WriteError::Full(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        writer.unacknowledged() == 0
    });
    let (mut taken, mut bytes) = (Vec::new(), 0);
    reader.take(usize::MAX, &mut taken).unwrap();
    let kept = taken.len() as u64;
    bytes += taken.iter().map(|it| it.payload.bytes.len()).sum::<usize>();
    assert!(bytes <= HELD_BYTES_MAX, "{bytes}");
    assert!(bytes > HELD_BYTES_MAX - 2 * SAMPLE_BYTES_MAX, "{bytes}");
    taken.clear();
    // There is room again, and the next number shows what is missing.
    writer.write(&payload(SAMPLES, 1)).unwrap();
    until([&mut here, &mut there], |_| {
        reader.take(usize::MAX, &mut taken).unwrap();
        !taken.is_empty()
    });
    assert_eq!(reader.lost(), SAMPLES - kept);
}
