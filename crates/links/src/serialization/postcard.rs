//! Postcard: a varint of the length, then the document; elements are records of the log.

use chappe_stream::{Position, Timestamp, decode_element, encode_element};
use serde::{Deserialize, Serialize};

use super::{
    DOCUMENT_BYTES_MAX, Document, ELEMENTS_MAX, Elements, Lost, Rollback, SchemaRef,
    SerializationError, Structure, limit,
};

/// A document with the records of its elements.
#[derive(Serialize, Deserialize)]
enum Wire {
    Structure(Structure),
    Elements {
        stream: String,
        schema: SchemaRef,
        elements: Vec<WireElement>,
        last: Option<u64>,
    },
    Lost(Lost),
    Rollback(Rollback),
    Alive(Option<Position>),
}

#[derive(Serialize, Deserialize)]
struct WireElement {
    position: Position,
    source_time: Timestamp,
    /// As in the log, with version 0.
    record: Vec<u8>,
}

pub(super) fn encode(document: &Document, bytes: &mut Vec<u8>) -> Result<(), SerializationError> {
    let wire = match document {
        Document::Structure(structure) => Wire::Structure(structure.clone()),
        Document::Elements(elements) => Wire::Elements {
            stream: elements.stream.clone(),
            schema: elements.schema,
            elements: wire_elements(elements)?,
            last: elements.last,
        },
        Document::Lost(lost) => Wire::Lost(lost.clone()),
        Document::Rollback(rollback) => Wire::Rollback(rollback.clone()),
        Document::Alive(after) => Wire::Alive(*after),
    };
    let body = ::postcard::to_allocvec(&wire).map_err(|error| malformed(0, error.to_string()))?;
    let mut length = body.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(&body);
    Ok(())
}

fn wire_elements(elements: &Elements) -> Result<Vec<WireElement>, SerializationError> {
    let wire = |element: &chappe_stream::StreamElement| {
        let record = encode_element(element, 0).map_err(|error| malformed(0, error.to_string()))?;
        Ok(WireElement {
            position: element.position,
            source_time: element.source_time,
            record,
        })
    };
    elements.elements.iter().map(wire).collect()
}

pub(super) fn decode(bytes: &[u8]) -> Result<(Document, usize), SerializationError> {
    let (length, head) = length(bytes)?;
    limit("the document", length, DOCUMENT_BYTES_MAX)?;
    let body = bytes
        .get(head..head + length)
        .ok_or(SerializationError::Incomplete)?;
    let (wire, rest) = ::postcard::take_from_bytes::<Wire>(body)
        .map_err(|error| malformed(head, error.to_string()))?;
    if !rest.is_empty() {
        let why = format!("{} trailing bytes", rest.len());
        return Err(malformed(head + length - rest.len(), why));
    }
    let document = match wire {
        Wire::Structure(structure) => Document::Structure(structure),
        Wire::Elements {
            stream,
            schema,
            elements,
            last,
        } => Document::Elements(Elements {
            stream,
            schema,
            names: Vec::new(),
            elements: read_elements(elements, head)?,
            last,
        }),
        Wire::Lost(lost) => Document::Lost(lost),
        Wire::Rollback(rollback) => Document::Rollback(rollback),
        Wire::Alive(after) => Document::Alive(after),
    };
    Ok((document, head + length))
}

fn read_elements(
    elements: Vec<WireElement>,
    offset: usize,
) -> Result<Vec<chappe_stream::StreamElement>, SerializationError> {
    limit("the number of elements", elements.len(), ELEMENTS_MAX)?;
    let read =
        |wire: WireElement| match decode_element(&wire.record, wire.position, wire.source_time) {
            Ok((element, 0)) => Ok(element),
            Ok((_, version)) => Err(malformed(offset, format!("a record has version {version}"))),
            Err(error) => Err(malformed(offset, error.to_string())),
        };
    elements.into_iter().map(read).collect()
}

/// Decodes the leading length; also returns how many bytes it takes.
fn length(bytes: &[u8]) -> Result<(usize, usize), SerializationError> {
    let mut length = 0_usize;
    for index in 0..4 {
        let byte = *bytes.get(index).ok_or(SerializationError::Incomplete)?;
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((length, index + 1));
        }
    }
    Err(malformed(0, "the length takes more than four bytes".into()))
}

fn malformed(offset: usize, why: String) -> SerializationError {
    SerializationError::Malformed { offset, why }
}
