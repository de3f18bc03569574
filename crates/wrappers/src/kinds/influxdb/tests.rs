//! Messages as agents and clients send them.

use std::io::Write as _;

use chappe_stream::{FieldType, Value};
use proptest::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::tests::{examples, wrapper_file};
use crate::{Batch, Condition, Form, Inbound, Receipt};

/// Sends bodies one after another to a wrapper; returns the elements of each, and its answer.
async fn send(keys: &str, bodies: Vec<(Vec<u8>, bool)>) -> Vec<(Batch, Receipt)> {
    let file = wrapper_file(&format!("kind = \"influxdb\"\nprefix = \"influx\"\n{keys}"));
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
    let mut outcomes = Vec::new();
    for (body, is_gzip) in bodies {
        let (reply, mut answer) = oneshot::channel();
        let message = Inbound {
            body,
            form: Form::LineProtocol {
                unit_ns: 1_000_000,
                is_gzip,
            },
            sender: Default::default(),
            reply,
        };
        sending.send(message).await.unwrap();
        let mut all = Batch::default();
        let receipt = loop {
            let batch = wrapper.next().await.unwrap();
            assert!(batch.has_volatile_mark && batch.drops_repeats);
            let mark = batch.mark.clone();
            all.append(batch);
            assert!(answer.try_recv().is_err(), "it is not stored yet");
            wrapper.stored(&mark).await.unwrap();
            if let Ok(answer) = answer.try_recv() {
                break answer.unwrap();
            }
        };
        outcomes.push((all, receipt));
    }
    outcomes
}

async fn send_text(text: &str) -> (Batch, Receipt) {
    let mut outcomes = send("", vec![(text.as_bytes().to_vec(), false)]).await;
    outcomes.remove(0)
}

#[tokio::test]
async fn measurements_are_streams_and_tags_are_columns() {
    let text = "cpu,host=a,core=0 idle=98.5,count=9007199254740993i,on=t,note=\"x\ny\" 1795255200001\n\
                # comment\n\n\
                cpu,host=b idle=97,big=18446744073709551615u\n\
                cpu,host=b idle=97 1795255200001\r\n\
                mem,host=a used_bytes=5u 1795255200001";
    let (batch, receipt) = send_text(text).await;
    assert_eq!((receipt.elements, receipt.undecodable), (3, 1));
    assert!(receipt.reason.unwrap().contains("18446744073709551615"));
    let part = &batch.parts[0];
    let fields = &part.definition.schema.fields;
    let fields: Vec<_> = fields
        .iter()
        .map(|it| (it.name.as_str(), it.field_type))
        .collect();
    let expected = [
        ("core", FieldType::Text),
        ("host", FieldType::Text),
        ("idle", FieldType::Double),
        ("count", FieldType::Integer),
        ("on", FieldType::Boolean),
        ("note", FieldType::Text),
    ];
    assert_eq!((&*part.stream, fields), ("influx.cpu", expected.to_vec()));
    let text = |text: &str| Value::Text(text.to_owned());
    let first = &part.elements[0];
    assert_eq!(
        first.values,
        [
            text("0"),
            text("a"),
            Value::Double(98.5),
            Value::Integer(9_007_199_254_740_993),
            Value::Boolean(true),
            text("x\ny"),
        ]
    );
    assert_eq!(first.source_time.0, 1_795_255_200_001_000_000);
    assert_eq!(first.key.as_deref(), Some("core=0,host=a"));
    assert_eq!(part.elements[1].values[0], Value::Null);
    let unit = batch.parts[1].definition.schema.fields[1].unit.as_deref();
    assert_eq!((&*batch.parts[1].stream, unit), ("influx.mem", Some("By")));
}

#[tokio::test]
async fn a_field_of_another_type_is_refused_and_the_others_are_stored() {
    let (batch, receipt) = send_text("a f=1 1\na f=2i 2\na f=\"x\" 3\na f=4 4\nno line\n").await;
    assert_eq!(
        (batch.elements(), receipt.elements, receipt.undecodable),
        (2, 2, 3)
    );
    let reason = receipt.reason.unwrap();
    assert!(
        reason.contains(
            "input field \"f\" on measurement \"a\" is type integer, already exists as type float"
        ),
        "{reason}"
    );
    let letter = &batch.undecodable[0];
    assert_eq!(letter.message, b"a f=2i 2\na f=\"x\" 3\nno line\n");
    assert!(letter.reason.ends_with("and 2 more") && letter.is_cut);
}

#[tokio::test]
async fn a_refused_point_makes_no_stream_and_no_column() {
    let keys = "limits = { streams = 1 }\n";
    let text = "b x=1,x=2i 1\nc x=1,y=2u,z=1x 1\nd,t=1 x=1 9223372036854775807\n\
                a,h=1 new=1,f=1 1\na,i=1 other=1i,f=2i 2\na other=1 3\n";
    let outcomes = send(keys, vec![(text.as_bytes().to_vec(), false)]).await;
    let (batch, receipt) = &outcomes[0];
    assert_eq!(
        (receipt.elements, receipt.undecodable),
        (2, 4),
        "{:?}",
        receipt.reason
    );
    let fields = &batch.parts[0].definition.schema.fields;
    let names: Vec<_> = fields.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["h", "new", "f", "other"]);
}

