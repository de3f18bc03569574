//! Answers the reads of a [`chappe_link::Origin`] from a stream's log.

use chappe_flow::{Channel, LossReason, Records, Schema, SchemaId};
use chappe_link::{Hole, OriginCommand, ReadRequest, Resumption, SchemaOf, StreamState};
use chappe_log::GapReason;
use chappe_stream::{StoreError, StreamLog, Timestamp};

use crate::feed::Batch;
use crate::replica::from_flow;
use crate::serialization;

/// Reads elements, or reports why they cannot be read.
pub(super) fn read(log: &StreamLog, request: ReadRequest) -> OriginCommand {
    let (elements, bytes) = (usize_of(request.elements), usize_of(request.bytes));
    match log.read_raw(request.from, elements, bytes) {
        Ok(raw) => {
            let batch = Batch::of(&raw);
            OriginCommand::Records {
                request,
                epoch: batch.first.epoch.0,
                schema_version: batch.schema_version,
                records: batch.records,
            }
        }
        Err(StoreError::Log(chappe_log::Error::Gap { next, reason, .. })) => OriginCommand::Gap {
            request,
            next,
            reason: match reason {
                GapReason::Trimmed => LossReason::Trimmed,
                _ => LossReason::Corrupt,
            },
        },
        Err(StoreError::Codec(_) | StoreError::UnknownVersion(_)) => {
            OriginCommand::Undecodable { request }
        }
        Err(error) => {
            tracing::warn!(stream = log.name(), %error, "cannot read a stream for a link");
            let text = format!("the stream cannot be read: {error}");
            OriginCommand::ReadFailed { request, text }
        }
    }
}

/// The state of a stream, with an answer for each position that the subscriber has.
pub(super) fn state(log: &StreamLog, positions: &[chappe_flow::Position]) -> StreamState {
    let resume = |at: &chappe_flow::Position| match log.resume(from_flow(*at)) {
        Ok(next) => Resumption::Next(next),
        Err(rollback) => Resumption::Rollback {
            kept: rollback.kept.map(|kept| chappe_flow::Position {
                epoch: kept.epoch,
                sequence: kept.sequence,
            }),
            next: rollback.next,
        },
    };
    let stream = log.log();
    StreamState {
        first: stream.first(),
        last: stream.last(),
        level: stream.level(),
        epochs: stream.epochs(),
        resumptions: positions.iter().map(resume).collect(),
    }
}

/// The schema of a stream.
pub(super) fn schema(log: &StreamLog, of: SchemaOf) -> Schema {
    let version = match of {
        SchemaOf::Version(version) => version,
        SchemaOf::Element(number) => log.version_at(number),
    };
    let schema = log.schema_of(version).unwrap_or_default();
    Schema {
        id: SchemaId(serialization::SchemaId::of(&schema).0),
        version,
        // A schema is plain data: it always encodes.
        bytes: serde_json::to_vec(&schema).unwrap_or_default().into(),
    }
}

/// Fills in elements that a subscriber has sent.
pub(super) fn put_back(log: &StreamLog, first: chappe_flow::Position, records: &Records) {
    let records = records.iter().map(|it| (Timestamp(it.time), it.payload));
    match log.put_back(from_flow(first), records) {
        Ok(put) => {
            let (stream, count) = (log.name(), put.count);
            tracing::info!(stream, count, "damaged elements repaired");
        }
        // Another subscriber was faster, or they do not fit.
        Err(error) => tracing::debug!(stream = log.name(), %error, "elements for repair rejected"),
    }
}

/// The damaged elements of a stream.
pub(super) fn holes(channel: Channel, log: &StreamLog) -> impl Iterator<Item = Hole> {
    log.holes().into_iter().map(move |hole| Hole {
        channel,
        epoch: hole.here.epoch.0,
        from: hole.here.sequence,
        next: hole.here.sequence + hole.count,
    })
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
