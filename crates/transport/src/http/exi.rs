//! The content coding `exi` of SOAP messages (EXI 1.0, appendix F.3; RFC 7694 for its negotiation).
//!
//! The first message to a peer is text. Once a header Accept-Encoding of the peer has the coding, messages are EXI where
//! that is shorter; a peer that refuses one gets text for the next ten minutes. Streams name their schema: `dev1`
//! of `chappe-exi`, which has SOAP, WS-Addressing, WS-Eventing and DPWS. They preserve prefixes and the lexical form of
//! values, so that a message is the same whichever way it came. Not covered: schemas of services; messages that are
//! signed, because comments and the choice between two prefixes of one namespace are not preserved.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use chappe_exi::{
    Cause, Decoder, Encoder, HeaderOptions, MessageSchema, Options, Schema, SchemaId, xml,
};
use chappe_xml::{Event, EventSink as _, EventSource as _, Limits, Reason, text};
use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};

use super::Response;
use super::body::BodyError;
use super::room::SMALL_BYTES;
use super::soap::SOAP_MEDIA_TYPE;

/// The name of the coding.
const NAME: &str = "exi";
/// What is accepted where it is understood.
pub(super) const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, exi");

static SCHEMA: LazyLock<Arc<Schema>> =
    LazyLock::new(|| Arc::new(Schema::for_messages(MessageSchema::Devices)));

