//! Goal: decoding undoes encoding, each message has one form, and no bytes make a decoder panic.
//! Method: properties over generated messages and over bytes; random programs of the fuzz target.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/tree.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/list.rs"]
mod list;

use std::sync::Arc;
use std::time::Duration;

use chappe_notification_tree::{
    Body, Contact, Coverage, DATAGRAM_BYTES_MAX, Event, EventId, Malformed, Membership, Message,
    Piece, Plan, Proof, Pull, Response, SOURCE, Spread, Suspects, TrustedNetwork,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn id() -> impl Strategy<Value = EventId> {
    (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(topic, boot, sequence)| EventId {
        topic,
        boot,
        sequence,
    })
}

fn range() -> impl Strategy<Value = (u32, u32)> {
    (0u32..1 << 30, 1u32..1 << 30).prop_map(|(first, length)| (first, first + length))
}

fn plan() -> impl Strategy<Value = Plan> {
    prop_oneof![
        Just(Plan::Sequential),
        Just(Plan::SequentialWaiting),
        Just(Plan::TwoHalves),
        Just(Plan::Binomial),
        any::<u16>().prop_map(Plan::Kary),
        (0u32..1 << 20, 1u16..).prop_map(|(delay, cap)| Plan::Postal { delay, cap }),
    ]
}

fn contact(number: u16) -> Contact {
    let ip = [10, 1, (number >> 8) as u8, number as u8];
    Contact {
        address: (ip, 4_000).into(),
        key: [0; 32],
    }
}

fn event() -> impl Strategy<Value = Arc<Event>> {
    let body = vec(any::<u8>(), 0..600);
    (
        id(),
        any::<u32>(),
        0u16..40,
        any::<bool>(),
        body,
        0u64..1 << 40,
    )
        .prop_map(|(id, version, sinks, inline, body, deadline)| {
            let sinks = (0..sinks).map(contact).collect();
            let membership = Membership::new(id.topic, version, sinks).expect("apart");
            let membership = Arc::new(membership);
            let deadline = (deadline > 0).then(|| Duration::from_micros(deadline & 0xFFFF_FFFF));
            let deadline = deadline.filter(|it| !it.is_zero());
            let event = Event::new(
                &TrustedNetwork,
                id,
                &membership,
                inline,
                deadline,
                &body,
                DATAGRAM_BYTES_MAX - 120,
            );
            Arc::new(event.expect("it fits"))
        })
}

fn response() -> impl Strategy<Value = Response> {
    (id(), any::<u32>(), range(), any::<u32>(), any::<u32>()).prop_map(
        |(id, version, (first, end), stamp_us, dwell_us)| Response {
            id,
            version,
            first,
            end,
            stamp_us,
            dwell_us,
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    let numbers = any::<[u32; 6]>();
    let suspects = btree_set(0u32..1_000, 0..12);
    let spread = (event(), range(), numbers, plan(), any::<bool>(), suspects).prop_map(
        |(event, (first, end), numbers, plan, repair, places)| {
            let (first, end) = match event.list() {
                Some(list) => (0, list.expect("apart").count().max(1)),
                None => (first, end),
            };
            let mut suspects = Suspects::default();
            let inside = places
                .into_iter()
                .map(|place| first + place)
                .filter(|it| *it < end);
            inside.for_each(|place| suspects.push(place));
            Body::Spread(Spread {
                first,
                end,
                stamp_us: numbers[0],
                due_us: numbers[1],
                timeout_us: numbers[2],
                age_us: numbers[3],
                latency_us: numbers[4],
                send_cost_ns: numbers[5],
                plan,
                repair,
                suspects,
                event,
            })
        },
    );
    let coverage = (
        response(),
        any::<u32>(),
        btree_set(0u32..5_000, 0..200),
        any::<u128>(),
    )
        .prop_map(|(response, pieces, failed, receipts)| {
            let (first, end) = (response.first, response.end);
            let failed = failed.into_iter().map(|place| first + place);
            let failed = failed.filter(|place| *place < end).collect();
            let piece = Piece {
                first,
                end,
                failed,
                receipts,
            };
            Body::Coverage(Coverage {
                response,
                pieces,
                piece,
            })
        });
    let pull = (any::<u64>(), any::<[u32; 2]>(), any::<[u64; 2]>()).prop_map(
        |(topic, [version, boot], [first, wanted])| {
            Body::Pull(Pull {
                topic,
                version,
                boot,
                first,
                wanted,
            })
        },
    );
    let proof = (any::<u64>(), any::<u128>(), any::<bool>()).prop_map(|(topic, number, answer)| {
        Body::Proof(Proof {
            topic,
            number,
            answer,
        })
    });
    prop_oneof![
        spread,
        response().prop_map(Body::Response),
        coverage,
        pull,
        proof
    ]
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(from in any::<u32>(), body in body()) {
        // An empty list has no range, so its event is never sent.
        let empty = matches!(&body, Body::Spread(spread)
            if spread.event.list().is_some_and(|list| list.is_ok_and(|list| list.count() == 0)));
        let message = Message { from, body };
        let mut bytes = Vec::new();
        message.encode(false, &mut bytes);
        prop_assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
        match Message::decode(&bytes) {
            Ok((decoded, tag)) => {
                prop_assert_eq!(decoded, message);
                prop_assert!(tag.is_none() && !empty);
            }
            Err(error) => prop_assert!(empty, "{}", error),
        }
    }

    #[test]
    fn truncated_and_trailing_bytes_are_refused(body in body(), cut in any::<prop::sample::Index>()) {
        let message = Message { from: 3, body };
        let mut bytes = Vec::new();
        message.encode(false, &mut bytes);
        if !matches!(message.body, Body::Spread(_)) {
            let short = &bytes[..cut.index(bytes.len())];
            prop_assert!(Message::decode(short).is_err());
            bytes.push(0);
            prop_assert!(Message::decode(&bytes).is_err());
        }
        bytes.resize(DATAGRAM_BYTES_MAX + 1, 0);
        prop_assert_eq!(Message::decode(&bytes), Err(Malformed::TooLarge));
    }

    #[test]
    fn programs_of_a_hostile_peer(data in vec(any::<u8>(), 0..2_000)) {
        check::check(&data);
    }
}

#[test]
fn a_strangers_plan_with_a_long_delay_holds_little_memory() {
    // A publication, then a spread of 48 sinks by a chain with a delay of 43,690 send costs.
    let mut data = [0; 80];
    for (at, byte) in [(0, 91), (3, 66), (21, 39), (37, 136), (40, 201), (47, 2)] {
        data[at] = byte;
    }
    data[48..].copy_from_slice(&[
        198, 112, 103, 78, 226, 209, 120, 104, 120, 92, 148, 147, 86, 27, 82, 0, 181, 86, 133, 217,
        83, 82, 47, 119, 200, 11, 197, 243, 15, 146, 0, 0,
    ]);
    check::check(&data[..78]);
}

#[test]
fn lists_with_repeated_or_invalid_addresses_are_refused() {
    let new = |sinks| Membership::new(1, 1, sinks);
    assert_eq!(
        new(vec![contact(1), contact(2), contact(1)]),
        Err(Malformed::Repeated)
    );
    for address in [
        "0.0.0.0:1",
        "224.0.0.1:1",
        "255.255.255.255:1",
        "10.0.0.1:0",
        "[::]:1",
    ] {
        let address = address.parse().expect("an address");
        let wrong = Contact {
            address,
            key: [1; 32],
        };
        assert_eq!(
            new(vec![contact(1), wrong]),
            Err(Malformed::Address),
            "{address}"
        );
    }
    // The same inside an event, where a stranger may have written it.
    let membership = Arc::new(new(vec![contact(1), contact(2)]).expect("apart"));
    let id = EventId {
        topic: 1,
        boot: 1,
        sequence: 1,
    };
    let event = Event::new(&TrustedNetwork, id, &membership, true, None, b"x", 500).expect("fits");
    let mut bytes = event.bytes().to_vec();
    // The second entry equals the first: 7 bytes each, after a header of 27.
    bytes.copy_within(27..34, 34);
    let list = |bytes: &[u8]| Event::decode(bytes).map(|event| event.list());
    assert_eq!(list(&bytes), Ok(Some(Err(Malformed::Repeated))));
    // The second one's port is 0.
    bytes[39..41].fill(0);
    assert_eq!(list(&bytes), Err(Malformed::Address));
}

#[test]
fn the_corpus_passes() {
    corpus::replay("tree", 1, check::check);
}

#[test]
fn the_corpus_of_lists_passes() {
    corpus::replay("list", 5, |bytes| {
        list::check(bytes);
        for at in 0..bytes.len() {
            list::check(&bytes[..at]);
            let mut changed = bytes.to_vec();
            for change in [1, 0x10, 0x80, 0xFF] {
                changed[at] = bytes[at] ^ change;
                list::check(&changed);
            }
        }
    });
}

#[test]
fn the_source_is_not_a_sink() {
    let membership = Membership::new(1, 1, vec![contact(1)]).expect("apart");
    assert_eq!(membership.sink(SOURCE), None);
}
