//! Goal: a capture of either format and byte order gives the messages that were sent; broken ones end
//! with an error that names the byte.
//!
//! Method: packets are written by the test. Arbitrary and mutated bytes are in `tests/corpus.rs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use chappe_device::capture::{Capture, Carrier, Conversations, Message};

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 40_000);
const DEVICE: ([u8; 4], u16) = ([192, 0, 2, 7], 5_357);
const SECOND_NS: u64 = 1_000_000_000;

type End = ([u8; 4], u16);

/// An IPv4 packet.
fn ip(protocol: u8, from: End, to: End, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(from.0);
    packet.extend(to.0);
    packet.extend(payload);
    packet
}

fn ports(from: End, to: End) -> Vec<u8> {
    let mut head = from.1.to_be_bytes().to_vec();
    head.extend(to.1.to_be_bytes());
    head
}

fn udp(from: End, to: End, text: &str) -> Vec<u8> {
    let mut payload = ports(from, to);
    payload.extend(u16::try_from(8 + text.len()).unwrap().to_be_bytes());
    payload.extend([0, 0]);
    payload.extend(text.as_bytes());
    payload
}

fn tcp(from: End, to: End, sequence: u32, flags: u8, text: &str) -> Vec<u8> {
    let mut payload = ports(from, to);
    payload.extend(sequence.to_be_bytes());
    payload.extend([0, 0, 0, 0, 0x50, flags, 255, 255, 0, 0, 0, 0]);
    payload.extend(text.as_bytes());
    ip(6, from, to, 1, 0, &payload)
}

/// A capture of raw IP, with a packet each millisecond.
fn pcap(packets: &[Vec<u8>], is_big: bool) -> Vec<u8> {
    let word = |number: u32| match is_big {
        true => number.to_be_bytes(),
        false => number.to_le_bytes(),
    };
    let half = |number: u16| match is_big {
        true => number.to_be_bytes(),
        false => number.to_le_bytes(),
    };
    let mut file = word(0xa1b2_c3d4).to_vec();
    file.extend(half(2));
    file.extend(half(4));
    file.extend([0, 0, 65_535, 101].map(word).concat());
    for (index, packet) in packets.iter().enumerate() {
        let length = u32::try_from(packet.len()).unwrap();
        let micros = u32::try_from(index).unwrap() * 1_000;
        file.extend([1, micros, length, length].map(word).concat());
        file.extend(packet);
    }
    file
}

/// The same in pcapng, with nanoseconds.
fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(12 + body.len().next_multiple_of(4)).unwrap();
        let mut block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        block.extend(body);
        block.resize(usize::try_from(length).unwrap() - 4, 0);
        block.extend(length.to_le_bytes());
        block
    };
    let section = [
        0x1a2b_3c4d_u32.to_le_bytes(),
        [1, 0, 0, 0],
        [255; 4],
        [255; 4],
    ]
    .concat();
    let mut file = block(0x0a0d_0d0a, &section);
    // Ethernet; the unit of time is 10^-9 s.
    let interface = [[1, 0, 0, 0], [0; 4], [9, 0, 1, 0], [9, 0, 0, 0], [0; 4]].concat();
    file.extend(block(1, &interface));
    file.extend(block(0x0bad, b"a block of another kind"));
    for (index, packet) in packets.iter().enumerate() {
        let at = SECOND_NS + u64::try_from(index).unwrap() * 1_000_000;
        let length = u32::try_from(14 + packet.len()).unwrap().to_le_bytes();
        let high = u32::try_from(at >> 32).unwrap().to_le_bytes();
        let low = u32::try_from(at & 0xffff_ffff).unwrap().to_le_bytes();
        let mut body = [[0; 4], high, low, length, length].concat();
        body.extend([[0; 12].as_slice(), &[8, 0], packet].concat());
        file.extend(block(6, &body));
    }
    file
}

/// The messages of a capture.
fn messages(file: &[u8]) -> (Vec<Message>, Conversations) {
    let mut capture = Capture::open(file).unwrap();
    let mut conversations = Conversations::new();
    let mut messages = Vec::new();
    while let Some(frame) = capture.next_frame().unwrap() {
        conversations.take(&frame, |message| messages.push(message));
    }
    (messages, conversations)
}

/// A question by UDP in two fragments, and a call by HTTP whose segments come in disorder.
fn conversation() -> Vec<Vec<u8>> {
    let probe = udp(
        CLIENT,
        ([239, 255, 255, 250], 3_702),
        &"<probe/>".repeat(100),
    );
    let (head, tail) = probe.split_at(400);
    let group = ([239, 255, 255, 250], 3_702);
    let request =
        "POST /device HTTP/1.1\r\nContent-Type: application/soap+xml\r\nContent-Length: 7\r\n\r\n";
    let length = u32::try_from(request.len()).unwrap();
    vec![
        ip(17, CLIENT, group, 9, 0x2000, head),
        ip(17, CLIENT, group, 9, 50, tail),
        tcp(CLIENT, DEVICE, 99, 0x02, ""),
        tcp(DEVICE, CLIENT, 499, 0x12, ""),
        tcp(CLIENT, DEVICE, 100 + length, 0x18, "<call/>"),
        tcp(CLIENT, DEVICE, 100, 0x10, request),
        tcp(CLIENT, DEVICE, 100, 0x10, request),
        tcp(
            DEVICE,
            CLIENT,
            500,
            0x18,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n<an",
        ),
        tcp(DEVICE, CLIENT, 553, 0x18, "\r\n6\r\nswer/>\r\n0\r\n\r\n"),
    ]
}

#[test]
fn the_messages_of_a_capture_are_those_that_were_sent() {
    let packets = conversation();
    let files = [
        pcap(&packets, false),
        pcap(&packets, true),
        pcapng(&packets),
    ];
    for file in files {
        let (messages, conversations) = messages(&file);
        let [probe, request, answer] = messages.as_slice() else {
            panic!("{messages:#?} {:?}", conversations.losses());
        };
        assert_eq!(probe.body, "<probe/>".repeat(100).as_bytes());
        assert_eq!(probe.carrier, Carrier::Datagram);
        assert_eq!(
            probe.from,
            SocketAddr::from((Ipv4Addr::from(CLIENT.0), CLIENT.1))
        );
        assert_eq!(request.body, b"<call/>");
        assert_eq!(request.content_type, "application/soap+xml");
        assert_eq!(request.at_ns, SECOND_NS + 5_000_000);
        assert_eq!(answer.body, b"<answer/>");
        let after = Some(Duration::from_millis(2));
        assert_eq!(answer.carrier, Carrier::Answer { status: 200, after });
        assert_eq!(answer.arrival, Duration::from_millis(1));
        assert_eq!(conversations.losses(), Default::default());
        assert_eq!(conversations.bytes(), 0);
    }
}

#[test]
fn a_broken_capture_is_an_error_with_its_place() {
    let whole = pcap(&conversation(), false);
    let cut = &whole[..whole.len() - 3];
    let mut capture = Capture::open(cut).unwrap();
    let error = loop {
        match capture.next_frame() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end is missing"),
            Err(error) => break error,
        }
    };
    assert!(
        error.to_string().contains("ends inside a packet"),
        "{error}"
    );
    for (bytes, expected) in [
        (b"".as_slice(), "empty"),
        (b"<xml version='1.0'/>", "neither pcap nor pcapng"),
        (&whole[..20], "ends inside"),
    ] {
        let error = Capture::open(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut huge = whole;
    huge[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = Capture::open(huge.as_slice())
        .unwrap()
        .next_frame()
        .unwrap_err();
    assert!(error.to_string().contains("at most"), "{error}");
}
