//! Goal: packets have one encoding, and no bytes do harm.
//! Method: any packet is encoded and decoded; any bytes, and changed packets, are decoded.

use std::net::SocketAddr;

use chappe_identity::PublicKey;
use chappe_kad::message::{Reason, Verdict};
use chappe_kad::{
    Body, CONTACTS_MAX, Certificate, Contact, Error, Key, PACKET_BYTES_MAX, Packet, Record,
    TAG_BYTES, VALUE_BYTES_MAX,
};
use proptest::prelude::*;

fn contact() -> impl Strategy<Value = Contact> {
    (
        any::<[u8; 32]>(),
        any::<bool>(),
        any::<[u8; 16]>(),
        any::<u16>(),
    )
        .prop_map(|(public, v4, ip, port)| {
            let ip4: std::net::IpAddr = [ip[0], ip[1], ip[2], ip[3]].into();
            let ip6 = std::net::IpAddr::from(ip).to_canonical();
            Contact {
                public: PublicKey::new(public),
                address: SocketAddr::from((if v4 { ip4 } else { ip6 }, port)),
            }
        })
}

fn signature() -> impl Strategy<Value = [u8; 64]> {
    any::<[[u8; 32]; 2]>().prop_map(|halves| {
        let mut whole = [0; 64];
        whole[..32].copy_from_slice(&halves[0]);
        whole[32..].copy_from_slice(&halves[1]);
        whole
    })
}

fn record() -> impl Strategy<Value = Record> {
    let value = proptest::collection::vec(any::<u8>(), 0..=VALUE_BYTES_MAX);
    (
        any::<[u8; 32]>(),
        any::<u128>(),
        any::<(u16, u64, u64)>(),
        1_u32..=7_200,
        value,
        signature(),
    )
        .prop_map(
            |(public, key, (slot, sequence, expires_s), lifetime_s, value, signature)| Record {
                publisher: PublicKey::new(public),
                key: Key::new(key),
                slot,
                sequence,
                lifetime_s,
                expires_s,
                value,
                signature,
            },
        )
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::Greeting),
        Just(Body::Ping),
        Just(Body::Pong),
        (0_u16..300).prop_map(|padding| Body::Greet { padding }),
        (any::<u128>(), any::<u8>(), 0_u16..300).prop_map(|(target, count, padding)| Body::Find {
            target: Key::new(target),
            count,
            padding,
        }),
        proptest::collection::vec(contact(), 0..=CONTACTS_MAX).prop_map(Body::Contacts),
        (0_u8..=4, record()).prop_map(|(level, record)| Body::Store { level, record }),
        prop_oneof![
            Just(Verdict::Kept),
            Just(Verdict::Outdated),
            Just(Verdict::Full),
            Just(Verdict::Rejected)
        ]
        .prop_map(Body::Stored),
        (
            any::<(u128, u128)>(),
            any::<u64>(),
            any::<u16>(),
            0_u16..300
        )
            .prop_map(|((place, after), digest, bytes, padding)| Body::Ask {
                place: Key::new(place),
                after,
                digest,
                bytes,
                padding,
            }),
        (any::<u16>(), any::<bool>(), proptest::option::of(record())).prop_map(
            |(held, split, record)| Body::Records {
                held,
                split,
                records: record.into_iter().collect(),
            }
        ),
        prop_oneof![
            Just(Reason::Token),
            Just(Reason::Certificate),
            Just(Reason::Busy)
        ]
        .prop_map(Body::Refused),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let certificate = (any::<u64>(), signature()).prop_map(|(expires_s, signature)| Certificate {
        expires_s,
        signature,
    });
    (
        any::<[u8; 32]>(),
        any::<(bool, bool, u64, u64)>(),
        proptest::option::of(certificate),
        body(),
    )
        .prop_map(
            |(sender, (client, please, number, token), certificate, body)| Packet {
                sender: PublicKey::new(sender),
                client,
                please,
                number,
                token,
                certificate,
                body,
            },
        )
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.write(&mut bytes);
    bytes.extend_from_slice(&[7; TAG_BYTES]);
    bytes
}

proptest! {
    #[test]
    fn reading_gives_what_was_written(packet in packet()) {
        let bytes = bytes_of(&packet);
        prop_assert!(bytes.len() <= PACKET_BYTES_MAX, "{} bytes", bytes.len());
        let (read, under, tag) = Packet::read(&bytes).expect("what was written");
        prop_assert_eq!(&read, &packet);
        prop_assert_eq!(under.len() + TAG_BYTES, bytes.len());
        prop_assert_eq!(tag, &[7; TAG_BYTES]);
    }

    #[test]
    fn no_bytes_panic_and_what_is_read_is_written_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 0..1_300)
    ) {
        if let Ok((read, _, tag)) = Packet::read(&bytes) {
            let mut again = Vec::new();
            read.write(&mut again);
            again.extend_from_slice(tag);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn changed_packets_do_no_harm(
        packet in packet(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = bytes_of(&packet);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok((read, _, tag)) = Packet::read(&bytes) {
            let mut again = Vec::new();
            read.write(&mut again);
            again.extend_from_slice(tag);
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let ping = Packet {
        sender: PublicKey::new([1; 32]),
        client: false,
        please: false,
        number: 1,
        token: 0,
        certificate: None,
        body: Body::Ping,
    };
    let good = bytes_of(&ping);
    assert_eq!(good.len(), 67);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Packet::read(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(changed(0, 9), Error::Version(9));
    assert_eq!(changed(1, 99), Error::Kind(99));
    assert_eq!(changed(2, 8), Error::Malformed { kind: 3, offset: 2 });
    // A certificate is announced and is not there.
    assert_eq!(changed(2, 1), Error::Truncated);
    let with = |extra: usize| [&good[..], &vec![0; extra]].concat();
    assert_eq!(
        Packet::read(&with(1)).map(|_| ()),
        Err(Error::Malformed {
            kind: 3,
            offset: 51
        })
    );
    assert_eq!(
        Packet::read(&with(1_166)).map(|_| ()),
        Err(Error::TooLong(1_233))
    );
    for length in 0..good.len() {
        assert!(Packet::read(&good[..length]).is_err(), "{length}");
    }
}

#[test]
fn an_address_has_one_form() {
    let contacts = |bytes: &[u8]| {
        let mut whole = vec![1, 6, 0];
        whole.extend_from_slice(&[0; 48]);
        whole.extend_from_slice(bytes);
        whole.extend_from_slice(&[0; TAG_BYTES]);
        Packet::read(&whole).is_ok()
    };
    let mut mapped = vec![3; 32];
    mapped.push(6);
    mapped.extend_from_slice(&std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
    mapped.extend_from_slice(&[0, 1]);
    assert!(!contacts(&mapped));
    mapped[32 + 1] = 0x20;
    assert!(contacts(&mapped));
    mapped[32] = 5;
    assert!(!contacts(&mapped));
}
