//! Requests as other programs encode them: by declarations of the specifications, and `prost`.

use chappe_stream::Value;
use proptest::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::samples::Samples;
use super::*;
use crate::kinds::series::{Protocol, Refused};
use crate::tests::wrapper_file;
use crate::{Batch, Condition, Form, Inbound, Receipt, ShareExceeded};

#[derive(Clone, PartialEq, prost::Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MetricMetadata {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    metric_family_name: String,
    #[prost(string, tag = "4")]
    help: String,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    histograms: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Request2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeries2>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TimeSeries2 {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    histograms: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Metadata2>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata2 {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "3")]
    help_ref: u32,
    #[prost(uint32, tag = "4")]
    unit_ref: u32,
}

fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> TimeSeries {
    let label = |(name, value): &(&str, &str)| Label {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: samples
            .iter()
            .map(|(value, timestamp)| Sample {
                value: *value,
                timestamp: *timestamp,
            })
            .collect(),
        histograms: Vec::new(),
    }
}

/// Sends a body to a wrapper; returns the elements of all batches, and the answer.
async fn send(body: Vec<u8>, is_version_2: bool) -> (Batch, Result<Receipt, ShareExceeded>) {
    let mut all = Batch::default();
    let answer = send_to(body, is_version_2, |batch| all.append(batch)).await;
    (all, answer)
}

/// Sends a body to a wrapper, whose batches go to `take`; returns the answer.
async fn send_to(
    body: Vec<u8>,
    is_version_2: bool,
    mut take: impl FnMut(Batch),
) -> Result<Receipt, ShareExceeded> {
    let file = wrapper_file("kind = \"remote_write\"\nprefix = \"prometheus\"\n");
    let (sending, inbox) = mpsc::channel(1);
    let opening = WrapperOpening {
        file: &file,
        mark: None,
        condition: Condition::default(),
        notes: Default::default(),
        drops: Default::default(),
        inbox,
    };
    let mut wrapper = open(opening).unwrap();
    let (reply, mut answer) = oneshot::channel();
    let message = Inbound {
        body,
        form: Form::RemoteWrite { is_version_2 },
        sender: Default::default(),
        reply,
    };
    sending.send(message).await.unwrap();
    loop {
        let batch = wrapper.next().await.unwrap();
        let mark = batch.mark.clone();
        take(batch);
        wrapper.stored(&mark).await.unwrap();
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
    }
}

fn compressed(message: &impl prost::Message) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(&message.encode_to_vec())
        .unwrap()
}

const UP: [(&str, &str); 3] = [("__name__", "up"), ("instance", "a:9090"), ("job", "a")];

#[tokio::test]
async fn samples_are_elements_of_the_stream_of_their_metric() {
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let request = WriteRequest {
        timeseries: vec![
            series(
                &UP,
                &[
                    (1.0, 1_795_255_200_000),
                    (stale, 1_795_255_200_001),
                    (f64::NAN, -5),
                ],
            ),
            series(&[("__name__", "wait_seconds_sum")], &[(f64::INFINITY, 7)]),
        ],
        metadata: vec![MetricMetadata::default()],
    };
    let (batch, answer) = send(compressed(&request), false).await;
    let answer = answer.unwrap();
    assert_eq!(
        (answer.elements, answer.undecodable, answer.reason),
        (4, 0, None)
    );
    let part = &batch.parts[0];
    assert_eq!(&*part.stream, "prometheus.up");
    let text = |text: &str| Value::Text(text.to_owned());
    let first = &part.elements[0];
    assert_eq!(
        first.values,
        [text("a:9090"), text("a"), Value::Double(1.0)]
    );
    assert_eq!(first.key.as_deref(), Some("instance=a:9090,job=a"));
    assert_eq!(first.source_time.0, 1_795_255_200_000_000_000);
    let marker = &part.elements[1];
    assert_eq!(
        (&marker.values[2], marker.quality),
        (&Value::Null, chappe_stream::Quality::Bad)
    );
    let Value::Double(number) = part.elements[2].values[2] else {
        panic!("a number")
    };
    assert!(number.is_nan(), "it is kept apart from a marker");
    let fields = &batch.parts[1].definition.schema.fields;
    assert_eq!(fields[0].unit.as_deref(), Some("s"));
}

#[tokio::test]
async fn version_2_has_symbols_and_metadata() {
    let symbols = ["", "__name__", "heat", "job", "a", "Heat of it.", "celsius"];
    let one = TimeSeries2 {
        labels_refs: vec![1, 2, 3, 4],
        samples: vec![Sample {
            value: 21.5,
            timestamp: 1,
        }],
        histograms: vec![Vec::new(), Vec::new()],
        metadata: Some(Metadata2 {
            kind: 2,
            help_ref: 5,
            unit_ref: 6,
        }),
    };
    let wrong = TimeSeries2 {
        labels_refs: vec![1, 99],
        ..one.clone()
    };
    let request = Request2 {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![one, wrong],
    };
    let (batch, answer) = send(compressed(&request), true).await;
    let answer = answer.unwrap();
    assert_eq!((answer.elements, answer.undecodable), (1, 5));
    assert!(answer.reason.unwrap().contains("native histograms"));
    let definition = &batch.parts[0].definition;
    assert_eq!(definition.description.as_deref(), Some("Heat of it."));
    assert_eq!(definition.schema.fields[1].unit.as_deref(), Some("Cel"));
    assert!(batch.undecodable.iter().all(|one| one.is_cut));
}

