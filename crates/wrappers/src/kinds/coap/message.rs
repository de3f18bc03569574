//! Messages of a client: what is sent, and what a response says (RFC 7252, RFC 7641, RFC 7959).

use std::time::Duration;

use coap_lite::{CoapOption, MessageClass, MessageType, Packet, RequestType};

/// Bytes of a token; reason: the most that there may be, so that a stranger cannot guess one (RFC 7252, section 5.3.1).
pub(super) const TOKEN_BYTES: usize = 8;
/// How long a representation is fresh that does not say it (RFC 7252, section 5.10.5).
const MAX_AGE_DEFAULT: Duration = Duration::from_secs(60);
/// Critical options that a response may have here; any other refuses it (RFC 7252, section 5.4.1).
const BLOCK2: u16 = 23;
/// The value of the option Observe that registers (RFC 7641, section 2).
const REGISTER: u32 = 0;

/// A token.
pub(super) type Token = [u8; TOKEN_BYTES];

/// A resource of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// The host, if it is a name.
    pub host: Option<String>,
    /// The segments of its path.
    pub path: Vec<String>,
    /// The parts of its query.
    pub query: Vec<String>,
    /// The content format that is asked for.
    pub accept: Option<u16>,
}

/// A block: its number, whether more follow, and the exponent of its size (RFC 7959, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) number: u32,
    pub(super) has_more: bool,
    pub(super) exponent: u8,
}

impl Block {
    /// Bytes of a whole block.
    pub(super) fn size(self) -> usize {
        1 << (self.exponent + 4)
    }

    fn read(value: &[u8]) -> Result<Self, &'static str> {
        let number = whole(value).filter(|_| value.len() <= 3);
        let number = number.ok_or("the option Block2 is too long")?;
        let exponent = (number & 7) as u8;
        if exponent == 7 {
            return Err("the option Block2 has a reserved size");
        }
        Ok(Self {
            number: number >> 4,
            has_more: number & 8 != 0,
            exponent,
        })
    }

    fn bytes(self) -> Vec<u8> {
        let more = if self.has_more { 8 } else { 0 };
        bytes(self.number << 4 | more | u32::from(self.exponent))
    }
}

/// The number of an option (RFC 7252, section 3.2).
fn whole(value: &[u8]) -> Option<u32> {
    let join = |number, byte: &u8| number << 8 | u32::from(*byte);
    (value.len() <= 4).then(|| value.iter().fold(0, join))
}

fn bytes(number: u32) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let start = bytes.iter().position(|byte| *byte != 0);
    bytes[start.unwrap_or(bytes.len())..].to_vec()
}

/// A request, confirmable: it registers, or it asks for a block.
pub(super) fn get(id: u16, token: &Token, target: &Target, block: Option<Block>) -> Vec<u8> {
    let mut packet = Packet::new();
    packet.header.code = MessageClass::Request(RequestType::Get);
    packet.header.set_type(MessageType::Confirmable);
    packet.header.message_id = id;
    packet.set_token(token.to_vec());
    if let Some(host) = &target.host {
        packet.add_option(CoapOption::UriHost, host.as_bytes().to_vec());
    }
    for segment in &target.path {
        packet.add_option(CoapOption::UriPath, segment.as_bytes().to_vec());
    }
    for part in &target.query {
        packet.add_option(CoapOption::UriQuery, part.as_bytes().to_vec());
    }
    if let Some(accept) = target.accept {
        packet.add_option(CoapOption::Accept, bytes(u32::from(accept)));
    }
    match block {
        Some(block) => packet.add_option(CoapOption::Block2, block.bytes()),
        None => packet.add_option(CoapOption::Observe, bytes(REGISTER)),
    }
    // The options of a file are far below the limits of the format.
    packet.to_bytes_unlimited().unwrap_or_default()
}

