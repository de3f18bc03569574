//! Chappe's exporters and wrappers for GSN with each other, on loopback.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::{
    Epoch, Field, FieldType, Position, StreamElement, StreamSchema, Timestamp, Value,
};

use crate::{
    Batch, Exporter, ExporterFile, ExporterOpening, Mark, StreamDefinition, Wrapper, WrapperFile,
    WrapperOpening, Written,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint with a port that is free now.
fn endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp://{}", listener.local_addr().unwrap())
}

fn wrapper(text: &str, mark: Option<Mark>) -> Box<dyn Wrapper> {
    let file = WrapperFile::parse(Path::new("wrappers/gsn.toml"), text).unwrap();
    let kind = file.kind().unwrap();
    let condition = Default::default();
    let opening = WrapperOpening {
        file: &file,
        mark,
        condition,
        notes: Default::default(),
        drops: Default::default(),
        inbox: tokio::sync::mpsc::channel(1).1,
    };
    (kind.open)(opening).unwrap()
}

fn exporter(text: &str) -> Box<dyn Exporter> {
    let file = ExporterFile::parse(Path::new("exporters/gsn.toml"), text).unwrap();
    let kind = file.kind().unwrap();
    (kind.open)(ExporterOpening {
        file: &file,
        notes: Default::default(),
        drops: Default::default(),
    })
    .unwrap()
}

const STREAM: &str = r#"
[[stream]]
name = "plant.line"
fields = [{ name = "number", type = "integer" }, { name = "level", type = "double" },
    { name = "note", type = "text" }, { name = "raw", type = "bytes" }, { name = "is_on", type = "boolean" }]
"#;

fn definition() -> Arc<StreamDefinition> {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [
        ("number", FieldType::Integer),
        ("level", FieldType::Double),
        ("note", FieldType::Text),
        ("raw", FieldType::Bytes),
        ("is_on", FieldType::Boolean),
    ];
    Arc::new(StreamDefinition {
        schema: StreamSchema {
            fields: fields.into_iter().map(field).collect(),
            key: None,
        },
        ..Default::default()
    })
}

fn element(number: i64) -> StreamElement {
    StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence: number as u64,
        },
        source_time: Timestamp(1_700_000_000_000_000_000 + number * 1_000_000),
        receive_time: Timestamp(0),
        key: None,
        values: vec![
            Value::Integer((1 << 53) + number),
            Value::Double(number as f64 / 7.0),
            match number % 3 {
                0 => Value::Null,
                _ => Value::Text(format!("größe {number}")),
            },
            Value::Bytes(vec![number as u8; 3]),
            Value::Boolean(number % 2 == 0),
        ],
        quality: Default::default(),
        origin: None,
    }
}

fn batch(numbers: impl IntoIterator<Item = i64>) -> Batch {
    let mut batch = Batch::default();
    for number in numbers {
        batch.push(&"plant.line".into(), &definition(), element(number));
    }
    batch
}

/// The elements as they arrive: numbered by nobody, received at another time.
fn arrived(elements: &[StreamElement]) -> Vec<StreamElement> {
    let bare = |element: &StreamElement| StreamElement {
        position: Position::default(),
        receive_time: Timestamp(0),
        ..element.clone()
    };
    elements.iter().map(bare).collect()
}

fn expected(numbers: impl IntoIterator<Item = i64>) -> Vec<StreamElement> {
    let elements: Vec<_> = numbers.into_iter().map(element).collect();
    arrived(&elements)
}

/// Takes and stores batches until there are `count` elements. Returns them and the last mark.
async fn take(wrapper: &mut dyn Wrapper, count: usize) -> (Vec<StreamElement>, Mark) {
    let (mut taken, mut mark) = (Vec::new(), Mark::default());
    while taken.len() < count {
        let batch = wrapper.next().await.unwrap();
        assert_eq!(batch.undecodable, []);
        for part in &batch.parts {
            assert_eq!(&*part.stream, "plant.line");
            taken.extend(arrived(&part.elements));
        }
        wrapper.stored(&batch.mark).await.unwrap();
        mark = batch.mark;
    }
    (taken, mark)
}

