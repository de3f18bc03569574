//! Discovery of services: the announcement of a device, and the keys under which it is found.
//!
//! A device publishes one [`Announcement`] under the hashes of its endpoint address, of each of its
//! types and of each of its scopes. A searcher looks up the key of one of them, the rarest it
//! knows, and checks the others in each announcement itself. Devices do not answer searches: the
//! nodes that store records do.
//!
//! Types are `{namespace}name`, scopes and addresses are URIs. All are compared byte by byte,
//! without interpretation.

use crate::{Key, VALUE_BYTES_MAX};

/// Maximum number of texts in an announcement.
pub const TEXTS_MAX: usize = 64;
/// The first byte of an announcement: its version. Version 1 had no port.
const FORM: u8 = 2;

/// The announcement of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Announcement {
    /// The address of its endpoint reference, which outlives its network addresses.
    pub endpoint: String,
    /// Rises when the device's metadata changes.
    pub metadata_version: u32,
    /// The device's types, each as `{namespace}name`.
    pub types: Vec<String>,
    /// The device's scopes.
    pub scopes: Vec<String>,
    /// The device's transport addresses.
    pub addresses: Vec<String>,
    /// The UDP port of the publishing node, at the host of those addresses that are its own; 0:
    /// unknown. Anybody can announce any address, so a searcher first asks there whether the
    /// publisher is present.
    pub port: u16,
}

/// The key of the device with this endpoint address.
#[must_use]
pub fn endpoint_key(endpoint: &str) -> Key {
    Key::derive("chappe kad endpoint 1", &[endpoint.as_bytes()])
}

/// The key of all devices of a type.
#[must_use]
pub fn type_key(of: &str) -> Key {
    Key::derive("chappe kad type 1", &[of.as_bytes()])
}

/// The key of all devices in a scope.
#[must_use]
pub fn scope_key(scope: &str) -> Key {
    Key::derive("chappe kad scope 1", &[scope.as_bytes()])
}

/// The key of all devices.
#[must_use]
pub fn device_key() -> Key {
    Key::derive("chappe kad device 1", &[])
}

impl Announcement {
    /// The keys under which it is found.
    ///
    /// ```
    /// use chappe_kad::service::{Announcement, type_key};
    /// let device = Announcement {
    ///     endpoint: "urn:uuid:6d0cbb46-5b62-4c1b-8d0d-3a5e8a3d8d5c".into(),
    ///     types: vec!["{http://example.org}Thermometer".into()],
    ///     ..Announcement::default()
    /// };
    /// assert!(device.keys().contains(&type_key("{http://example.org}Thermometer")));
    /// let bytes = device.to_bytes().expect("it fits a record");
    /// assert_eq!(Announcement::from_bytes(&bytes), Some(device));
    /// ```
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = vec![endpoint_key(&self.endpoint), device_key()];
        keys.extend(self.types.iter().map(|of| type_key(of)));
        keys.extend(self.scopes.iter().map(|scope| scope_key(scope)));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The value of its records; `None` if it does not fit. Then leave out the least important
    /// parts: a searcher that found the device gets the rest from the device.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let lists = [&self.types, &self.scopes, &self.addresses];
        let mut bytes = vec![FORM];
        bytes.extend_from_slice(&self.metadata_version.to_be_bytes());
        bytes.extend_from_slice(&self.port.to_be_bytes());
        write_text(&mut bytes, &self.endpoint)?;
        if lists.iter().map(|list| list.len()).sum::<usize>() > TEXTS_MAX {
            return None;
        }
        for list in lists {
            // 64 at most.
            bytes.push(list.len() as u8);
            for text in list {
                write_text(&mut bytes, text)?;
            }
        }
        (bytes.len() <= VALUE_BYTES_MAX).then_some(bytes)
    }

    /// Reads a record's value.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        if take(&mut rest, 1)? != [FORM] {
            return None;
        }
        let metadata_version = u32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let port = u16::from_be_bytes(take(&mut rest, 2)?.try_into().ok()?);
        let endpoint = read_text(&mut rest)?;
        let mut lists = [Vec::new(), Vec::new(), Vec::new()];
        let mut texts = 0;
        for list in &mut lists {
            let [count] = take(&mut rest, 1)?.try_into().ok()?;
            texts += usize::from(count);
            if texts > TEXTS_MAX {
                return None;
            }
            for _ in 0..count {
                list.push(read_text(&mut rest)?);
            }
        }
        let [types, scopes, addresses] = lists;
        rest.is_empty().then_some(Self {
            endpoint,
            metadata_version,
            types,
            scopes,
            addresses,
            port,
        })
    }
}

fn write_text(to: &mut Vec<u8>, text: &str) -> Option<()> {
    to.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
    to.extend_from_slice(text.as_bytes());
    Some(())
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn read_text(rest: &mut &[u8]) -> Option<String> {
    let length = u16::from_be_bytes(take(rest, 2)?.try_into().ok()?);
    let text = take(rest, usize::from(length))?;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_a_record_is_not_written() {
        let long = Announcement {
            scopes: vec!["x".repeat(VALUE_BYTES_MAX)],
            ..Announcement::default()
        };
        assert_eq!(long.to_bytes(), None);
        let many = Announcement {
            types: vec![String::new(); TEXTS_MAX + 1],
            ..Announcement::default()
        };
        assert_eq!(many.to_bytes(), None);
    }

    #[test]
    fn a_type_is_no_scope_of_the_same_text() {
        assert_ne!(type_key("x"), scope_key("x"));
        assert_ne!(endpoint_key("x"), scope_key("x"));
    }

    proptest::proptest! {
        #[test]
        fn decoding_gives_what_was_encoded(
            endpoint in ".{0,40}", version: u32, port: u16,
            types in proptest::collection::vec(".{0,20}", 0..5),
            scopes in proptest::collection::vec(".{0,20}", 0..5),
        ) {
            let addresses = vec![endpoint.clone()];
            let metadata_version = version;
            let device = Announcement {
                endpoint, metadata_version, types, scopes, addresses, port,
            };
            if let Some(bytes) = device.to_bytes() {
                proptest::prop_assert_eq!(Announcement::from_bytes(&bytes), Some(device));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            if let Some(device) = Announcement::from_bytes(&bytes) {
                proptest::prop_assert_eq!(device.to_bytes(), Some(bytes));
            }
        }
    }
}
