//! Commands and the properties of a peer (37/ZMTP, sections The NULL Security Mechanism, Connection
//! Metadata, Connection Heartbeating).

use bytes::{BufMut as _, Bytes};

use crate::config::Config;
use crate::error::{Error, printable};
use crate::socket_type::SocketType;

/// The longest context of a PING (37/ZMTP, section Connection Heartbeating).
pub(crate) const PING_CONTEXT_BYTES_MAX: usize = 16;
/// The longest identity (37/ZMTP, section The Identity Property).
pub(crate) const IDENTITY_BYTES_MAX: usize = 255;

/// Splits a command into name and data.
pub(crate) fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = body.split_first()?;
    let size = usize::from(*size);
    (size > 0 && size <= rest.len()).then(|| rest.split_at(size))
}

/// The body of a command.
pub(crate) fn body(name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(1 + name.len() + data.len());
    // Names are constants of at most nine letters.
    body.push(name.len() as u8);
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(data);
    body
}

/// The body of an ERROR command.
pub(crate) fn error_body(reason: &str) -> Vec<u8> {
    let reason = &reason.as_bytes()[..reason.len().min(255)];
    let mut data = vec![reason.len() as u8];
    data.extend_from_slice(reason);
    body("ERROR", &data)
}

/// The reason in an ERROR command.
pub(crate) fn error_reason(data: &[u8]) -> String {
    let reason = data.split_first().map_or(&[][..], |(size, rest)| {
        &rest[..rest.len().min(usize::from(*size))]
    });
    printable(reason)
}

/// The properties of this end.
pub(crate) fn properties(config: &Config) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |name: &str, value: &[u8]| {
        out.put_u8(name.len() as u8);
        out.put_slice(name.as_bytes());
        // Bounded by IDENTITY_BYTES_MAX.
        out.put_u32(value.len() as u32);
        out.put_slice(value);
    };
    put("Socket-Type", config.socket_type.name().as_bytes());
    if !config.identity.is_empty() {
        put("Identity", identity(config));
    }
    out
}

/// The identity of this end.
pub(crate) fn identity(config: &Config) -> &[u8] {
    &config.identity[..config.identity.len().min(IDENTITY_BYTES_MAX)]
}

/// The properties of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) socket_type: SocketType,
    pub(crate) identity: Bytes,
}

impl Properties {
    /// Reads a peer's properties. Ignores unknown ones.
    pub(crate) fn read(mut bytes: &[u8], ours: SocketType, offset: u64) -> Result<Self, Error> {
        let protocol = |what| Error::Protocol { what, offset };
        let (mut kind, mut identity) = (None, None);
        while let Some((size, rest)) = bytes.split_first() {
            let size = usize::from(*size);
            if size == 0 {
                return Err(protocol("a property has no name"));
            }
            let (name, rest) = rest
                .split_at_checked(size)
                .ok_or_else(|| protocol("a property's name is truncated"))?;
            let (value_size, rest) = rest
                .split_first_chunk::<4>()
                .ok_or_else(|| protocol("a property's size is truncated"))?;
            let (value, rest) = usize::try_from(u32::from_be_bytes(*value_size))
                .ok()
                .and_then(|size| rest.split_at_checked(size))
                .ok_or_else(|| protocol("a property's value is truncated"))?;
            bytes = rest;
            let slot = if name.eq_ignore_ascii_case(b"Socket-Type") {
                &mut kind
            } else if name.eq_ignore_ascii_case(b"Identity") {
                &mut identity
            } else {
                continue;
            };
            if slot.replace(value).is_some() {
                return Err(protocol("a property is repeated"));
            }
        }
        let kind = kind.ok_or_else(|| protocol("the properties contain no socket type"))?;
        let socket_type = SocketType::from_name(kind)
            .filter(|theirs| ours.is_compatible_with(*theirs))
            .ok_or_else(|| Error::SocketTypes {
                ours: ours.name(),
                theirs: printable(kind),
            })?;
        let identity = identity.unwrap_or_default();
        if identity.len() > IDENTITY_BYTES_MAX {
            return Err(protocol("an identity has more than 255 bytes"));
        }
        Ok(Self {
            socket_type,
            identity: Bytes::copy_from_slice(identity),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mechanism;

    #[test]
    fn properties_round_trip_and_unknown_ones_are_ignored() {
        let mut config = Config::new(SocketType::Dealer, Mechanism::Null);
        config.identity = Bytes::from_static(b"node 7");
        let mut bytes = b"\x08X-Device\0\0\0\x01z".to_vec();
        bytes.extend(properties(&config));
        let read = Properties::read(&bytes, SocketType::Router, 0).unwrap();
        assert_eq!(read.socket_type, SocketType::Dealer);
        assert_eq!(read.identity, "node 7");
        for end in 0..bytes.len() {
            // A truncation is detected, unless it falls between two properties: then the type is
            // missing, or only the identity.
            let cut = Properties::read(&bytes[..end], SocketType::Router, 0);
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut.identity.is_empty()));
        }
        let refused = Properties::read(&bytes, SocketType::Sub, 0).unwrap_err();
        assert!(matches!(refused, Error::SocketTypes { .. }));
        let twice = [bytes.clone(), bytes].concat();
        assert!(Properties::read(&twice, SocketType::Router, 0).is_err());
    }

    #[test]
    fn truncated_errors_keep_their_reason() {
        let body = error_body("400");
        let (name, data) = split(&body).unwrap();
        assert_eq!((name, error_reason(data).as_str()), (&b"ERROR"[..], "400"));
        assert_eq!(error_reason(&[200, b'a', 0]), "a?");
        assert_eq!(error_reason(&[]), "");
        assert_eq!(split(&[]), None);
        assert_eq!(split(&[0, 1]), None);
        assert_eq!(split(&[5, b'P']), None);
    }
}