/// Runs both until the exporter has written. What the wrapper takes meanwhile is stored.
async fn write(
    exporter: &mut dyn Exporter,
    batch: &Batch,
    wrapper: &mut dyn Wrapper,
) -> (Written, Vec<StreamElement>) {
    let mut taken = Vec::new();
    let mut stored = VecDeque::new();
    let mut writing = exporter.write(batch);
    loop {
        if let Some(mark) = stored.pop_front() {
            wrapper.stored(&mark).await.unwrap();
        }
        tokio::select! {
            written = &mut writing => return (written.unwrap(), taken),
            batch = wrapper.next() => {
                let batch = batch.unwrap();
                let elements = batch.parts.iter().flat_map(|part| &part.elements);
                let elements: Vec<_> = elements.cloned().collect();
                taken.extend(arrived(&elements));
                stored.push_back(batch.mark);
            }
        }
    }
}

/// Lets a wrapper listen, for an exporter that connects at once.
async fn listen(wrapper: &mut dyn Wrapper) {
    let short = Duration::from_millis(50);
    assert!(tokio::time::timeout(short, wrapper.next()).await.is_err());
}

#[tokio::test]
async fn pushed_elements_are_written_when_they_are_stored() {
    let done = async {
        let at = endpoint();
        let text = format!("kind = \"gsn-zeromq-push\"\nlisten = \"{at}\"\n{STREAM}");
        let mut wrapper = wrapper(&text, None);
        listen(&mut *wrapper).await;
        let text = format!(
            "kind = \"gsn-zeromq-push\"\nstreams = [\"plant.line\"]\nendpoint = \"{at}\"\nwindow = 8"
        );
        let mut exporter = exporter(&text);
        for range in [1..=100, 101..=103] {
            let batch = batch(range.clone());
            let (written, taken) = write(&mut *exporter, &batch, &mut *wrapper).await;
            assert_eq!((written.refused.len(), taken), (0, expected(range)));
        }
        // A repetition is answered, and not stored again.
        let (_, taken) = write(&mut *exporter, &batch(100..=104), &mut *wrapper).await;
        assert_eq!(taken, expected([104]));
    };
    tokio::time::timeout(PATIENCE, done).await.unwrap();
}

#[tokio::test]
async fn an_element_that_is_not_stored_is_not_written() {
    let done = async {
        let at = endpoint();
        let text = format!("kind = \"gsn-zeromq-push\"\nlisten = \"{at}\"\n{STREAM}");
        let mut first = wrapper(&text, None);
        listen(&mut *first).await;
        let more = format!(
            "kind = \"gsn-zeromq-push\"\nstreams = [\"plant.line\"]\nendpoint = \"{at}\"\npatience_s = 1"
        );
        let mut exporter = exporter(&more);
        let one = batch([1]);
        let received = tokio::select! {
            written = exporter.write(&one) => panic!("{written:?}"),
            received = first.next() => received.unwrap(),
        };
        assert_eq!(received.elements(), 1);
        // The receiver ends before it has stored the element.
        drop(first);
        assert!(exporter.write(&one).await.is_err());
        let mut second = wrapper(&text, None);
        listen(&mut *second).await;
        let (_, taken) = write(&mut *exporter, &one, &mut *second).await;
        assert_eq!(taken, expected([1]));
    };
    tokio::time::timeout(PATIENCE, done).await.unwrap();
}

#[tokio::test]
async fn a_registered_sensor_is_delivered_and_its_structure_is_that_of_the_stream() {
    let done = async {
        let (at, directory) = (endpoint(), endpoint());
        let text = format!(
            "kind = \"gsn-zeromq-sync\"\nlisten = \"{at}\"\ndirectory = \"{directory}\"\nsensor = \"Plant.Line\"\n\
             stream_name = \"plant.line\"\n"
        );
        let mut first = wrapper(&text, None);
        listen(&mut *first).await;
        let more = format!(
            "kind = \"gsn-zeromq-sync\"\nstreams = [\"plant.line\"]\nendpoint = \"{at}\"\n\
             directory = \"{directory}\""
        );
        let mut exporter = exporter(&more);
        let (written, taken) = write(&mut *exporter, &batch(1..=20), &mut *first).await;
        assert_eq!((written.refused.len(), taken.len()), (0, 20));
        // GSN has no Boolean.
        assert_eq!(taken[1].values[4], Value::Integer(1));
        assert_eq!(taken[1].values[..4], element(2).values[..4]);
    };
    tokio::time::timeout(PATIENCE, done).await.unwrap();
}

