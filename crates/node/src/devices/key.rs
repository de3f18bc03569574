//! Keys of devices: their names in the registry, in the catalogue and in the REST API.
//!
//! A device chooses its endpoint address. Its key is that address after a prefix reserved for devices,
//! so an address cannot collide with the key of a stream, a link, another device's service or a
//! published entity. Older logs use the endpoint address itself as key; [`former_key`] recognizes their
//! streams.

use chappe_registry::oxrdf::NamedNode;

/// The prefix of all keys that this program creates.
const RESERVED: &str = "urn:chappe:";
/// The prefix of the keys of devices.
pub(crate) const DEVICE_KEYS: &str = "urn:chappe:device:";
/// The prefix of the keys of their services; the number of the service follows.
const SERVICE_PREFIX: &str = "urn:chappe:service:";
/// Bytes of an encoded endpoint address; reason: the registry accepts keys of 1,024 bytes.
const ENDPOINT_BYTES_MAX: usize = 900;
/// Bytes of an endpoint address that could be a key in older logs.
const FORMER_BYTES_MAX: usize = 1_000;

/// The key of the device with this endpoint address; different addresses have different keys.
pub(crate) fn device_key(endpoint: &str) -> String {
    format!("{DEVICE_KEYS}{}", encoded(endpoint))
}

/// The endpoint address of the device with this key.
pub(super) fn endpoint_of(key: &str) -> Option<String> {
    decoded(key.strip_prefix(DEVICE_KEYS)?)
}

/// The key of a device's service.
pub(super) fn service_key(device: &str, index: usize) -> String {
    let endpoint = device.strip_prefix(DEVICE_KEYS).unwrap_or(device);
    format!("{SERVICE_PREFIX}{}:{endpoint}", index + 1)
}

/// Why a device with this endpoint address is not followed.
pub(super) fn refusal(endpoint: &str) -> Option<String> {
    let start = endpoint.get(..RESERVED.len());
    if start.is_some_and(|start| start.eq_ignore_ascii_case(RESERVED)) {
        return Some(format!(
            "{endpoint:.256}: the prefix {RESERVED} is reserved for Chappe's own keys"
        ));
    }
    let bytes = encoded(endpoint).len();
    (bytes > ENDPOINT_BYTES_MAX).then(|| {
        format!("{endpoint:.64}…: its key has {bytes} bytes, more than {ENDPOINT_BYTES_MAX}")
    })
}

/// Whether a key of a device is short enough.
pub(super) fn fits(key: &str) -> bool {
    key.len() <= DEVICE_KEYS.len() + ENDPOINT_BYTES_MAX
}

/// The owner of this device's streams in older logs, where the endpoint address is the key.
pub(crate) fn former_key(key: &str) -> Option<String> {
    let endpoint = endpoint_of(key)?;
    let was_key = endpoint.len() <= FORMER_BYTES_MAX
        && refusal(&endpoint).is_none()
        && NamedNode::new(endpoint.as_str()).is_ok();
    was_key.then_some(endpoint)
}

/// Percent-encodes `%` and all bytes that are not allowed everywhere in an IRI.
fn encoded(endpoint: &str) -> String {
    let mut text = String::with_capacity(endpoint.len());
    for byte in endpoint.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => text.push(char::from(byte)),
            byte if b"-._~:/?@!$&'()*+,;=".contains(&byte) => text.push(char::from(byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_addresses_have_different_keys_that_the_registry_accepts() {
        let plain = "urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a";
        assert_eq!(device_key(plain), format!("urn:chappe:device:{plain}"));
        let odd = [
            "urn:a b",
            "urn:a%20b",
            "urn:a%2520b",
            "a b",
            "a-b",
            "",
            "ü",
            "urn:a#b#c",
            "http://[::1]/",
            "urn:uuid:1/service/1",
            "\u{e000}<>\"",
        ];
        let mut keys: Vec<String> = odd.iter().map(|endpoint| device_key(endpoint)).collect();
        for (endpoint, key) in odd.iter().zip(&keys) {
            assert!(NamedNode::new(key.as_str()).is_ok(), "{key}");
            assert_eq!(
                decoded(&key[DEVICE_KEYS.len()..]).as_deref(),
                Some(*endpoint)
            );
        }
        keys.extend(
            odd.iter()
                .map(|endpoint| service_key(&device_key(endpoint), 0)),
        );
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 2 * odd.len());
    }

    #[test]
    fn addresses_that_are_keys_or_too_long_for_one_are_refused() {
        for endpoint in [
            "urn:chappe:stream:a",
            "urn:chappe:link:b",
            "URN:Chappe:device:c",
        ] {
            assert!(refusal(endpoint).is_some(), "{endpoint}");
            assert_eq!(former_key(&device_key(endpoint)), None);
        }
        assert!(refusal(&format!("urn:{}", "x".repeat(2_000))).is_some());
        for endpoint in ["urn:uuid:1", "urn:chappé:a", "urn:chapp", ""] {
            assert_eq!(refusal(endpoint), None, "{endpoint}");
        }
        let former = former_key(&device_key("http://a/b%20c"));
        assert_eq!(former.as_deref(), Some("http://a/b%20c"));
        assert_eq!(
            former_key(&device_key("sensor-name")),
            None,
            "no absolute IRI"
        );
    }
}
