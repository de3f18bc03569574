//! Invariants of the SOAP envelope for any bytes.

use chappe_soap::{Body, Envelope, Fault, LazyEnvelope};
use chappe_xml::Limits;

use crate::bounds::Bound;

/// Three trees of at most 70 bytes per byte of input; each of 64 blocks of Header and Body gets a copy of
/// the 64 declarations around it.
const BOUND: Bound = Bound::memory(2 << 20, 250);

/// No panic; a message is the same with and without trees, and keeps its addressing, headers, body and fault when read and written.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let limits = Limits::datagram();
    let lazy = LazyEnvelope::parse_within(data.to_vec().into(), limits);
    let fault = lazy.as_ref().ok().and_then(LazyEnvelope::fault);
    let fault = fault.map(parts);
    let lazy = lazy.and_then(LazyEnvelope::into_envelope);
    let read = Envelope::parse_within(data, limits);
    assert_eq!(lazy, read);
    drop(lazy);
    let same = read.as_ref().ok().and_then(Envelope::fault);
    assert_eq!(fault, same.map(parts));
    let Ok(read) = read else {
        return;
    };
    let written = read.to_text();
    let again = match Envelope::parse(written.as_bytes()) {
        Ok(again) => again,
        Err(chappe_soap::Error::Xml(error))
            if matches!(error.reason, chappe_xml::Reason::Limit { .. }) =>
        {
            return;
        }
        Err(error) => panic!("{error}: {written}"),
    };
    assert_eq!(again.addressing.action, read.addressing.action);
    assert_eq!(again.addressing.message_id, read.addressing.message_id);
    assert_eq!(again.addressing.relates_to, read.addressing.relates_to);
    assert_eq!(again.headers.len(), read.headers.len());
    let names = |envelope: &Envelope| {
        let body = envelope.body.iter();
        body.map(|element| element.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&again), names(&read));
    assert_eq!(
        again.fault().map(|fault| (fault.code, fault.subcode)),
        read.fault().map(|fault| (fault.code, fault.subcode))
    );
}

/// A fault with the names of its detail, whose elements are text or trees.
fn parts(mut fault: Fault) -> (Fault, Vec<chappe_xml::Name>) {
    let detail = std::mem::take(&mut fault.detail);
    let names = detail.iter().map(Body::name).cloned();
    (fault, names.collect())
}
