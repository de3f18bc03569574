//! From packets to messages.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::http::{Asked, HttpMessage, Parser, Refused, Start};
use super::packet::{NoPacket, Packet, Packets, Segment};
use super::tcp::{Brought, Direction};
use super::{Carrier, Frame, Losses, Message};

/// Directions of connections that are remembered. Reason: some hundred devices, each with some connections.
const DIRECTIONS_MAX: usize = 2_048;
/// Bytes of all of them. The direction that grows beyond is forgotten.
const BYTES_MAX: usize = 64 << 20;
/// Requests of one connection without their answers. Reason: clients of devices send one at a time.
const OPEN_REQUESTS_MAX: usize = 16;

/// Makes messages of packets.
#[derive(Debug, Default)]
pub struct Conversations {
    packets: Packets,
    streams: HashMap<Key, Stream>,
    bytes: usize,
    turn: u64,
    losses: Losses,
}

/// One direction of a connection: its sender and its receiver.
type Key = (SocketAddr, SocketAddr);

/// What is known of one direction.
#[derive(Debug, Default)]
struct Stream {
    direction: Direction,
    parser: Parser,
    /// Requests that were sent in this direction, and not answered.
    open: VecDeque<Asked>,
    /// When it was used last.
    turn: u64,
    is_other: bool,
}

impl Stream {
    fn bytes(&self) -> usize {
        self.direction.bytes() + self.parser.bytes()
    }
}

