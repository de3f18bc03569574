//! The protocol of mosquitto: MQTT 3.1.1, QoS 1 in both directions, a persistent session. Packets
//! that arrive together are acknowledged together.

use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::oneshot;

use super::broker::{Client, Protocol, Traffic};
use super::latency::Latencies;
use super::message::Role;
use super::station::Due;
use super::tally::Received;
use crate::Error;

/// The broker's address, within the namespace of the run.
pub(crate) const ADDRESS: &str = "127.0.77.200:1883";

const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH_QOS_1: u8 = 0x32;
const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;

/// A client's side of the protocol.
pub(crate) struct Mqtt {
    index: usize,
    subscribed: Option<oneshot::Receiver<()>>,
    packet: u16,
}

/// Connects to the broker.
pub(crate) async fn connect(role: &Role, latencies: Latencies) -> Result<Client<Mqtt>, Error> {
    let (traffic, mut read) = Traffic::connect(ADDRESS, role, latencies).await?;
    let mut body = Vec::new();
    text(&mut body, "MQTT");
    // Version 3.1.1, a persistent session, no keep-alive.
    body.extend([4, 0, 0, 0]);
    text(&mut body, &format!("node-{:02}", role.index));
    traffic.send(packet(CONNECT, &body));
    let (kind, answer) = next(&mut read, &mut Vec::new()).await?;
    if kind & 0xf0 != CONNACK || answer.get(1) != Some(&0) {
        return Err(Error::Failed("mosquitto refuses the connection".to_owned()));
    }
    let (answered, subscribed) = oneshot::channel();
    let reading = Reading {
        traffic: traffic.clone(),
        subscribed: Some(answered),
    };
    tokio::spawn(reading.run(read));
    let protocol = Mqtt {
        index: role.index,
        subscribed: Some(subscribed),
        packet: 0,
    };
    Ok(Client { traffic, protocol })
}

struct Reading {
    traffic: Traffic,
    subscribed: Option<oneshot::Sender<()>>,
}

impl Reading {
    async fn run(mut self, mut read: OwnedReadHalf) {
        let mut buffer = Vec::new();
        let mut acknowledgements = Vec::new();
        while let Ok((kind, body)) = next(&mut read, &mut buffer).await {
            match kind & 0xf0 {
                0x30 => {
                    if let Some(identifier) = self.publication(&body) {
                        acknowledgements.extend(packet(PUBACK, &identifier));
                    }
                }
                PUBACK => self.traffic.accept(),
                SUBACK => {
                    if let Some(subscribed) = self.subscribed.take() {
                        let _ = subscribed.send(());
                    }
                }
                _ => {}
            }
            if !acknowledgements.is_empty() && !holds_packet(&buffer) {
                self.traffic.send(std::mem::take(&mut acknowledgements));
            }
        }
    }

    /// Takes an element and returns the identifier to acknowledge.
    fn publication(&self, body: &[u8]) -> Option<[u8; 2]> {
        let length = usize::from(u16::from_be_bytes(body.get(..2)?.try_into().ok()?));
        let topic = std::str::from_utf8(body.get(2..2 + length)?).ok()?;
        let identifier = body.get(2 + length..4 + length)?.try_into().ok()?;
        let index = topic.strip_prefix("s/")?.parse().ok()?;
        self.traffic.received.take(index, &body[4 + length..]);
        Some(identifier)
    }
}

/// The next packet: its first byte, and the bytes after its length. Bytes after the packet stay in
/// `buffer`.
async fn next(read: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> Result<(u8, Vec<u8>), Error> {
    loop {
        if let Some((head, length)) = head(buffer)
            && buffer.len() >= head + length
        {
            let (kind, body) = (buffer[0], buffer[head..head + length].to_vec());
            buffer.drain(..head + length);
            return Ok((kind, body));
        }
        let count = read.read_buf(buffer).await;
        if count.map_err(Error::io("reading from mosquitto"))? == 0 {
            return Err(Error::Failed(
                "mosquitto has closed the connection".to_owned(),
            ));
        }
    }
}

fn holds_packet(buffer: &[u8]) -> bool {
    head(buffer).is_some_and(|(head, length)| buffer.len() >= head + length)
}

/// Length of the fixed header, and of the rest.
pub(crate) fn head(buffer: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for place in 0..4 {
        let byte = usize::from(*buffer.get(1 + place)?);
        length |= (byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((2 + place, length));
        }
    }
    None
}

/// A packet of a kind, with its flags.
pub(crate) fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![kind];
    let mut length = body.len();
    loop {
        let more = length >= 0x80;
        packet.push((length & 0x7f) as u8 | if more { 0x80 } else { 0 });
        length >>= 7;
        if !more {
            break;
        }
    }
    packet.extend(body);
    packet
}

/// Appends a text with its length.
pub(crate) fn text(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as u16).to_be_bytes());
    body.extend(text.as_bytes());
}

impl Protocol for Mqtt {
    async fn subscribe(&mut self, traffic: &Traffic) -> Result<(), Error> {
        let mut body = vec![0, 1];
        text(&mut body, "s/+");
        body.push(1);
        traffic.send(packet(SUBSCRIBE, &body));
        match self.subscribed.take() {
            Some(subscribed) => subscribed
                .await
                .map_err(Error::failed("subscribing at mosquitto")),
            None => Ok(()),
        }
    }

    fn publish(&mut self, due: Due, out: &mut Vec<u8>) {
        self.packet = self.packet % u16::MAX + 1;
        let mut body = Vec::new();
        text(&mut body, &format!("s/{:02}", self.index));
        body.extend(self.packet.to_be_bytes());
        body.extend(Received::encode(due));
        out.extend(packet(PUBLISH_QOS_1, &body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
            let packet = packet(PUBACK, &vec![7; length]);
            assert_eq!(head(&packet), Some((packet.len() - length, length)));
            assert!(holds_packet(&packet) && !holds_packet(&packet[..packet.len() - 1]));
        }
    }
}
