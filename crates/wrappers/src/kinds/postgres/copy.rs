//! Elements in the binary format of COPY (PostgreSQL 15, COPY, "Binary Format").

use std::pin::Pin;

use bytes::{BufMut as _, Bytes, BytesMut};
use chappe_stream::view::ValueView;
use chappe_stream::{StreamElement, Timestamp, Value};
use futures_sink::Sink as _;
use tokio_postgres::CopyInSink;

use super::failed;
use super::table::{Column, Plan};
use crate::WrapperError;

/// The signature, no flags, and no extension of the header.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// The end of the rows.
const TRAILER: i16 = -1;
/// Bytes after which rows are sent; reason: enough for one message of the network, little to hold.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// Nanoseconds from 1970 to 2000, from which PostgreSQL counts.
const EPOCH_NS: i64 = 946_684_800_000_000_000;
/// The version of binary jsonb.
const JSONB: u8 = 1;

/// Rows of COPY as bytes.
pub(super) struct Rows(BytesMut);

impl Rows {
    pub(super) fn new() -> Self {
        let mut bytes = BytesMut::with_capacity(PIECE_BYTES + (16 << 10));
        bytes.extend_from_slice(HEADER);
        Self(bytes)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Why PostgreSQL cannot store it; then nothing is added.
    pub(super) fn push(&mut self, plan: &Plan, element: &StreamElement) -> Result<(), String> {
        let start = self.0.len();
        self.0.put_i16(plan.columns.len() as i16);
        for column in &plan.columns {
            if let Err(reason) = self.cell(column, element) {
                self.0.truncate(start);
                return Err(reason);
            }
        }
        Ok(())
    }

    fn cell(&mut self, column: &Column, element: &StreamElement) -> Result<(), String> {
        match column {
            Column::Epoch => self.text(&element.position.epoch.to_string()),
            Column::Sequence => {
                let number = i64::try_from(element.position.sequence).unwrap_or(i64::MAX);
                self.fixed(&number.to_be_bytes());
                Ok(())
            }
            Column::SourceTime => {
                self.fixed(&microseconds(element.source_time).to_be_bytes());
                Ok(())
            }
            Column::ReceiveTime => {
                self.fixed(&microseconds(element.receive_time).to_be_bytes());
                Ok(())
            }
            Column::Key => match &element.key {
                Some(key) => self.text(key),
                None => {
                    self.null();
                    Ok(())
                }
            },
            Column::Quality => self.text(element.quality.name()),
            Column::Field {
                index, is_jsonb, ..
            } => {
                let value = element.values.get(*index).unwrap_or(&Value::Null);
                self.value(value, *is_jsonb)
            }
        }
    }

    fn value(&mut self, value: &Value, is_jsonb: bool) -> Result<(), String> {
        match value {
            Value::Null => self.null(),
            Value::Boolean(flag) => self.fixed(&[u8::from(*flag)]),
            Value::Integer(number) => self.fixed(&number.to_be_bytes()),
            Value::Double(number) => self.fixed(&number.to_be_bytes()),
            Value::Text(text) => return self.text(text),
            Value::Bytes(bytes) => return self.bytes(&[], bytes),
            Value::Samples(_) => {
                let json = serde_json::to_vec(&ValueView(value));
                let json = json.map_err(|error| error.to_string())?;
                let version: &[u8] = if is_jsonb { &[JSONB] } else { &[] };
                return self.bytes(version, &json);
            }
        }
        Ok(())
    }

    fn null(&mut self) {
        self.0.put_i32(-1);
    }

    fn fixed(&mut self, bytes: &[u8]) {
        self.0.put_i32(bytes.len() as i32);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        match text.contains('\0') {
            true => Err("a text of PostgreSQL cannot have a zero character".to_owned()),
            false => self.bytes(&[], text.as_bytes()),
        }
    }

    fn bytes(&mut self, first: &[u8], rest: &[u8]) -> Result<(), String> {
        let length = i32::try_from(first.len() + rest.len());
        let length = length.map_err(|_| "a value of PostgreSQL has less than 2 GiB".to_owned())?;
        self.0.put_i32(length);
        self.0.extend_from_slice(first);
        self.0.extend_from_slice(rest);
        Ok(())
    }

    /// Whether they are enough to be sent.
    fn is_piece(&self) -> bool {
        self.0.len() >= PIECE_BYTES
    }

    fn take(&mut self) -> Bytes {
        self.0.split().freeze()
    }
}

/// Microseconds since 2000, without the rest.
fn microseconds(time: Timestamp) -> i64 {
    time.0.saturating_sub(EPOCH_NS).div_euclid(1_000)
}

/// A COPY that runs.
pub(super) struct Copy {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    rows: Rows,
}

impl Copy {
    pub(super) fn new(sink: CopyInSink<Bytes>) -> Self {
        Self {
            sink: Box::pin(sink),
            rows: Rows::new(),
        }
    }

    /// Adds a row; the reason if PostgreSQL cannot store it.
    pub(super) async fn push(
        &mut self,
        plan: &Plan,
        element: &StreamElement,
    ) -> Result<Result<(), String>, WrapperError> {
        let pushed = self.rows.push(plan, element);
        if self.rows.is_piece() {
            self.send().await?;
        }
        Ok(pushed)
    }