#[tokio::test]
async fn published_elements_reach_a_subscriber_that_is_there() {
    let done = async {
        let (at, directory) = (endpoint(), endpoint());
        let text = format!(
            "kind = \"gsn-zeromq-async\"\nstreams = [\"plant.line\"]\nlisten = \"{at}\"\n\
             directory = \"{directory}\""
        );
        let mut exporter = exporter(&text);
        // The structure is known with the first element, which nobody receives.
        exporter.write(&batch([1])).await.unwrap();
        let text = format!(
            "kind = \"gsn-zeromq-async\"\naddress = \"{at}\"\ndirectory = \"{directory}\"\n\
             sensor = \"plant.line\"\n{STREAM}"
        );
        let mut wrapper = wrapper(&text, None);
        let mut number = 1;
        // Until the subscription has arrived.
        let first = loop {
            number += 1;
            exporter.write(&batch([number])).await.unwrap();
            let short = Duration::from_millis(50);
            if let Ok(batch) = tokio::time::timeout(short, wrapper.next()).await {
                break batch.unwrap();
            }
        };
        assert!(first.elements() > 0);
        let next = number + 1;
        exporter.write(&batch(next..next + 10)).await.unwrap();
        let (taken, _) = take(&mut *wrapper, 10).await;
        assert_eq!(taken[taken.len() - 10..], expected(next..next + 10));
    };
    tokio::time::timeout(PATIENCE, done).await.unwrap();
}

#[tokio::test]
async fn a_directory_knows_no_other_subscriber_and_no_other_sensor() {
    let done = async {
        let (at, directory) = (endpoint(), endpoint());
        let text = format!("kind = \"gsn-zeromq-push\"\nlisten = \"{at}\"\n{STREAM}");
        let mut wrapper = wrapper(&text, None);
        listen(&mut *wrapper).await;
        let more = format!(
            "kind = \"gsn-zeromq-sync\"\nstreams = [\"plant.line\"]\nendpoint = \"{at}\"\n\
             directory = \"{directory}\""
        );
        let mut exporter = exporter(&more);
        write(&mut *exporter, &batch([1]), &mut *wrapper).await;
        use chappe_transport::zeromq::{Limits, Request, Security};
        let mut request = Request::connect(&directory, Security::NullFrom2, Limits::default())
            .await
            .unwrap();
        let mut ask = async |question: String| {
            let question = bytes::Bytes::from(question);
            let answer = request.ask(question, PATIENCE).await.unwrap();
            chappe_gsn::kryo::decode_structure(answer.last()).unwrap()
        };
        assert_eq!(ask("plant.line".to_owned()).await.unwrap().len(), 5);
        assert_eq!(ask(format!("plant.line?{at}?0")).await.unwrap().len(), 5);
        assert_eq!(ask("plant.line?tcp://127.0.0.1:9".to_owned()).await, None);
        assert_eq!(ask("other".to_owned()).await, None);
        assert_eq!(ask("?".to_owned()).await, None);
    };
    tokio::time::timeout(PATIENCE, done).await.unwrap();
}

#[test]
fn settings_that_cannot_work_are_refused_with_their_key() {
    let refused = |text: &str| {
        let file = WrapperFile::parse(Path::new("wrappers/gsn.toml"), text).unwrap();
        file.kind().err().unwrap().to_string()
    };
    let sync = "kind = \"gsn-zeromq-sync\"\nsensor = \"a\"\ndirectory = \"tcp://127.0.0.1:1\"\n";
    for (text, key) in [
        (format!("{sync}listen = \"tcp://192.0.2.1:1\""), "listen"),
        (format!("{sync}listen = \"tcp://127.0.0.1\""), "listen"),
        (
            format!("{sync}listen = \"tcp://127.0.0.1:1\"\nsilence_s = 0"),
            "silence_s",
        ),
        (
            format!("{sync}listen = \"tcp://127.0.0.1:1\"\nstream_name = \"A B\""),
            "stream_name",
        ),
        (
            "kind = \"gsn-zeromq-push\"\nlisten = \"tcp://127.0.0.1:1\"".to_owned(),
            "[[stream]]",
        ),
    ] {
        let error = refused(&text);
        assert!(error.contains(key), "{error}");
    }
    let text = format!("{sync}listen = \"tcp://192.0.2.1:1\"\ninsecure = true");
    let file = WrapperFile::parse(Path::new("wrappers/gsn.toml"), &text).unwrap();
    assert!(file.kind().is_ok());
}