#[tokio::test]
async fn units_are_ucum_codes_or_the_text_of_the_sender() {
    let symbols = [
        "",
        "__name__",
        "heat",
        "wait_seconds",
        "loads",
        "loads_count",
        "°C",
        "furlong",
        "kilometer",
    ];
    let of = |name_ref, unit_ref| TimeSeries2 {
        labels_refs: vec![1, name_ref],
        samples: vec![Sample {
            value: 1.0,
            timestamp: 1,
        }],
        histograms: Vec::new(),
        metadata: Some(Metadata2 {
            kind: 2,
            help_ref: 0,
            unit_ref,
        }),
    };
    let request = Request2 {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![of(2, 6), of(3, 7), of(4, 7), of(5, 8)],
    };
    let (batch, _) = send(compressed(&request), true).await;
    let units: Vec<_> = batch
        .parts
        .iter()
        .map(|part| (&*part.stream, part.definition.schema.fields[0].unit.clone()))
        .collect();
    let unit = |text: &str| Some(text.to_owned());
    let wanted = [
        ("heat", unit("Cel")),
        ("wait_seconds", unit("s")),
        ("loads", unit("furlong")),
        ("loads_count", None),
    ];
    for ((stream, unit), (name, wanted)) in units.iter().zip(wanted) {
        assert!(stream.ends_with(name), "{stream} {name}");
        assert_eq!(*unit, wanted, "{name}");
    }
    // A series whose unit changes is refused, as its numbers have another meaning.
    let request = Request2 {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![of(2, 6), of(2, 7), of(2, 6)],
    };
    let (batch, answer) = send(compressed(&request), true).await;
    assert_eq!(batch.elements(), 2);
    let reason = answer.unwrap().reason.unwrap();
    assert!(
        reason.contains("unit conflict") && reason.contains("furlong"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_request_that_is_none_is_refused_with_the_reason() {
    let (batch, answer) = send(b"no snappy".to_vec(), false).await;
    assert!(answer.unwrap().reason.unwrap().contains("snappy"));
    assert_eq!(batch.undecodable.len(), 1);
    // 4 GiB of zeros, by its own account.
    let (_, answer) = send(vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0], false).await;
    assert!(answer.unwrap().is_too_large);
    let body = snap::raw::Encoder::new().compress_vec(b"\x0a\xff").unwrap();
    let (_, answer) = send(body, false).await;
    assert!(answer.unwrap().reason.unwrap().contains("protocol buffers"));
    let unnamed = WriteRequest {
        timeseries: vec![series(&UP[1..], &[(1.0, 1)])],
        metadata: Vec::new(),
    };
    let (_, answer) = send(compressed(&unnamed), false).await;
    assert!(answer.unwrap().reason.unwrap().contains("__name__"));
}

#[tokio::test]
async fn a_large_request_is_read_in_pieces_and_answered_once() {
    let samples: Vec<(f64, i64)> = (0..9_000).map(|number| (1.0, number)).collect();
    let parts = samples.chunks(1_000).map(|samples| series(&UP, samples));
    let request = WriteRequest {
        timeseries: parts.collect(),
        metadata: Vec::new(),
    };
    let (batch, answer) = send(compressed(&request), false).await;
    assert_eq!((batch.elements(), answer.unwrap().elements), (9_000, 9_000));
    assert!(batch.mark.bytes() > &[1][..], "there were several batches");
}

/// Reads a body; returns the elements of its largest piece, those of all, and how many were refused.
fn read_in_pieces(
    body: Vec<u8>,
    is_version_2: bool,
    tables: &mut Tables,
) -> (usize, usize, Refused) {
    let mut protocol = Samples::default();
    let form = Form::RemoteWrite { is_version_2 };
    let mut request = protocol.begin(body, form).unwrap();
    let (mut largest, mut all, mut refused) = (0, 0, Refused::default());
    loop {
        let is_whole = protocol.read(&mut request, tables, &mut refused);
        let mut batch = Batch::default();
        tables.take(&mut batch);
        largest = largest.max(batch.elements());
        all += batch.elements();
        if is_whole {
            return (largest, all, refused);
        }
    }
}

fn new_tables() -> Tables {
    let options = Options {
        prefix: "p".to_owned(),
        label: "label",
        reserved: &["value"],
        ..Options::default()
    };
    Tables::new(options, None, 10)
}

#[test]
fn a_series_of_many_samples_is_read_in_pieces() {
    let samples: Vec<(f64, i64)> = (1..=9_000).map(|number| (1.0, number)).collect();
    let long = "x".repeat(8_000);
    for (labels, most) in [(UP, 2_048), ([UP[0], UP[1], ("job", &long)], 300)] {
        let request = WriteRequest {
            timeseries: vec![series(&labels, &samples), series(&UP, &[(1.0, 1)])],
            metadata: Vec::new(),
        };
        let (largest, all, _) = read_in_pieces(compressed(&request), false, &mut new_tables());
        assert_eq!(all, 9_001);
        assert!(largest <= most, "{largest} elements in one piece");
    }
}

#[tokio::test]
async fn a_sample_without_any_field_is_refused() {
    let request = WriteRequest {
        timeseries: vec![series(&UP, &[(0.0, 0), (0.0, 1), (1.0, 0), (0.0, 0)])],
        metadata: Vec::new(),
    };
    let (_, answer) = send(compressed(&request), false).await;
    let answer = answer.unwrap();
    assert_eq!((answer.elements, answer.undecodable), (2, 2));
}

#[tokio::test]
async fn labels_have_bounds() {
    let long = "x".repeat(20_000);
    let request = WriteRequest {
        timeseries: vec![series(&[UP[0], ("job", &long)], &[(1.0, 1), (1.0, 2)])],
        metadata: Vec::new(),
    };
    let (_, answer) = send(compressed(&request), false).await;
    let answer = answer.unwrap();
    assert_eq!((answer.elements, answer.undecodable), (0, 2));
    assert!(answer.reason.unwrap().contains("16384 bytes"));
    // Many references to one symbol.
    let one = TimeSeries2 {
        labels_refs: std::iter::once([0, 1])
            .chain([[2, 3]; 100])
            .flatten()
            .collect(),
        samples: vec![Sample {
            value: 1.0,
            timestamp: 1,
        }],
        ..TimeSeries2::default()
    };
    let symbols = ["__name__", "up", "a", &"x".repeat(1_000)];
    let request = Request2 {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![one],
    };
    let (_, answer) = send(compressed(&request), true).await;
    assert!(answer.unwrap().reason.unwrap().contains("16384 bytes"));
    let twice = WriteRequest {
        timeseries: vec![series(&[UP[0], UP[0]], &[(1.0, 1)])],
        metadata: Vec::new(),
    };
    let (_, answer) = send(compressed(&twice), false).await;
    assert!(answer.unwrap().reason.unwrap().contains("twice"));
}

#[test]
fn a_refused_series_is_shown_once() {
    let samples: Vec<(f64, i64)> = (1..=100).map(|number| (1.0, number)).collect();
    let request = WriteRequest {
        timeseries: vec![series(&UP[1..], &samples)],
        metadata: Vec::new(),
    };
    let (_, _, refused) = read_in_pieces(compressed(&request), false, &mut new_tables());
    assert_eq!(
        refused.shown(),
        (100, "{instance=\"a:9090\",job=\"a\"}\n".to_owned())
    );
}

#[test]
fn a_series_without_a_valid_sample_makes_no_stream() {
    let mut tables = new_tables();
    let times = [(1.0, i64::MAX), (1.0, -9_223_372_036_001)];
    let request = WriteRequest {
        timeseries: vec![series(&UP, &times)],
        metadata: Vec::new(),
    };
    let (_, all, refused) = read_in_pieces(compressed(&request), false, &mut tables);
    assert_eq!((all, refused.shown().0, tables.len()), (0, 2, 0));
}

#[tokio::test]
async fn the_number_has_the_column_value() {
    let request = WriteRequest {
        timeseries: vec![series(&[UP[0], ("value", "a")], &[(1.0, 1)])],
        metadata: Vec::new(),
    };
    let (batch, _) = send(compressed(&request), false).await;
    let part = &batch.parts[0];
    let names: Vec<_> = part
        .definition
        .schema
        .fields
        .iter()
        .map(|it| &*it.name)
        .collect();
    assert_eq!(names, ["value_2", "value"]);
    assert_eq!(part.elements[0].values[1], Value::Double(1.0));
}

proptest! {
    #[test]
    fn no_request_causes_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), is_version_2: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
        let (batch, answer) = runtime.block_on(send(body, is_version_2));
        prop_assert_eq!(batch.elements() as u64, answer.unwrap().elements);
        let raw = runtime.block_on(send(bytes, is_version_2));
        prop_assert!(raw.1.is_ok());
    }
}

#[tokio::test]
async fn a_small_request_that_has_very_many_bytes_of_elements_is_cut() {
    const SAMPLES: i64 = 40_000;
    let long = "x".repeat(8_000);
    let samples: Vec<(f64, i64)> = (0..SAMPLES).map(|time| (1.0, time)).collect();
    let request = WriteRequest {
        timeseries: vec![series(&[("__name__", "up"), ("a", &long)], &samples)],
        metadata: Vec::new(),
    };
    let body = compressed(&request);
    assert!(body.len() < 1 << 20, "{}", body.len());
    let mut elements = 0;
    let count = |batch: Batch| elements += batch.elements() as u64;
    let answer = send_to(body, false, count).await.unwrap();
    assert!(answer.is_too_large, "{answer:?}");
    assert_eq!(answer.elements, elements);
    assert!((1_000..30_000).contains(&elements), "{elements}");
    assert!(answer.reason.unwrap().contains("the rest is not stored"));
}
