//! The content coding `exi` of SOAP messages (EXI 1.0, appendix F.3; RFC 7694 for its negotiation).
//!
//! The first message to a peer is text. Once a header Accept-Encoding of the peer has the coding, messages are EXI where
//! that is shorter; a peer that refuses one gets text for the next ten minutes. What the streams are is in
//! [`chappe_dpws::exi`]. Messages of a service go by its own schema if its caller gives it, and the peer's answer does
//! so too. A content coding has no parameters (RFC 9110, section 8.4.1) that could name schemas; none is needed, since
//! both ends make the schema's name of the WSDL that one has served to the other. A peer that has another one refuses
//! the message unread, with status 415, and gets it by `dev1`, as it does all others for the next ten minutes.

use bytes::Bytes;
use chappe_dpws::exi::{self, DecodeError, ServiceSchema, ServiceSchemas};
use chappe_xml::Limits;
use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};

use super::Response;
use super::body::BodyError;
use super::soap::SOAP_MEDIA_TYPE;

/// The name of the coding.
const NAME: &str = "exi";
/// What is accepted where it is understood.
pub(super) const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, exi");

/// Whether the coding is among those that a peer accepts.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_it = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(NAME));
        is_it && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Whether a body has the coding.
pub(super) fn is_coded(headers: &HeaderMap) -> bool {
    let coding = headers.get(CONTENT_ENCODING);
    coding.is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(NAME.as_bytes()))
}

/// The headers of a coded message. Its action, which is in the message too, and the encoding of its text are left out.
pub(super) fn set_headers(headers: &mut HeaderMap) {
    let media_type = HeaderValue::from_static(SOAP_MEDIA_TYPE);
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(NAME));
}

/// The response coded, if it is a message of SOAP and gets shorter: by the schema of the request if the message fits
/// it.
pub(super) fn coded(mut response: Response, schema: Option<&ServiceSchema>) -> Response {
    let kind = response.headers.get(CONTENT_TYPE);
    let is_soap = kind.is_some_and(|kind| kind.as_bytes().starts_with(SOAP_MEDIA_TYPE.as_bytes()));
    if !is_soap || response.body.is_empty() {
        return response;
    }
    let by_schema = schema.and_then(|schema| schema.encode(&response.body));
    if let Some(body) = by_schema.or_else(|| exi::encode(&response.body)) {
        set_headers(&mut response.headers);
        response.body = body.into();
    }
    response
}

/// Encodes a message by this schema, or `dev1`; `None` if it cannot be encoded or does not get shorter.
pub(super) fn encode(text: &[u8], schema: Option<&ServiceSchema>) -> Option<Bytes> {
    let encoded = match schema {
        Some(schema) => schema.encode(text),
        None => exi::encode(text),
    };
    encoded.map(Bytes::from)
}

/// Decodes a message to its text of at most `bound` bytes.
///
/// # Errors
/// [`BodyError::TooLarge`], [`BodyError::Schema`], or [`BodyError::Encoding`]: it is no EXI, or beyond the limits of a
/// message.
pub(super) fn decode(
    bytes: &[u8],
    bound: usize,
    schemas: &ServiceSchemas,
) -> Result<(Bytes, Option<ServiceSchema>), BodyError> {
    let limits = Limits {
        bytes: bound,
        ..Limits::default()
    };
    match exi::decode(bytes, limits, schemas) {
        Ok(decoded) => Ok((decoded.text.into(), decoded.schema)),
        Err(DecodeError::TooLarge) => Err(BodyError::TooLarge),
        Err(DecodeError::OtherSchema(wanted)) => Err(BodyError::Schema(wanted)),
        Err(DecodeError::Broken(_)) => Err(BodyError::Encoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_with_a_weight_accepts() {
        for (value, wanted) in [
            ("exi", true),
            ("gzip, EXI;q=0.5", true),
            ("exi;q=0", false),
            ("exi; q=0.000", false),
            ("gzip", false),
            ("exit", false),
            ("*", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(is_accepted(&headers), wanted, "{value}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }
}
