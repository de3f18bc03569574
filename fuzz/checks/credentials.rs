//! What must hold of credentials for any bytes: the value of an `Authorization` field, the subject of a client
//! certificate, distinguished names and grants as text.

use chappe_identity::{
    AREAS_MAX, DISTINGUISHED_NAME_BYTES_MAX, DistinguishedName, Grant, Token, TokenHash, bearer,
    check_account_name,
};

use crate::bounds::Bound;

/// Lists of at most 64 areas, and a name of 2,048 bytes that is split, escaped and parsed twice.
const BOUND: Bound = Bound::memory(64 << 10, 100);

/// No panic; what is read is written as something that means the same; nothing beyond a limit.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    if let Some(token) = bearer(data) {
        let again: Token = token.reveal().parse().expect("a token is written as one");
        assert!(token.hash().accepts(&again));
    }
    if let Some(name) = DistinguishedName::of_certificate(data) {
        same_name(&name);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = text.parse::<TokenHash>();
    let _ = check_account_name(text);
    if let Ok(name) = text.parse::<DistinguishedName>() {
        same_name(&name);
    }
    if let Ok(grant) = text.parse::<Grant>() {
        assert!(grant.areas.len() <= AREAS_MAX);
        // A list of areas, however it is written, never becomes a role without restriction.
        assert_eq!(grant.areas.is_empty(), !text.contains('='), "{text}");
        let again: Grant = grant
            .to_string()
            .parse()
            .expect("a grant is written as one");
        assert_eq!(again, grant);
    }
}

fn same_name(name: &DistinguishedName) {
    let text = name.to_string();
    assert!(!text.is_empty() && text.len() <= DISTINGUISHED_NAME_BYTES_MAX);
    let again = text.parse::<DistinguishedName>();
    assert_eq!(again.as_ref(), Ok(name), "{text}");
}
