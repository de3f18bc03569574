//! Shared by the tests: decode a message, and describe what follows.

use std::sync::Arc;

use chappe_format::{Attributes, Decoder, Fault, Format, Message, Output};
use chappe_stream::{StreamElement, Timestamp, Value};

/// 2026-11-21T10:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp(1_795_255_200_000_000_000);

pub(crate) fn decoder(config: &str) -> Decoder {
    match Format::parse("format.toml", config) {
        Ok(format) => Decoder::new(Arc::new(format)),
        Err(error) => panic!("{error} (hint: {:?})", error.hint),
    }
}

/// The elements of a message with their streams, and the faults as text.
pub(crate) fn decode_with(
    decoder: &mut Decoder,
    body: &[u8],
    attributes: &Attributes,
) -> (Vec<(String, StreamElement)>, Vec<String>) {
    let mut output = Output::default();
    let message = Message::new(body, NOW).with(attributes);
    decoder
        .decode(&message, &mut output)
        .unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(output.faults.len() as u64, output.fault_count);
    let elements = output.elements.into_iter().map(|(stream, element)| {
        let definition = decoder.stream(stream);
        definition
            .schema
            .check(&element)
            .expect("it fits its schema");
        (definition.name.clone(), element)
    });
    let faults = output.faults.iter().map(Fault::to_string);
    (elements.collect(), faults.collect())
}

pub(crate) fn decode(config: &str, body: &[u8]) -> (Vec<(String, StreamElement)>, Vec<String>) {
    decode_with(&mut decoder(config), body, &Attributes::new())
}

/// The values of a message of which every record is right.
pub(crate) fn values(config: &str, body: &[u8]) -> Vec<Vec<Value>> {
    let (elements, faults) = decode(config, body);
    assert_eq!(faults, Vec::<String>::new());
    elements
        .into_iter()
        .map(|(_, element)| element.values)
        .collect()
}

/// The fault of a message that cannot be read.
pub(crate) fn refused(config: &str, body: &[u8]) -> String {
    let mut output = Output::default();
    let outcome = decoder(config).decode(&Message::new(body, NOW), &mut output);
    let fault = outcome.expect_err("it cannot be read");
    assert_eq!(output, Output::default());
    fault.to_string()
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}
