//! The greeting: 64 bytes with version and mechanism (37/ZMTP, sections Formal Grammar and Version Negotiation).
//!
//! A peer of version 2.0 (15/ZMTP) is accepted only by a connection that allows it, because that version has no
//! security mechanism. Older greetings are recognized and refused.

use crate::config::Mechanism;
use crate::error::Error;

/// The size of a greeting.
pub(crate) const GREETING_BYTES: usize = 64;
/// Signature and version: what both ends must know before either can choose the rest.
pub(crate) const VERSION_BYTES: usize = 11;
/// The greeting of version 2.0 before the identity: signature, version and socket type.
pub(crate) const VERSION_2_BYTES: usize = 12;
const MECHANISM_AT: usize = 12;
const MECHANISM_BYTES: usize = 20;
const AS_SERVER_AT: usize = 32;

/// The greeting of this end.
pub(crate) fn write(mechanism: &Mechanism) -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xFF;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[11] = 1;
    let name = mechanism.name().as_bytes();
    greeting[MECHANISM_AT..MECHANISM_AT + name.len()].copy_from_slice(name);
    greeting[AS_SERVER_AT] = u8::from(mechanism.is_server());
    greeting
}

/// The version of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// 2.0 or 2.1, which differ in nothing that is used here.
    Two,
    /// 3.0 or later.
    Three,
}

/// Reads a peer's version, once its bytes are available.
pub(crate) fn read_version(bytes: &[u8]) -> Result<Option<Version>, Error> {
    let version = |what| Err(Error::Version { what });
    match bytes.first() {
        None | Some(0xFF) => {}
        Some(_) => return version("the first byte is not the start of a signature"),
    }
    // ZMTP 1.0 has a length here, whose last byte is odd, too, if it announces an identity.
    match bytes.get(9) {
        None | Some(0x7F) => {}
        Some(_) => return version("the last byte of the signature is wrong"),
    }
    match bytes.get(10) {
        None => Ok(None),
        Some(0) => version("its version is 1"),
        Some(1 | 2) => Ok(Some(Version::Two)),
        Some(3..) => Ok(Some(Version::Three)),
    }
}

/// Checks the available bytes of a peer's greeting. Returns its minor version once all have arrived.
pub(crate) fn read(bytes: &[u8], ours: &Mechanism) -> Result<Option<u8>, Error> {
    if read_version(bytes)? == Some(Version::Two) {
        let what = "its version is 2";
        return Err(Error::Version { what });
    }
    let Some(greeting) = bytes.first_chunk::<GREETING_BYTES>() else {
        return Ok(None);
    };
    let theirs = &greeting[MECHANISM_AT..MECHANISM_AT + MECHANISM_BYTES];
    let end = theirs.iter().position(|byte| *byte == 0);
    let (theirs, padding) = theirs.split_at(end.unwrap_or(MECHANISM_BYTES));
    if theirs != ours.name().as_bytes() || padding.iter().any(|byte| *byte != 0) {
        return Err(Error::Mechanism {
            ours: ours.name(),
            theirs: crate::error::printable(theirs),
        });
    }
    let server = match greeting[AS_SERVER_AT] {
        0 => false,
        1 => true,
        _ => {
            return Err(Error::Protocol {
                what: "as-server is neither 0 nor 1",
                offset: AS_SERVER_AT as u64,
            });
        }
    };
    // A zero proves no client: libzmq sends it as a server, too. Two clients fail in the handshake.
    if server && ours.is_server() {
        return Err(Error::Role);
    }
    // A later major version uses 3.1 with this end.
    Ok(Some(if greeting[10] > 3 { 1 } else { greeting[11] }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Allowed, SecretKey};

    #[test]
    fn a_written_greeting_is_read_byte_by_byte() {
        let greeting = write(&Mechanism::Null);
        for end in 0..GREETING_BYTES {
            assert_eq!(read(&greeting[..end], &Mechanism::Null), Ok(None));
        }
        assert_eq!(read(&greeting, &Mechanism::Null), Ok(Some(1)));
    }

    #[test]
    fn other_protocols_are_refused_at_their_first_bytes() {
        let refused =
            |bytes: &[u8]| matches!(read(bytes, &Mechanism::Null), Err(Error::Version { .. }));
        assert!(refused(b"G"));
        assert!(refused(&[0x16, 0x03, 0x01]));
        assert!(refused(&[0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x80]));
        assert!(refused(&[0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 1]));
    }

    #[test]
    fn mechanisms_and_roles_must_match() {
        let server = Mechanism::CurveServer {
            secret: SecretKey([1; 32]),
            allowed: Allowed::Any,
        };
        let client = Mechanism::CurveClient {
            secret: SecretKey([1; 32]),
            server: [2; 32],
        };
        assert_eq!(read(&write(&server), &client), Ok(Some(1)));
        assert_eq!(read(&write(&client), &server), Ok(Some(1)));
        assert_eq!(read(&write(&server), &server), Err(Error::Role));
        assert_eq!(read(&write(&client), &client), Ok(Some(1)));
        let error = read(&write(&Mechanism::Null), &server).unwrap_err();
        assert!(matches!(&error, Error::Mechanism { theirs, .. } if theirs == "NULL"));
        let mut later = write(&Mechanism::Null);
        (later[10], later[11]) = (4, 0);
        assert_eq!(read(&later, &Mechanism::Null), Ok(Some(1)));
        later[32] = 2;
        assert!(matches!(
            read(&later, &Mechanism::Null),
            Err(Error::Protocol { .. })
        ));
    }
}
