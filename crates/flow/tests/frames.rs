//! Goal: decoded frames equal the encoded ones, and no bytes do harm.
//!
//! Method: properties over messages of every kind and over arbitrary bytes.

use bytes::Bytes;
use chappe_flow::message::{
    DecodeError, Entry, FrameWriter, Hello, Message, Place, Rolled, SchemaText, Stage, Welcome,
    decode, seal,
};
use chappe_flow::{
    Channel, Code, Credit, Level, LossReason, Position, Records, RefusalReason, SchemaId, Start,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Owned versions of the data that messages borrow.
#[derive(Debug, Clone)]
struct Texts {
    text: String,
    name: String,
    bytes: Vec<u8>,
}

prop_compose! {
    fn texts()(text in ".{0,60}", name in "[a-z/]{0,30}", bytes in vec(any::<u8>(), 0..200)) -> Texts {
        Texts { text, name, bytes }
    }
}

fn numbers() -> impl Strategy<Value = [u64; 6]> {
    let number = prop_oneof![0..200_u64, any::<u64>().prop_map(|one| one >> 1)];
    proptest::array::uniform6(number)
}

fn packed() -> impl Strategy<Value = Records> {
    vec((any::<i64>(), vec(any::<u8>(), 0..300)), 1..20)
        .prop_map(|records| records.into_iter().collect())
}

/// A message of the kind `kind % 16`.
fn message<'a>(kind: u8, texts: &'a Texts, numbers: [u64; 6], records: &Records) -> Message<'a> {
    let [a, b, c, d, e, f] = numbers;
    let channel = Channel((a % 65_536) as u32);
    let number = (b % 4) as u32;
    let stage = if number == 0 {
        Stage::default()
    } else {
        Stage {
            number,
            first: c + 1,
            kept: c.min(d),
        }
    };
    let place = Place {
        channel,
        stage,
        epoch: e,
    };
    let range = (c.max(1), c.max(1) + 1 + d % 1_000);
    let position = Position {
        epoch: c,
        sequence: d,
    };
    let schema = SchemaText {
        version: b as u32,
        id: SchemaId(c.to_le_bytes()),
        bytes: (d % 2 == 0).then_some(&texts.bytes),
    };
    let reason = RefusalReason::from_number(c as u8);
    let text = texts.text.as_str();
    match kind % 16 {
        0 => Message::Hello(Hello {
            versions: (a as u32 % 7, a as u32 % 7 + 1),
            session: b,
            frame_bytes_max: c,
            window_bytes: d,
            acknowledge_ms: e,
            dead_after_ms: f,
        }),
        1 => Message::Welcome(Welcome {
            version: a as u32,
            session: b,
            frame_bytes_max: c,
            dead_after_ms: d,
        }),
        2 => Message::Goodbye {
            code: Code::from_number(a as u8),
            versions: (b as u32, c as u32),
            text,
        },
        3 => Message::Subscribe {
            channel,
            start: match b % 3 {
                0 => Start::First,
                1 => Start::New,
                _ => Start::After(position),
            },
            earlier: vec![position; (e % 64) as usize],
            level: [Level::Memory, Level::Process, Level::Power][(b % 3) as usize],
            credit: Credit {
                bytes: e,
                elements: f,
            },
            serialization: "postcard",
            stream: &texts.name,
            known: (f % 2 == 0).then_some(SchemaId(f.to_le_bytes())),
        },
        4 => Message::Accepted {
            channel,
            rollback: match b % 3 {
                0 => Rolled::No,
                1 => Rolled::Unknown,
                _ => Rolled::Kept(position),
            },
            epoch: c,
            next: d.max(1),
            last: e,
            level: Level::Power,
            schema,
        },
        5 => Message::Refused {
            channel,
            reason,
            text,
        },
        6 => Message::Schema {
            channel,
            index: f as u32,
            schema,
        },
        7 => Message::Records {
            place,
            first: f.max(1),
            schema: b as u32,
            behind: d,
            records: records.clone(),
        },
        8 => Message::Lost {
            place,
            from: range.0,
            next: range.1,
            reason: LossReason::from_number(f as u8),
        },
        9 => Message::Stage {
            place: Place {
                stage: Stage {
                    number: number + 1,
                    first: c + 1,
                    kept: c.min(d),
                },
                ..place
            },
        },
        10 => Message::Ping { token: a },
        11 => Message::Pong { token: a },
        12 => Message::Unsubscribe {
            channel,
            reason,
            text,
        },
        13 => Message::Ended { channel },
        14 => Message::Fetch {
            request: b,
            channel,
            epoch: e,
            from: range.0,
            next: range.1,
            bytes: f,
        },
        _ => Message::Fetched {
            request: a,
            first: b,
            records: if c % 2 == 0 {
                records.clone()
            } else {
                Records::default()
            },
        },
    }
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(
        kinds in vec(any::<u8>(), 1..6),
        texts in texts(),
        numbers in numbers(),
        records in packed(),
    ) {
        let messages: Vec<_> = kinds
            .into_iter()
            .map(|kind| message(kind, &texts, numbers, &records))
            .collect();
        let mut writer = FrameWriter::default();
        messages.iter().for_each(|message| writer.push(message));
        let frame = writer.finish().unwrap();
        let read: Result<Vec<_>, _> = decode(&frame).unwrap().collect();
        prop_assert_eq!(read.unwrap(), messages);
    }

    #[test]
    fn acknowledgements_are_read_as_they_were_written(
        entries in vec(proptest::array::uniform8(0..u64::MAX / 2), 0..50),
    ) {
        let entry = |one: [u64; 8]| Entry {
            channel: (one[0] % 65_536) as u32,
            stage: one[1] as u32,
            stored: one[2],
            elements: one[4],
            bytes: one[5],
            elements_limit: one[6],
            bytes_limit: one[7],
            refused: one[3],
        };
        let entries: Vec<_> = entries.into_iter().map(entry).collect();
        let mut writer = FrameWriter::default();
        writer.push_acknowledge(&entries, usize::MAX);
        let frame = writer.finish().unwrap();
        let mut messages = decode(&frame).unwrap();
        match messages.next() {
            Some(Ok(Message::Acknowledge { entries: found })) => {
                prop_assert_eq!(found.iter().collect::<Vec<_>>(), entries);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert_eq!(messages.next(), None);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        let plain = Bytes::from(bytes.clone());
        if let Ok(messages) = decode(&plain) {
            messages.for_each(drop);
        }
        let sealed = seal(&bytes);
        match decode(&sealed) {
            Ok(messages) => messages.for_each(drop),
            Err(error) => prop_assert_eq!(error, DecodeError::Checksum(4), "only the empty one"),
        }
    }

    #[test]
    fn a_changed_frame_is_noticed(
        kind: u8,
        texts in texts(),
        numbers in numbers(),
        records in packed(),
        at: prop::sample::Index,
        bit in 0..8_u8,
    ) {
        let mut writer = FrameWriter::default();
        writer.push(&message(kind, &texts, numbers, &records));
        let mut frame = writer.finish().unwrap().to_vec();
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        let length = frame.len();
        let error = decode(&Bytes::from(frame)).err();
        prop_assert_eq!(error, Some(DecodeError::Checksum(length)));
    }

    #[test]
    fn a_cut_message_is_refused(
        kind: u8,
        texts in texts(),
        numbers in numbers(),
        records in packed(),
        cut: prop::sample::Index,
    ) {
        let mut writer = FrameWriter::default();
        writer.push(&message(kind, &texts, numbers, &records));
        let frame = writer.finish().unwrap();
        let cut = 1 + cut.index(frame.len() - 5);
        let shorter = seal(&frame[4..frame.len() - cut]);
        let Ok(mut messages) = decode(&shorter) else {
            return Ok(());
        };
        let malformed = matches!(messages.next(), Some(Err(DecodeError::Malformed { offset: 4, .. })));
        prop_assert!(malformed);
        prop_assert_eq!(messages.next(), None);
    }
}

#[test]
fn frames_are_finished_at_the_limit() {
    let records: Records = (0..10).map(|time| (time, [0; 100])).collect();
    let message = |first| Message::Records {
        place: Place {
            channel: Channel(1),
            stage: Stage::default(),
            epoch: 1,
        },
        first,
        schema: 0,
        behind: 0,
        records: records.clone(),
    };
    let mut writer = FrameWriter::default();
    let mut frames = Vec::new();
    for round in 0..10 {
        frames.extend(writer.push_within(&message(1 + 10 * round), 4_096));
    }
    frames.extend(writer.finish());
    assert_eq!(frames.len(), 4, "three messages of 1.1 kB each in a frame");
    assert!(frames.iter().all(|frame| frame.len() <= 4_096));
    let large = writer.push_within(&message(1), 100);
    assert_eq!(
        large, None,
        "a message that is larger is alone in its frame"
    );
    assert!(writer.finish().unwrap().len() > 100);
}

#[test]
fn an_unknown_kind_is_named() {
    for kind in [0, 11, 12, 20, 255] {
        let frame = seal(&[kind, 0]);
        let error = decode(&frame).unwrap().next().unwrap().unwrap_err();
        assert_eq!(error, DecodeError::UnknownKind { offset: 4, kind });
        assert_eq!(
            error.to_string(),
            format!("byte 4 of the frame: unknown message kind {kind}")
        );
    }
}
