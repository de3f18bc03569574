//! Elements as records of the log, and back.

use chappe_log::{Batch, Record};

use super::StoreError;
use super::metadata::Metadata;
use crate::codec::write_element;
use crate::{CodecError, Epoch, Position, StreamElement, StreamSchema, Timestamp, decode_element};

pub(super) fn decode_all(
    metadata: &Metadata,
    records: Vec<Record>,
) -> Result<Vec<StreamElement>, StoreError> {
    let element = |it: Record| decode_record(metadata, it.position, it.time, &it.payload);
    records.into_iter().map(element).collect()
}

/// `elements` as records of `version`, which is `schema`.
pub(super) fn batch_of(
    elements: &[StreamElement],
    schema: &StreamSchema,
    version: u32,
) -> Result<Batch, StoreError> {
    let mut batch = Batch::with_capacity(elements.len(), 64 * elements.len());
    for (index, element) in elements.iter().enumerate() {
        schema
            .check(element)
            .map_err(|error| StoreError::Element { index, error })?;
        let write = |bytes: &mut Vec<u8>| write_element(element, version, bytes);
        batch.push_with(element.source_time.0, write)?;
    }
    Ok(batch)
}

/// The element of a record in the shape of the current schema.
pub(super) fn decode_record(
    metadata: &Metadata,
    position: chappe_log::Position,
    time: i64,
    payload: &[u8],
) -> Result<StreamElement, StoreError> {
    let (mut element, schema) = decode_written(metadata, position, time, payload)?;
    let current = metadata.current();
    if !std::ptr::eq(schema, current) {
        element.values = current.project(schema, element.values);
    }
    Ok(element)
}

/// The element of a record and the schema in whose shape it was written.
pub(super) fn decode_written<'a>(
    metadata: &'a Metadata,
    position: chappe_log::Position,
    time: i64,
    payload: &[u8],
) -> Result<(StreamElement, &'a StreamSchema), StoreError> {
    let position = Position {
        epoch: Epoch(position.epoch),
        sequence: position.sequence,
    };
    let (element, version) = decode_element(payload, position, Timestamp(time))?;
    let schema = usize::try_from(version)
        .ok()
        .and_then(|version| metadata.versions.get(version))
        .ok_or(StoreError::UnknownVersion(version))?;
    schema
        .check(&element)
        .map_err(|error| CodecError::Malformed(error.to_string()))?;
    Ok((element, schema))
}