/// An acknowledgement or a reset.
pub(super) fn empty(message_type: MessageType, id: u16) -> Vec<u8> {
    let mut packet = Packet::new();
    packet.header.code = MessageClass::Empty;
    packet.header.set_type(message_type);
    packet.header.message_id = id;
    packet.to_bytes_unlimited().unwrap_or_default()
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Received {
    pub(super) message_type: MessageType,
    pub(super) id: u16,
    pub(super) class: MessageClass,
    pub(super) token: Vec<u8>,
    /// The response, or why it is none.
    pub(super) response: Result<Response, &'static str>,
}

/// What a response says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Response {
    pub(super) observe: Option<u32>,
    pub(super) etag: Option<Vec<u8>>,
    pub(super) content_format: Option<u16>,
    pub(super) max_age: Duration,
    pub(super) block: Option<Block>,
    pub(super) payload: Vec<u8>,
}

/// Reads a datagram; `None` if it is no message of CoAP.
pub(super) fn read(datagram: &[u8]) -> Option<Received> {
    let packet = Packet::from_bytes(datagram).ok()?;
    if packet.header.get_version() != 1 {
        return None;
    }
    Some(Received {
        message_type: packet.header.get_type(),
        id: packet.header.message_id,
        class: packet.header.code,
        token: packet.get_token().to_vec(),
        response: response(&packet),
    })
}

fn response(packet: &Packet) -> Result<Response, &'static str> {
    let is_unknown = |number: u16| number % 2 == 1 && number != BLOCK2;
    if packet.options().any(|(number, _)| is_unknown(*number)) {
        return Err("the response has a critical option that is not known");
    }
    let first = |option| packet.get_first_option(option);
    let number = |option| match first(option) {
        None => Ok(None),
        Some(value) => whole(value).map(Some).ok_or("an option is too long"),
    };
    let content_format = number(CoapOption::ContentFormat)?;
    let max_age = number(CoapOption::MaxAge)?.map(|seconds| Duration::from_secs(seconds.into()));
    Ok(Response {
        observe: number(CoapOption::Observe)?.map(|number| number & 0xff_ffff),
        etag: first(CoapOption::ETag).cloned(),
        content_format: content_format.and_then(|number| u16::try_from(number).ok()),
        max_age: max_age.unwrap_or(MAX_AGE_DEFAULT),
        block: first(CoapOption::Block2)
            .map(|value| Block::read(value))
            .transpose()?,
        payload: packet.payload.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_has_the_options_of_its_target() {
        let target = Target {
            host: Some("sensor".to_owned()),
            path: vec!["a".to_owned(), "b c".to_owned()],
            query: vec!["u=C".to_owned()],
            accept: Some(50),
        };
        let block = Block {
            number: 4_200,
            has_more: false,
            exponent: 6,
        };
        for block in [None, Some(block)] {
            let packet = Packet::from_bytes(&get(7, b"12345678", &target, block)).unwrap();
            let paths = packet.get_option(CoapOption::UriPath).unwrap();
            assert_eq!(
                paths.iter().cloned().collect::<Vec<_>>(),
                [b"a".to_vec(), b"b c".to_vec()]
            );
            let found = packet.get_first_option(CoapOption::Block2);
            assert_eq!(found.map(|value| Block::read(value)), block.map(Ok));
            let observe = packet.get_first_option(CoapOption::Observe);
            assert_eq!(observe.is_some(), block.is_none());
        }
    }

    proptest! {
        #[test]
        fn blocks_survive(number in 0..1_u32 << 20, has_more: bool, exponent in 0..7_u8) {
            let block = Block { number, has_more, exponent };
            prop_assert_eq!(Block::read(&block.bytes()), Ok(block));
        }

        #[test]
        fn no_datagram_is_a_panic(datagram in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&datagram);
            // A header of a response, so that options are read too.
            let _ = read(&[&[0x51, 0x45, 0, 1, 9], &datagram[..]].concat());
        }
    }
}