    async fn send(&mut self) -> Result<(), WrapperError> {
        let sink = &mut self.sink;
        let ready = std::future::poll_fn(|context| sink.as_mut().poll_ready(context));
        ready.await.map_err(failed)?;
        let bytes = self.rows.take();
        self.sink.as_mut().start_send(bytes).map_err(failed)
    }

    /// Ends it; the number of rows that PostgreSQL has taken.
    pub(super) async fn finish(mut self) -> Result<u64, WrapperError> {
        self.rows.0.put_i16(TRAILER);
        self.send().await?;
        let sink = &mut self.sink;
        let finished = std::future::poll_fn(|context| sink.as_mut().poll_finish(context));
        finished.await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::{Epoch, Position, Quality, Samples};
    use proptest::prelude::*;

    fn element(values: Vec<Value>) -> StreamElement {
        StreamElement {
            position: Position {
                epoch: Epoch(10),
                sequence: 3,
            },
            source_time: Timestamp(EPOCH_NS + 1_999),
            receive_time: Timestamp(EPOCH_NS - 1),
            key: None,
            values,
            quality: Quality::Good,
            origin: None,
        }
    }

    fn field(index: usize) -> Column {
        Column::Field {
            name: format!("f{index}"),
            index,
            is_jsonb: true,
        }
    }

    fn plan(columns: Vec<Column>) -> Plan {
        Plan {
            columns,
            ..Plan::default()
        }
    }

    /// The cells of a row, as the format describes them.
    fn cells(bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut rest = bytes;
        let mut take = |count: usize| {
            let (taken, left) = rest.split_at(count);
            rest = left;
            taken.to_vec()
        };
        let count = i16::from_be_bytes(take(2).try_into().unwrap());
        let cells = (0..count).map(|_| {
            let length = i32::from_be_bytes(take(4).try_into().unwrap());
            usize::try_from(length).ok().map(&mut take)
        });
        let cells = cells.collect();
        assert!(rest.is_empty());
        cells
    }

    #[test]
    fn a_row_has_the_bytes_that_the_format_describes() {
        let plan = plan(vec![
            Column::Epoch,
            Column::Sequence,
            Column::SourceTime,
            Column::ReceiveTime,
            Column::Key,
            Column::Quality,
            field(0),
        ]);
        let mut rows = Rows::new();
        rows.push(&plan, &element(vec![Value::Boolean(true)]))
            .unwrap();
        let bytes = rows.take();
        let (header, row) = bytes.split_at(HEADER.len());
        assert_eq!(header, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        let wanted = [
            Some(b"000000000000000a".to_vec()),
            Some(3_i64.to_be_bytes().to_vec()),
            Some(1_i64.to_be_bytes().to_vec()),
            Some((-1_i64).to_be_bytes().to_vec()),
            None,
            Some(b"good".to_vec()),
            Some(vec![1]),
        ];
        assert_eq!(cells(row), wanted);
    }

    #[test]
    fn a_text_with_a_zero_character_is_refused_and_leaves_nothing() {
        let plan = plan(vec![Column::Sequence, field(0)]);
        let mut rows = Rows::new();
        let refused = rows.push(&plan, &element(vec![Value::Text("a\0".to_owned())]));
        assert!(refused.is_err());
        assert_eq!(rows.take(), HEADER);
    }

    #[test]
    fn samples_are_jsonb() {
        let samples = Value::Samples(Samples {
            start: Timestamp(0),
            period_ns: 1_000_000_000,
            values: vec![1.5],
        });
        let mut rows = Rows::new();
        rows.push(&plan(vec![field(0)]), &element(vec![samples]))
            .unwrap();
        let cells = cells(&rows.take()[HEADER.len()..]);
        let cell = cells[0].as_deref().unwrap();
        assert_eq!(cell[0], JSONB);
        let json: serde_json::Value = serde_json::from_slice(&cell[1..]).unwrap();
        assert_eq!(json["values"], serde_json::json!([1.5]));
    }

    proptest! {
        #[test]
        fn each_row_has_each_column(text in "[^\0]{0,40}", number: i64, double: f64, bytes: Vec<u8>, time: i64) {
            let values = vec![Value::Text(text.clone()), Value::Integer(number), Value::Double(double), Value::Bytes(bytes.clone())];
            let plan = plan((0..4).map(field).chain([Column::SourceTime]).collect());
            let mut rows = Rows::new();
            let mut one = element(values);
            one.source_time = Timestamp(time);
            rows.push(&plan, &one).unwrap();
            let cells = cells(&rows.take()[HEADER.len()..]);
            prop_assert_eq!(cells[0].as_deref(), Some(text.as_bytes()));
            prop_assert_eq!(cells[1].clone(), Some(number.to_be_bytes().to_vec()));
            prop_assert_eq!(cells[2].clone(), Some(double.to_be_bytes().to_vec()));
            prop_assert_eq!(cells[3].clone(), Some(bytes));
            prop_assert_eq!(cells[4].as_ref().map(Vec::len), Some(8));
        }
    }
}