impl Conversations {
    /// Makes an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What could not be made into messages so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses {
            incomplete_datagrams: self.packets.incomplete(),
            ..self.losses
        }
    }

    /// Bytes that are remembered.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a packet; calls `message` for each message that is complete with it, and for each gap.
    pub fn take(&mut self, frame: &Frame, message: impl FnMut(Message)) {
        if frame.is_cut {
            self.losses.cut_packets += 1;
        }
        let mut complete = Vec::new();
        match self.packets.read(frame) {
            Ok(Packet::Udp { from, to, bytes }) => complete.push(Message {
                at_ns: frame.at_ns,
                from,
                to,
                carrier: Carrier::Datagram,
                content_type: String::new(),
                coding: String::new(),
                body: bytes,
                arrival: Duration::ZERO,
            }),
            Ok(Packet::Tcp(segment)) => self.segment(frame.at_ns, segment, &mut complete),
            Err(NoPacket::Other) => self.losses.other_packets += 1,
            Err(NoPacket::Broken) => self.losses.broken_packets += 1,
            Err(NoPacket::Partial) => {}
        }
        complete.into_iter().for_each(message);
    }

    /// The capture ends; calls `message` for each message that is complete with it, and for each gap.
    pub fn end(&mut self, message: impl FnMut(Message)) {
        let mut keys: Vec<_> = self
            .streams
            .iter()
            .map(|(key, one)| (one.turn, *key))
            .collect();
        keys.sort_unstable();
        let mut complete = Vec::new();
        for (_, key) in keys {
            self.close(key, &mut complete);
        }
        self.streams.clear();
        complete.sort_by_key(|message| message.at_ns);
        complete.into_iter().for_each(message);
    }

    fn segment(&mut self, at_ns: u64, segment: Segment, complete: &mut Vec<Message>) {
        let key = (segment.from, segment.to);
        let peer = (segment.to, segment.from);
        self.turn += 1;
        let known = self.streams.get(&key);
        let is_again = known.is_some_and(|one| one.direction.began_with(segment.sequence));
        let is_first = segment.is_first && !is_again;
        if is_first && self.close(key, complete) {
            // The address is used again.
            if segment.acknowledged.is_none() {
                self.finish(peer, complete);
            }
            self.streams.remove(&key);
        }
        if let Some(number) = segment.acknowledged {
            self.acknowledge(peer, number, complete);
        }
        if !self.streams.contains_key(&key) {
            if segment.bytes.is_empty() && !is_first {
                return;
            }
            self.make_room(complete);
        }
        let mut stream = self.streams.remove(&key).unwrap_or_default();
        self.bytes -= stream.bytes();
        stream.turn = self.turn;
        if is_first {
            stream.direction.begin(segment.sequence);
        }
        // A SYN has a number itself.
        let sequence = segment.sequence.wrapping_add(u32::from(segment.is_first));
        // A packet has less than 4 GiB.
        let length = u32::try_from(segment.bytes.len()).unwrap_or(u32::MAX);
        let mut brought = stream.direction.take(at_ns, sequence, segment.bytes);
        if segment.is_last {
            stream.direction.end(sequence.wrapping_add(length));
        }
        if segment.is_reset {
            brought.extend(stream.direction.flush());
        }
        let is_over = segment.is_reset || stream.direction.is_ended();
        self.read(key, &mut stream, brought, is_over, complete);
        // The requests stay for their answers.
        if !is_over || !stream.open.is_empty() {
            self.put_back(key, stream, complete);
        }
    }

    /// The receiver of this direction has its bytes up to this number.
    fn acknowledge(&mut self, key: Key, number: u32, complete: &mut Vec<Message>) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        let before = stream.bytes();
        let brought = stream.direction.acknowledge(number);
        if brought.is_empty() {
            return;
        }
        self.bytes -= before;
        let mut stream = self.streams.remove(&key).unwrap_or_default();
        let is_over = stream.direction.is_ended();
        self.read(key, &mut stream, brought, is_over, complete);
        if !is_over || !stream.open.is_empty() {
            self.put_back(key, stream, complete);
        }
    }

    fn put_back(&mut self, key: Key, stream: Stream, complete: &mut Vec<Message>) {
        self.bytes += stream.bytes();
        self.streams.insert(key, stream);
        if self.bytes > BYTES_MAX {
            self.forget(key, complete);
        }
    }

    /// Forgets the direction that was not used for the longest, if there are too many.
    fn make_room(&mut self, complete: &mut Vec<Message>) {
        if self.streams.len() < DIRECTIONS_MAX {
            return;
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.turn);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.forget(key, complete);
        }
    }

    fn forget(&mut self, key: Key, complete: &mut Vec<Message>) {
        self.losses.forgotten += u64::from(self.finish(key, complete));
    }

    /// Reads what is left of a direction, and removes it; whether it was known.
    fn finish(&mut self, key: Key, complete: &mut Vec<Message>) -> bool {
        self.close(key, complete) && self.streams.remove(&key).is_some()
    }

    /// Reads what is left of a direction; its requests stay for their answers. Whether it was known.
    fn close(&mut self, key: Key, complete: &mut Vec<Message>) -> bool {
        let Some(mut stream) = self.streams.remove(&key) else {
            return false;
        };
        self.bytes -= stream.bytes();
        let brought = stream.direction.flush();
        self.read(key, &mut stream, brought, true, complete);
        self.bytes += stream.bytes();
        self.streams.insert(key, stream);
        true
    }

    /// Reads the messages in the next bytes of a direction, which is not among the streams meanwhile.
    fn read(
        &mut self,
        key: Key,
        stream: &mut Stream,
        brought: Vec<Brought>,
        is_over: bool,
        complete: &mut Vec<Message>,
    ) {
        let Stream {
            parser,
            open,
            is_other,
            ..
        } = stream;
        let mut none = VecDeque::new();
        let peer = self.streams.get_mut(&(key.1, key.0));
        let asked = peer.map_or(&mut none, |peer| &mut peer.open);
        for one in brought {
            let taken = match one {
                Brought::Gap(at_ns, missing_bytes) => {
                    self.losses.gaps += 1;
                    self.losses.incomplete_messages += u64::from(parser.skip());
                    doubt(asked);
                    complete.push(gap(key, at_ns, missing_bytes));
                    Ok(())
                }
                Brought::Bytes(at_ns, bytes) => parser.take(at_ns, &bytes, asked, |one| {
                    complete.push(message(key, one, open));
                }),
            };
            match taken {
                Ok(()) => {}
                Err(Refused::Broken) => self.losses.broken_messages += 1,
                Err(Refused::Other) => {
                    self.losses.other_connections += u64::from(!*is_other);
                    *is_other = true;
                }
            }
        }
        if is_over {
            let is_cut = parser.end(asked, |one| complete.push(message(key, one, open)));
            self.losses.incomplete_messages += u64::from(is_cut);
        }
    }
}

