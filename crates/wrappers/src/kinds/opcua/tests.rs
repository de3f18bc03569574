//! The kind as a whole: files, elements, and servers that do not speak the protocol.

use std::time::Duration;

use chappe_stream::{Quality, Timestamp, Value};
use opcua_types::{DataValue, DateTime, StatusCode, Variant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::elements::Elements;
use super::settings::{Deadband, Plan};
use super::value::date_time;
use crate::tests::{examples, open, wrapper_file, wrapper_file_in};
use crate::{Batch, WrapperFile};

const TEXT: &str = r#"
kind = "opcua"
endpoint = "opc.tcp://plc.example:4840/server"
[[nodes]]
stream_name = "boiler"
fields = [
    { name = "celsius", node = "ns=2;s=Boiler.Temp", type = "double", unit = "Cel", deadband = 0.5 },
    { name = "state", node = "/Objects/2:Boiler/2:State", type = "text", sampling_ms = 100 },
]
[[nodes]]
stream_name = "pumps"
stream_key = "north"
fields = [{ name = "rpm", node = "ns=2;i=7", type = "integer", queue_size = 1 }]
"#;

fn plan(text: &str) -> Plan {
    Plan::of(&wrapper_file(text)).unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn a_file_becomes_streams_of_nodes() {
    let plan = plan(TEXT);
    assert_eq!(plan.target.place, "plc.example:4840");
    let nodes: Vec<_> = plan
        .nodes
        .iter()
        .map(|it| (it.group, it.field, it.sampling_ms))
        .collect();
    assert_eq!(nodes, [(0, 0, 1_000.0), (0, 1, 100.0), (1, 0, 1_000.0)]);
    assert_eq!(plan.nodes[0].deadband, Some(Deadband::Absolute(0.5)));
    assert_eq!(
        plan.groups[1].definition.schema.key.as_deref(),
        Some("machine")
    );
    assert_eq!(plan.history_delay, None);
}

#[test]
fn faults_name_their_line() {
    for (from, to, line, key) in [
        (
            "opc.tcp://plc.example:4840/server",
            "http://plc",
            3,
            "endpoint",
        ),
        (
            "opc.tcp://plc.example:4840/server",
            "opc.tcp://a:b@plc",
            3,
            "endpoint",
        ),
        (
            "opc.tcp://plc.example:4840/server",
            "opc.tcp://plc:0",
            3,
            "endpoint",
        ),
        ("\"ns=2;s=Boiler.Temp\"", "\"ns=2\"", 7, "node"),
        ("\"boiler\"", "\"Boiler\"", 4, "stream_name"),
        ("\"state\"", "\"celsius\"", 4, "fields"),
        ("deadband = 0.5", "deadband = -0.5", 7, "deadband"),
        (
            "type = \"text\"",
            "type = \"text\", deadband = 1",
            8,
            "deadband",
        ),
        ("queue_size = 1", "queue_size = 0", 13, "queue_size"),
        ("\"pumps\"", "\"boiler\"", 10, "stream_name"),
        (
            "[[nodes]]",
            "publishing_ms = 1\n[[nodes]]",
            4,
            "publishing_ms",
        ),
        (
            "[[nodes]]",
            "security_policy = \"Basic256Sha256\"\n[[nodes]]",
            4,
            "security_policy",
        ),
        (
            "[[nodes]]",
            "security_policy = \"Basic256\"\n[[nodes]]",
            4,
            "security_policy",
        ),
        (
            "[[nodes]]",
            "security_mode = \"Sign\"\n[[nodes]]",
            4,
            "security_mode",
        ),
        (
            "[[nodes]]",
            "server_fingerprint = \"00\"\n[[nodes]]",
            4,
            "server_fingerprint",
        ),
        ("[[nodes]]", "user = \"a\"\n[[nodes]]", 4, "user"),
        (
            "[[nodes]]",
            "user = \"a\"\npassword_file = \"b\"\n[[nodes]]",
            3,
            "endpoint",
        ),
    ] {
        let file = wrapper_file(&TEXT.replacen(from, to, 1));
        let error = Plan::of(&file).unwrap_err();
        let found = error.key.rsplit(['.', ']']).next().unwrap();
        assert_eq!((error.line, found), (line, key), "{to}: {error}");
    }
}

#[test]
fn the_examples_are_valid() {
    let found = examples("opcua");
    assert!(!found.is_empty());
    for example in found {
        let file = wrapper_file(&example);
        file.kind()
            .unwrap_or_else(|fault| panic!("{fault}\n{example}"));
    }
}

fn value(variant: impl Into<Variant>, time: i64, status: StatusCode) -> DataValue {
    DataValue {
        value: Some(variant.into()),
        status: Some(status),
        source_timestamp: Some(date_time(Timestamp(time))),
        server_timestamp: Some(DateTime::now()),
        ..Default::default()
    }
}

fn collected(values: &[(usize, DataValue)]) -> Batch {
    let plan = plan(TEXT);
    let mut elements = Elements::default();
    for (node, value) in values {
        let time = super::elements::time_of(value, Timestamp(9));
        elements.add(
            &plan.groups,
            &plan.nodes[*node],
            value,
            (time, Timestamp(9)),
        );
    }
    elements.take().unwrap_or_default()
}

#[test]
fn values_of_one_time_become_one_element() {
    let good = StatusCode::Good;
    let batch = collected(&[
        (0, value(1.5, 100, good)),
        (1, value("on", 100, good)),
        (2, value(7_i32, 100, good)),
        (0, value(2.5, 200, good)),
        (0, value(3.5, 200, good)),
    ]);
    let of = |part: usize| -> Vec<Vec<Value>> {
        batch.parts[part]
            .elements
            .iter()
            .map(|it| it.values.clone())
            .collect()
    };
    let text = Value::Text("on".to_owned());
    let alone = |value| vec![Value::Double(value), Value::Null];
    assert_eq!(
        of(0),
        [vec![Value::Double(1.5), text], alone(2.5), alone(3.5)]
    );
    assert_eq!(of(1), [[Value::Integer(7)]]);
    assert_eq!(batch.parts[1].elements[0].key.as_deref(), Some("north"));
}

#[test]
fn a_status_becomes_the_quality_and_what_does_not_fit_a_dead_letter() {
    let uncertain = StatusCode::UncertainLastUsableValue;
    let batch = collected(&[
        (0, value(1.5, 100, uncertain)),
        (0, value(2.5, 200, StatusCode::BadSensorFailure)),
        (0, value("hot", 300, StatusCode::Good)),
    ]);
    let elements = &batch.parts[0].elements;
    let found: Vec<_> = elements
        .iter()
        .map(|it| (it.values[0].clone(), it.quality))
        .collect();
    assert_eq!(
        found,
        [
            (Value::Double(1.5), Quality::Questionable),
            (Value::Null, Quality::Bad)
        ]
    );
    let letter = &batch.undecodable[0];
    assert_eq!(letter.stream.as_deref(), Some("boiler"));
    assert!(
        letter.reason.contains("\"celsius\" (ns=2;s=Boiler.Temp)"),
        "{}",
        letter.reason
    );
}

#[test]
fn a_time_that_is_not_there_is_taken_from_the_server_or_the_receipt() {
    let mut bare = value(1.5, 0, StatusCode::Good);
    bare.source_timestamp = Some(DateTime::null());
    bare.server_timestamp = Some(date_time(Timestamp(700)));
    assert_eq!(
        super::elements::time_of(&bare, Timestamp(9)),
        Timestamp(700)
    );
    bare.server_timestamp = None;
    assert_eq!(super::elements::time_of(&bare, Timestamp(9)), Timestamp(9));
}

/// The error of a wrapper at a server that answers the first bytes with these.
async fn refused(file: impl Fn(u16) -> WrapperFile, answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut first = [0; 8];
        stream.read_exact(&mut first).await.unwrap();
        stream.write_all(&answer).await.unwrap();
        // Until the client has gone.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let mut wrapper = open(&file(port), None);
    let next = tokio::time::timeout(Duration::from_secs(40), wrapper.next()).await;
    server.abort();
    next.expect("the wrapper ends").unwrap_err().to_string()
}

#[tokio::test]
async fn hostile_servers_are_refused() {
    let file =
        |port: u16| wrapper_file(&TEXT.replace("plc.example:4840", &format!("127.0.0.1:{port}")));
    let header = |word: &[u8], size: u32| [word, &size.to_le_bytes()[..]].concat();
    let mut acknowledge = header(b"ACKF", 28);
    for number in [0_u32, 65_536, 65_536, 0, 0] {
        acknowledge.extend(number.to_le_bytes());
    }
    // A frame of 2 GiB, another protocol, and a frame too short for its own header, which the library does not check.
    let short = [acknowledge.clone(), header(b"OPNF", 12), vec![0; 4]].concat();
    let huge = [acknowledge, header(b"MSGF", 1 << 31), vec![0; 4_096]].concat();
    for answer in [huge, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), short] {
        let text = refused(file, answer).await;
        assert!(text.contains("opc.tcp://127.0.0.1"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    drop(listener);
    let file = wrapper_file_in(directory.path(), &TEXT.replace("plc.example:4840", &place));
    let error = open(&file, None).next().await.unwrap_err();
    assert!(error.to_string().contains(&place), "{error}");
}

#[test]
fn a_certificate_is_made_once_and_its_key_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let fingerprint = "ab:".repeat(32);
    let secure = format!(
        "security_policy = \"Basic256Sha256\"\nserver_fingerprint = \"{}\"\n[[nodes]]",
        fingerprint.trim_end_matches(':')
    );
    let file = wrapper_file_in(directory.path(), &TEXT.replacen("[[nodes]]", &secure, 1));
    let target = Plan::of(&file).unwrap().target;
    let made = || {
        let security =
            super::security::Security::of(&target).unwrap_or_else(|fault| panic!("{fault}"));
        (
            security.own.unwrap().0.to_der().unwrap(),
            security.application_uri,
        )
    };
    let (first, uri) = made();
    assert_eq!(uri, "urn:chappe:opcua:test");
    assert_eq!(made().0, first);
    let key = directory.path().join("opcua/test/private/private.pem");
    let mode = std::fs::metadata(key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another server than the one whose fingerprint the file has.
    let security = super::security::Security::of(&target).unwrap_or_else(|fault| panic!("{fault}"));
    let error = security.check_server(&target, &opcua_types::ByteString::from(&first));
    assert!(error.unwrap_err().hint().is_some());
}