thread_local! {
    /// Grammars and buffers of small messages, so that they are not made for each.
    static ENCODER: RefCell<Option<Encoder>> = const { RefCell::new(None) };
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

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

/// The response coded, if it is a message of SOAP and gets shorter.
pub(super) fn coded(mut response: Response) -> Response {
    let kind = response.headers.get(CONTENT_TYPE);
    let is_soap = kind.is_some_and(|kind| kind.as_bytes().starts_with(SOAP_MEDIA_TYPE.as_bytes()));
    if is_soap && let Some(body) = encode(&response.body) {
        set_headers(&mut response.headers);
        response.body = body;
    }
    response
}

/// Encodes a message; `None` if it cannot be encoded or does not get shorter.
pub(super) fn encode(text: &[u8]) -> Option<Bytes> {
    if text.is_empty() {
        return None;
    }
    let kept = ENCODER.with_borrow_mut(Option::take);
    let mut encoder = kept.unwrap_or_else(|| Encoder::new(Arc::clone(&SCHEMA)));
    let encoded = encode_with(&mut encoder, text);
    if text.len() <= SMALL_BYTES {
        ENCODER.with_borrow_mut(|kept| *kept = Some(encoder));
    }
    encoded.filter(|bytes| bytes.len() < text.len())
}

fn encode_with(encoder: &mut Encoder, text: &[u8]) -> Option<Bytes> {
    let options = options();
    let header = HeaderOptions {
        cookie: false,
        options: true,
    };
    let limits = Limits {
        bytes: text.len(),
        ..Limits::default()
    };
    let mut reader = text::Reader::new(text, limits).ok()?;
    let mut sink = xml::Sink::new(encoder.begin_with(&options, header).ok()?).ok()?;
    while let Some(event) = reader.next_event().ok()? {
        sink.event(event).ok()?;
    }
    let bytes = sink.finish().ok()?;
    Some(Bytes::copy_from_slice(bytes))
}

fn options() -> Options {
    let mut options = Options {
        // Measured: also a call with one integer, 209 bytes, gets a fifth shorter.
        compression: true,
        schema_id: SchemaId::Named(MessageSchema::Devices.schema_id().to_owned()),
        ..Options::default()
    };
    options.preserve.prefixes = true;
    options.preserve.lexical_values = true;
    options
}

/// Decodes a message to its text of at most `bound` bytes: a few bits can stand for a long string.
///
/// # Errors
/// [`BodyError::TooLarge`], or [`BodyError::Encoding`]: it is no EXI, of another schema, or beyond the limits of a
/// message.
pub(super) fn decode(bytes: &[u8], bound: usize) -> Result<Bytes, BodyError> {
    let kept = DECODER.with_borrow_mut(Option::take);
    let decoder = kept.unwrap_or_else(|| Decoder::new(Arc::clone(&SCHEMA)));
    let mut decoder = decoder.with_limits(limits(bound));
    let text = decode_with(&mut decoder, bytes, bound);
    // What a large message or a forged one has filled is not kept.
    if text.as_ref().is_ok_and(|text| text.len() <= SMALL_BYTES) {
        DECODER.with_borrow_mut(|kept| *kept = Some(decoder));
    }
    text.map(Bytes::from)
}

/// The limits of a stream: as long as its text may be, and as nested as text may be.
fn limits(bound: usize) -> chappe_exi::Limits {
    let text = Limits::default();
    chappe_exi::Limits {
        depth: text.depth,
        string_characters: bound,
        table_bytes: bound,
        events: text.events as u64,
        block_bytes: bound,
        productions: text.events,
        ..chappe_exi::Limits::default()
    }
}

fn decode_with(decoder: &mut Decoder, bytes: &[u8], bound: usize) -> Result<String, BodyError> {
    let broken = |error: chappe_xml::Error| match error.reason {
        Reason::Limit { limit, .. } => beyond(limit),
        _ => BodyError::Encoding,
    };
    let reading = decoder
        .begin(bytes, None)
        .map_err(|error| match error.cause {
            Cause::Limit { limit, .. } => beyond(limit),
            _ => BodyError::Encoding,
        })?;
    let mut source = xml::Source::new(reading);
    let mut writer = text::Writer::default();
    let mut scope = Scope::default();
    while let Some(event) = source.next_event().map_err(broken)? {
        if !scope.admits(&event) {
            return Err(BodyError::Encoding);
        }
        writer.event(event).map_err(broken)?;
        if writer.bytes() > bound {
            return Err(BodyError::TooLarge);
        }
    }
    writer.finish().map_err(broken)
}

/// The error of a stream beyond this limit of [`chappe_exi::Limits`]. Those that follow the bound mean that a larger
/// bound may do.
fn beyond(limit: &str) -> BodyError {
    match limit {
        "string_characters" | "table_bytes" | "block_bytes" => BodyError::TooLarge,
        _ => BodyError::Encoding,
    }
}

/// The names and declarations of open elements, within the limits of a text. Reason: the time to write an element as
/// text grows with those in scope.
#[derive(Default)]
struct Scope {
    /// The declarations of each open element.
    declared: Vec<usize>,
    in_scope: usize,
    /// Attributes and declarations of the last element.
    of_element: usize,
}

impl Scope {
    fn admits(&mut self, event: &Event<'_>) -> bool {
        let limits = Limits::default();
        let is_short = |name: &str| name.len() <= limits.name_bytes;
        match event {
            Event::StartElement(name) => {
                self.declared.push(0);
                self.of_element = 0;
                is_short(&name.local) && is_short(&name.namespace)
            }
            Event::EndElement => {
                self.in_scope -= self.declared.pop().unwrap_or(0);
                true
            }
            Event::Namespace { prefix, namespace } => {
                self.of_element += 1;
                self.in_scope += 1;
                if let Some(declared) = self.declared.last_mut() {
                    *declared += 1;
                }
                let is_room = self.in_scope <= limits.namespaces;
                is_room
                    && self.of_element <= limits.attributes
                    && is_short(prefix)
                    && is_short(namespace)
            }
            Event::Attribute(name, _) => {
                self.of_element += 1;
                self.of_element <= limits.attributes
                    && is_short(&name.local)
                    && is_short(&name.namespace)
            }
            Event::Text(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_xml::{Element, Name, Node};
    use proptest::prelude::*;

    /// Bytes that no message of these tests exceeds.
    const BOUND: usize = 1 << 20;

    fn encoded(text: &[u8]) -> Bytes {
        encode_with(&mut Encoder::new(Arc::clone(&SCHEMA)), text).expect("a document")
    }

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

    #[test]
    fn a_few_bits_do_not_become_a_large_text() {
        let long = format!("<b>{}</b>", "x".repeat(60_000));
        let bomb = encoded(format!("<a>{}</a>", long.repeat(60)).as_bytes());
        assert!(bomb.len() < 10_000, "{} bytes", bomb.len());
        assert!(matches!(decode(&bomb, BOUND), Err(BodyError::TooLarge)));
        assert!(decode(&bomb, 4 << 20).is_ok());
    }

    #[test]
    fn values_beyond_the_bound_are_too_large_and_not_broken() {
        let long = format!("<a>{}</a>", "x".repeat(66_000));
        let values: String = (0..8_000)
            .map(|number| format!("<b>{}.{}</b>", number * 7_919, number * 104_729 % 1_000_003))
            .collect();
        for text in [long, format!("<a>{values}</a>")] {
            let stream = encoded(text.as_bytes());
            let small = decode(&stream, SMALL_BYTES);
            assert!(matches!(small, Err(BodyError::TooLarge)), "{small:?}");
            assert_eq!(decode(&stream, BOUND).unwrap(), text);
        }
    }

    #[test]
    fn more_than_a_text_may_have_is_refused() {
        let wide: String = (0..200).map(|number| format!(" a{number}=''")).collect();
        let declared: String = (0..100)
            .map(|number| format!(" xmlns:p{number}='urn:{number}'"))
            .collect();
        let nested = |levels: usize, attributes: &str| {
            let tags = format!("<a{attributes}>").repeat(levels);
            let ends = "</a>".repeat(levels);
            format!("{tags}{ends}")
        };
        // The reader of text refuses them, so their events are written by hand.
        for (levels, attributes) in [(1, &wide), (3, &declared), (70, &String::new())] {
            let text = nested(levels, attributes);
            let limits = Limits {
                attributes: 1_000,
                namespaces: 1_000,
                depth: 1_000,
                ..Limits::default()
            };
            let root = Element::parse_within(text.as_bytes(), limits).expect("a document");
            let mut encoder = Encoder::new(Arc::clone(&SCHEMA));
            let header = HeaderOptions {
                cookie: false,
                options: true,
            };
            let writing = encoder.begin_with(&options(), header).unwrap();
            let mut sink = xml::Sink::new(writing).unwrap();
            root.write(&mut sink).unwrap();
            let stream = sink.finish().unwrap();
            assert!(matches!(decode(stream, BOUND), Err(BodyError::Encoding)));
        }
    }

    #[test]
    fn another_schema_is_refused() {
        let schema = Arc::new(Schema::none());
        let header = HeaderOptions {
            cookie: false,
            options: true,
        };
        let mut encoder = Encoder::new(schema);
        let other = Options {
            schema_id: SchemaId::None,
            ..Options::default()
        };
        let stream = chappe_exi::text::encode(&mut encoder, &other, header, b"<a/>").unwrap();
        assert!(matches!(decode(stream, BOUND), Err(BodyError::Encoding)));
    }

    /// Elements of messages and of others, with values that a schema would change.
    fn element() -> impl Strategy<Value = Element> {
        let name = prop::sample::select(vec![
            ("http://www.w3.org/2003/05/soap-envelope", "Envelope"),
            ("http://www.w3.org/2003/05/soap-envelope", "Header"),
            ("http://www.w3.org/2003/05/soap-envelope", "Body"),
            ("http://www.w3.org/2005/08/addressing", "MessageID"),
            ("http://www.w3.org/2005/08/addressing", "RelatesTo"),
            ("http://schemas.xmlsoap.org/ws/2004/08/eventing", "Expires"),
            ("urn:x", "value"),
            ("", "plain"),
        ]);
        let attribute = prop::sample::select(vec![
            ("http://www.w3.org/2003/05/soap-envelope", "mustUnderstand"),
            ("http://www.w3.org/2001/XMLSchema-instance", "nil"),
            ("http://www.w3.org/2001/XMLSchema-instance", "type"),
            ("http://www.w3.org/XML/1998/namespace", "lang"),
            ("", "unit"),
        ]);
        let value = prop_oneof![
            Just(" 1 ".to_owned()),
            Just("true".to_owned()),
            Just("x:y".to_owned()),
            Just("-007.50".to_owned()),
            "[ -~\\n\\t]{0,20}",
            "\\PC{0,20}",
        ];
        let attributes = prop::collection::btree_map(attribute, value.clone(), 0..3);
        let new = |((namespace, local), attributes): ((&str, &str), _)| {
            let attributes: std::collections::BTreeMap<(&str, &str), String> = attributes;
            let name = Name::owned(namespace.to_owned(), local.to_owned());
            let element = Element::new(name).with_namespace("x", "urn:x");
            attributes
                .into_iter()
                .fold(element, |element, ((namespace, local), value)| {
                    let name = Name::owned(namespace.to_owned(), local.to_owned());
                    element.with_attribute(name, value)
                })
        };
        let leaf = (name.clone(), attributes.clone(), value)
            .prop_map(move |(name, attributes, value)| new((name, attributes)).with_text(value));
        leaf.prop_recursive(4, 40, 6, move |inner| {
            let children = prop::collection::vec(inner, 0..6);
            (name.clone(), attributes.clone(), children).prop_map(
                move |(name, attributes, children)| new((name, attributes)).with_children(children),
            )
        })
    }

    /// Their order has no meaning, and that of a schema's grammar is by name.
    fn sort_attributes(element: &mut Element) {
        element.attributes.sort();
        for child in &mut element.children {
            if let Node::Element(child) = child {
                sort_attributes(child);
            }
        }
    }

    proptest! {
        #[test]
        fn a_message_is_the_same_whichever_way_it_comes(element in element()) {
            let text = element.to_text();
            let decoded = decode(&encoded(text.as_bytes()), BOUND).expect("our own stream");
            let [sent, received] = [text.as_bytes(), &decoded].map(|text| {
                let mut root = Element::parse(text).expect("a document");
                sort_attributes(&mut root);
                root
            });
            prop_assert_eq!(sent, received);
        }

        #[test]
        fn any_bytes_are_decoded_within_the_bound_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            text in "<a( b='[a-z]{0,9}')?>([a-z]{0,9}|<c/>){0,9}</a>",
            at in any::<prop::sample::Index>(),
        ) {
            let _ = decode(&bytes, 4_096);
            // A stream with one wrong byte reaches further.
            let mut stream = encoded(text.as_bytes()).to_vec();
            let index = at.index(stream.len());
            stream[index] ^= bytes.first().copied().unwrap_or(1);
            if let Ok(text) = decode(&stream, 4_096) {
                prop_assert!(text.len() <= 4_096);
            }
        }
    }
}
