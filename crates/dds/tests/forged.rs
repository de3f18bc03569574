//! Goal: impossible acknowledgements (of samples long acknowledged, or not written yet) neither end nor block a
//! writer, and the number of unacknowledged samples stays within its window.
//! Method: a writer and a reader on loopback; the test sends ACKNACKs in the reader's name (RTPS 2.5, clause 9.4.5.3)
//! from its own socket, and the writer continues after each.

#![cfg(cyclone)]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use chappe_dds::{
    Bytes, Guid, Octets, Participant, ParticipantConfig, Qos, Topic, WriteError, Writer, open,
};

const PATIENCE: Duration = Duration::from_secs(240);
const WINDOW: u32 = 8;

/// A message in the name of `reader` that acknowledges `writer`'s samples before `base`.
fn acknack(reader: Guid, writer: Guid, base: u64, count: u32) -> Vec<u8> {
    let mut message = b"RTPS\x02\x03\x01\x12".to_vec();
    message.extend_from_slice(&reader.prefix());
    // INFO_DST, little-endian, 12 bytes.
    message.extend_from_slice(&[0x0e, 1, 12, 0]);
    message.extend_from_slice(&writer.prefix());
    // ACKNACK, final, 24 bytes.
    message.extend_from_slice(&[0x06, 3, 24, 0]);
    message.extend_from_slice(&reader.0[12..]);
    message.extend_from_slice(&writer.0[12..]);
    let (high, low) = ((base >> 32) as u32, base as u32);
    for word in [high, low, 0, count] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    message
}

fn turn(participants: &mut [&mut Box<dyn Participant>]) {
    for participant in participants {
        participant.wait(Duration::from_millis(5)).unwrap();
        while participant.event().is_some() {}
    }
}

fn write(writer: &mut dyn Writer, number: u64) -> bool {
    let octets = Octets {
        number,
        octets: Bytes::from(vec![0; 1_000]),
        ..Octets::default()
    };
    let written = match writer.write(&octets.payload()) {
        Ok(_) => true,
        Err(WriteError::Full(_)) => false,
        Err(error) => panic!("{error}"),
    };
    assert!(writer.unacknowledged() <= WINDOW.into());
    written
}

#[test]
fn forged_acknowledgements_neither_end_nor_block_a_writer() {
    // Below 101 its ports are below the ephemeral range.
    let domain = 1 + (std::process::id().wrapping_mul(7) + 31) % 100;
    let config = ParticipantConfig {
        domain: u16::try_from(domain).unwrap(),
        ..ParticipantConfig::default()
    };
    let mut here = open(&config).unwrap();
    let mut there = open(&config).unwrap();
    let topic = Topic {
        name: format!("chappe/test/forged/{}", std::process::id()),
        type_name: Octets::TYPE_NAME.into(),
    };
    let mut writer = here.writer(&topic, &Qos::reliable_writer(WINDOW)).unwrap();
    let mut reader = there.reader(&topic, &Qos::reliable_reader(WINDOW)).unwrap();
    let begun = Instant::now();
    while writer.matched() == 0 || reader.matched() == 0 {
        assert!(
            begun.elapsed() < PATIENCE,
            "they do not discover each other"
        );
        turn(&mut [&mut here, &mut there]);
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (reads, writes) = (reader.guid(), writer.guid());
    let forge = |base, count| {
        let message = acknack(reads, writes, base, count);
        // RTPS 2.5, clause 9.6.2.3: samples of the first participants of the domain.
        for participant in 0..6 {
            let port = 7_400 + 250 * config.domain + 11 + 2 * participant;
            socket.send_to(&message, ("127.0.0.1", port)).unwrap();
        }
    };
    // Past, future, none, and the largest number.
    let forgeries = [
        (1, 1 << 20),
        (1 << 40, 1 << 21),
        (0, 1 << 22),
        (u64::MAX >> 1, 1 << 23),
    ];
    let mut number = 0;
    let mut taken = Vec::new();
    for (at, (base, count)) in forgeries.into_iter().enumerate() {
        let sent = number;
        // Before any forgery all samples arrive.
        while number < sent + 50 || at == 0 && taken.len() < 50 {
            assert!(begun.elapsed() < PATIENCE, "{number} were written");
            // A forged acknowledgement may be the last one that the library accepts from this reader: then
            // the writer is full, and reports it at once.
            if number < sent + 50 && (write(&mut *writer, number + 1) || at > 0) {
                number += 1;
            }
            turn(&mut [&mut here, &mut there]);
            reader.take(usize::MAX, &mut taken).unwrap();
        }
        forge(base, count);
    }
    turn(&mut [&mut here, &mut there]);
    write(&mut *writer, number + 1);
    assert!(taken.len() >= 50, "{} came", taken.len());
}
