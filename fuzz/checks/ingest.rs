//! Invariants of the messages that agents send: the line protocol and Prometheus remote write, for any bytes.

use std::path::Path;

use chappe_wrappers::{Batch, Condition, Form, Inbound, Receipt, WrapperFile, WrapperOpening};
use tokio::sync::{mpsc, oneshot};

use crate::bounds::Bound;

/// A point of few bytes becomes an element, and those of a stream have a value for each of its columns: a piece has at
/// most 2,048 points with 256 columns each, of 32 bytes. A few bytes of snappy may say that they are 16 MiB.
const BOUND: Bound = Bound::memory(64 << 20, 400);

/// No panic; each message is answered once, the answer counts the elements of its batches, and each fits its stream.
/// The first byte says in which form the others are.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || {
        let Some((form, body)) = data.split_first() else {
            return;
        };
        let points = |is_gzip| Form::LineProtocol {
            unit_ns: 1_000,
            is_gzip,
        };
        let samples = |is_version_2| Form::RemoteWrite { is_version_2 };
        match form % 6 {
            0 => send("influxdb", points(false), body.to_vec()),
            1 => send("influxdb", points(true), body.to_vec()),
            2 => send("remote_write", samples(false), body.to_vec()),
            3 => send("remote_write", samples(true), body.to_vec()),
            4 => send("remote_write", samples(false), literal(body)),
            _ => send("remote_write", samples(true), literal(body)),
        }
    });
}

/// Bytes in the block format of snappy, as one literal.
fn literal(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    let mut length = bytes.len();
    while length >= 0x80 {
        block.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    block.push(length as u8);
    if let Some(last) = bytes.len().checked_sub(1) {
        block.push(63 << 2);
        block.extend(&(last as u32).to_le_bytes());
        block.extend(bytes);
    }
    block
}

/// Sends a message to a wrapper until it is answered.
fn send(kind: &str, form: Form, body: Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let file = WrapperFile::parse(Path::new("a.toml"), &format!("kind = \"{kind}\"\n"));
        let file = file.expect("a file");
        let (sending, inbox) = mpsc::channel(1);
        let opening = WrapperOpening {
            file: &file,
            mark: None,
            condition: Condition::default(),
            notes: Default::default(),
            drops: Default::default(),
            inbox,
        };
        let mut wrapper = (file.kind().expect("a kind").open)(opening).expect("a wrapper");
        let (reply, mut answer) = oneshot::channel();
        let message = Inbound {
            body,
            form,
            sender: Default::default(),
            reply,
        };
        assert!(sending.send(message).await.is_ok());
        let mut elements = 0;
        let receipt: Receipt = loop {
            let batch = wrapper.next().await.expect("a batch");
            elements += batch.elements() as u64;
            check_batch(&batch);
            wrapper.stored(&batch.mark).await.expect("an answer");
            if let Ok(answer) = answer.try_recv() {
                break answer.expect("a receipt");
            }
        };
        assert_eq!(receipt.elements, elements);
        assert_eq!(receipt.undecodable > 0, receipt.reason.is_some());
    });
}

fn check_batch(batch: &Batch) {
    for part in &batch.parts {
        let schema = &part.definition.schema;
        assert_eq!(schema.check_names(), Ok(()));
        assert!(chappe_stream::check_name(&part.stream).is_ok());
        for element in &part.elements {
            assert_eq!(schema.check(element), Ok(()));
        }
    }
}