/// Bytes of answers are missing: the answers to all of these requests but the last may be among them.
fn doubt(asked: &mut VecDeque<Asked>) {
    asked.drain(..asked.len().saturating_sub(1));
    if let Some(last) = asked.front_mut() {
        last.may_be_answered = true;
    }
}

fn gap((from, to): Key, at_ns: u64, missing_bytes: u64) -> Message {
    Message {
        at_ns,
        from,
        to,
        carrier: Carrier::Gap { missing_bytes },
        content_type: String::new(),
        coding: String::new(),
        body: Vec::new(),
        arrival: Duration::ZERO,
    }
}

/// A message of HTTP, with the time since its request; a request is added to those that are open.
fn message((from, to): Key, one: HttpMessage, open: &mut VecDeque<Asked>) -> Message {
    let carrier = match one.start {
        Start::Request { method, target } => {
            // Clients send one at a time: an answer of which a part is missing was before this request.
            if open.back().is_some_and(|last| last.may_be_answered) {
                open.pop_back();
            }
            if open.len() == OPEN_REQUESTS_MAX {
                open.pop_front();
            }
            open.push_back(Asked {
                at_ns: one.ended_ns,
                is_head: method == "HEAD",
                may_be_answered: false,
            });
            Carrier::Request { method, target }
        }
        Start::Answer { status } => {
            let after = one.asked_ns.map(|asked| one.began_ns.saturating_sub(asked));
            Carrier::Answer {
                status,
                after: after.map(Duration::from_nanos),
            }
        }
    };
    Message {
        at_ns: one.began_ns,
        from,
        to,
        carrier,
        content_type: one.content_type,
        coding: one.coding,
        body: one.body,
        arrival: Duration::from_nanos(one.ended_ns.saturating_sub(one.began_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Link;

    const ACK: u8 = 0x10;
    const FIN: u8 = 0x11;
    const SYN: u8 = 0x02;

    /// A connection whose packets a test writes.
    struct Connection {
        /// The next numbers of the client and of the server.
        next: [u32; 2],
        packets: Vec<Vec<u8>>,
    }

    impl Connection {
        fn new() -> Self {
            let mut connection = Self {
                next: [1_000, 5_000],
                packets: Vec::new(),
            };
            connection.packet(0, 999, SYN, "");
            connection.packet(1, 4_999, SYN | ACK, "");
            connection
        }

        fn packet(&mut self, side: usize, sequence: u32, flags: u8, text: &str) {
            let (from, to) = (side as u8 + 1, 2 - side as u8);
            let ports = [[0x9c, 0x40], [0, 80]];
            let mut packet = vec![0x45, 0];
            packet.extend(u16::try_from(40 + text.len()).unwrap().to_be_bytes());
            packet.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
            packet.extend([ports[side], ports[1 - side]].concat());
            packet.extend(sequence.to_be_bytes());
            packet.extend(self.next[1 - side].to_be_bytes());
            packet.extend([0x50, flags, 255, 255, 0, 0, 0, 0]);
            packet.extend(text.as_bytes());
            self.packets.push(packet);
        }

        fn send(&mut self, side: usize, text: &str) {
            self.packet(side, self.next[side], ACK, text);
            self.next[side] += u32::try_from(text.len()).unwrap();
        }

        fn finish(&mut self) {
            for side in [0, 1] {
                self.packet(side, self.next[side], FIN, "");
                self.next[side] += 1;
            }
            self.packet(0, self.next[0], ACK, "");
        }

        /// One word for each message, in order.
        fn read(&self) -> (Vec<String>, Losses) {
            let mut conversations = Conversations::new();
            let mut messages = Vec::new();
            for (index, bytes) in self.packets.iter().enumerate() {
                let frame = Frame {
                    at_ns: index as u64,
                    link: Link::Ip,
                    bytes: bytes.clone(),
                    is_cut: false,
                };
                conversations.take(&frame, |message| messages.push(message));
            }
            conversations.end(|message| messages.push(message));
            assert_eq!(conversations.bytes(), 0);
            let words = messages.iter().map(|message| match &message.carrier {
                Carrier::Datagram => "datagram".to_owned(),
                Carrier::Request { target, .. } => target.clone(),
                Carrier::Answer { after, .. } => {
                    let body = String::from_utf8_lossy(&message.body);
                    format!(
                        "{body} {}",
                        after.map_or(-1, |after| after.as_nanos() as i64)
                    )
                }
                Carrier::Gap { missing_bytes } => format!("gap {missing_bytes}"),
            });
            (words.collect(), conversations.losses())
        }
    }

    fn request(number: usize) -> String {
        format!("POST {number} HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi")
    }

    fn answer(number: usize) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{number:02}")
    }

    fn conversation() -> Connection {
        let mut connection = Connection::new();
        for number in 0..4 {
            connection.send(0, &request(number));
            connection.send(1, &answer(number));
        }
        connection.finish();
        connection
    }

    #[test]
    fn a_lost_packet_hides_only_its_message_and_is_a_gap() {
        let whole = ["0", "00 1", "1", "01 1", "2", "02 1", "3", "03 1"];
        assert_eq!(
            conversation().read(),
            (whole.map(str::to_owned).to_vec(), Losses::default())
        );
        let gaps = [request(0).len(), answer(0).len()];
        // The packets of the first request to the last answer.
        for lost in 0..8 {
            let mut connection = conversation();
            connection.packets.remove(2 + lost);
            let (words, losses) = connection.read();
            let gap = format!("gap {}", gaps[lost % 2]);
            assert_eq!(
                words.iter().filter(|word| **word == gap).count(),
                1,
                "{words:?}"
            );
            assert_eq!((words.len(), losses.gaps), (8, 1), "{words:?}");
            let is_known = |word: &&String| whole.contains(&word.as_str());
            // The answer to a lost request is known, but not its time.
            assert_eq!(
                words.iter().filter(is_known).count(),
                7 - (lost + 1) % 2,
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_capture_may_end_anywhere() {
        let mut connection = Connection::new();
        connection.send(0, &request(0));
        connection.send(1, "HTTP/1.0 200 OK\r\n\r\nrest");
        assert_eq!(connection.read().0, ["0", "rest 1"]);
        let mut connection = conversation();
        connection.packets.truncate(8);
        let last = connection.packets.last_mut().unwrap();
        last.truncate(last.len() - 1);
        assert_eq!(connection.read().1.incomplete_messages, 1);
    }

    #[test]
    fn a_fin_before_the_last_bytes_waits_for_them() {
        let mut connection = Connection::new();
        connection.send(0, &request(0));
        let answer = answer(0);
        let (head, tail) = answer.split_at(10);
        connection.send(1, head);
        let end = connection.next[1] + u32::try_from(tail.len()).unwrap();
        connection.packet(1, end, FIN, "");
        connection.send(1, tail);
        let words = vec!["0".to_owned(), "00 1".to_owned()];
        assert_eq!(connection.read(), (words, Losses::default()));
    }

    #[test]
    fn a_syn_seen_again_changes_nothing_and_a_new_one_begins_again() {
        let mut connection = conversation();
        let again = connection.packets[0].clone();
        connection.packets.insert(5, again);
        assert_eq!(connection.read().0.len(), 8);
        let mut connection = conversation();
        connection.packets.truncate(9);
        connection.next = [90_000, 70_000];
        connection.packet(0, 89_999, SYN, "");
        connection.packet(1, 69_999, SYN | ACK, "");
        connection.send(0, &request(7));
        connection.send(1, &answer(7));
        let (words, losses) = connection.read();
        assert_eq!(words[7..], ["7", "07 1"]);
        assert_eq!(losses, Losses::default());
    }

    #[test]
    fn an_answer_to_head_hides_nothing() {
        let mut connection = Connection::new();
        connection.send(0, "HEAD head HTTP/1.1\r\n\r\n");
        connection.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n");
        connection.send(0, &request(1));
        connection.send(1, &answer(1));
        assert_eq!(connection.read().0, ["head", " 1", "1", "01 1"]);
    }
}