#[tokio::test]
async fn points_have_bounds() {
    let long = "x".repeat(17_000);
    let fields: Vec<_> = (0..257).map(|number| format!("f{number}=1")).collect();
    let text = format!(
        "a,t={long} f=1 1\nb {} 1\nc f=1 -9223372036001\nc f=1 -9223372036000\n",
        fields.join(",")
    );
    let (batch, receipt) = send_text(&text).await;
    assert_eq!((receipt.elements, receipt.undecodable), (1, 3));
    assert_eq!(&*batch.parts[0].stream, "influx.c");
    assert!(receipt.reason.unwrap().contains("16384 bytes"));
}

#[tokio::test]
async fn different_tags_have_different_keys() {
    let (batch, _) = send_text("a,a=1\\,b\\=2 f=1 1\na,a=1,b=2 f=1 1\na,a=1\\x f=1 1\n").await;
    let keys = batch.parts[0].elements.iter().map(|it| it.key.as_deref());
    let keys: Vec<_> = keys.map(Option::unwrap).collect();
    assert_eq!(keys, ["a=1\\,b\\=2", "a=1,b=2", "a=1\\\\x"]);
}

#[tokio::test]
async fn compressed_bodies_have_a_bound() {
    let compress = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let bomb = compress(&vec![b'\n'; (16 << 20) + 1]);
    let bodies = vec![
        (compress(b"a f=1 1\n"), true),
        (bomb, true),
        (b"no gzip".to_vec(), true),
    ];
    let outcomes = send("", bodies).await;
    let receipts: Vec<_> = outcomes
        .into_iter()
        .map(|(_, receipt)| (receipt.elements, receipt.undecodable, receipt.is_too_large))
        .collect();
    assert_eq!(receipts, [(1, 0, false), (0, 1, true), (0, 1, false)]);
}

#[tokio::test]
async fn a_long_message_is_read_in_pieces_and_bytes_that_are_no_text_lose_their_line_alone() {
    let mut body: Vec<u8> = Vec::new();
    for number in 0..10_000 {
        body.extend(format!("a,host=h{} f={number} {number}\n", number % 7).as_bytes());
        if number == 5_000 {
            body.extend(b"a f=\xff 1\n");
        }
    }
    let outcomes = send("", vec![(body, false)]).await;
    let (batch, receipt) = &outcomes[0];
    assert_eq!(
        (batch.elements(), receipt.elements, receipt.undecodable),
        (10_000, 10_000, 1)
    );
    assert!(batch.mark.bytes() > &[3][..], "there were several batches");
}

#[tokio::test]
async fn tags_may_be_parts_of_the_names_of_streams() {
    let keys = "split_by = [\"host\"]\nlimits = { streams = 2 }\n";
    let body = b"a,host=Web\\ 1 f=1 1\na f=1 1\na,host=c f=1 1\n".to_vec();
    let outcomes = send(keys, vec![(body, false)]).await;
    let (batch, receipt) = &outcomes[0];
    let names: Vec<&str> = batch.parts.iter().map(|part| &*part.stream).collect();
    assert_eq!(names, ["influx.a.web-1", "influx.a.none"]);
    assert!(receipt.reason.as_ref().unwrap().contains("limits.streams"));
}

#[test]
fn the_keys_of_a_file_are_checked() {
    let fault = |keys: &str| {
        let file = wrapper_file(&format!("kind = \"influxdb\"\n{keys}"));
        settings(&file)
            .map(|(_, options)| options.prefix)
            .map_err(|error| error.key)
    };
    assert_eq!(fault(""), Ok("test".to_owned()));
    assert_eq!(fault("prefix = \"A\""), Err("prefix".to_owned()));
    assert_eq!(
        fault("units = { \"cpu.idle\" = \"percent\" }"),
        Err("units".to_owned())
    );
    assert_eq!(fault("format = \"json\""), Err("format".to_owned()));
    let stream = "[[stream]]\nname = \"a\"\nfields = [{ name = \"b\", type = \"text\" }]";
    assert_eq!(fault(stream), Err("stream".to_owned()));
    let file = wrapper_file("kind = \"influxdb\"\ndatabases = [\"telegraf\"]\n");
    assert_eq!(crate::databases(&file), ["telegraf"]);
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let found = examples("influxdb");
    let wrapper = wrapper_file(&found[0]);
    assert_eq!(wrapper.kind().unwrap().name, "influxdb");
    let exporter = crate::ExporterFile::parse("a.toml".as_ref(), &found[1]).unwrap();
    assert_eq!(exporter.kind().unwrap().name, "influxdb");
    #[cfg(feature = "remote-write")]
    {
        let wrapper = wrapper_file(&examples("remote_write")[0]);
        assert_eq!(wrapper.kind().unwrap().name, "remote_write");
    }
}

proptest! {
    #[test]
    fn no_message_causes_a_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            r#"([a-c\\ ,="\n1i.]|\PC){0,80}"#.prop_map(String::into_bytes),
        ],
        is_gzip: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcomes = runtime.block_on(send("", vec![(bytes, is_gzip)]));
        let (batch, receipt) = &outcomes[0];
        prop_assert_eq!(batch.elements() as u64, receipt.elements);
    }
}
