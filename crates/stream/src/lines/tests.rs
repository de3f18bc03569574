//! Goal: each kind of bad record is refused with its line and reason, the records around it are read,
//! and how a body is cut into pieces changes nothing.

use super::*;
use crate::{Field, FieldType, Quality, Value};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_000_000_000_000);
const FUTURE_NS: i64 = 60_000_000_000;

fn schema(key: Option<&str>) -> Arc<StreamSchema> {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [
        ("b", FieldType::Boolean),
        ("i", FieldType::Integer),
        ("d", FieldType::Double),
        ("t", FieldType::Text),
        ("x", FieldType::Bytes),
        ("s", FieldType::Samples),
    ];
    Arc::new(StreamSchema {
        fields: fields.map(field).to_vec(),
        key: key.map(str::to_owned),
    })
}

/// Reads a body that arrives in pieces of so many bytes.
fn read(
    format: Format,
    schema: Arc<StreamSchema>,
    body: &[u8],
    piece: usize,
) -> (Vec<Line>, Result<(), Broken>) {
    let mut reader = ElementReader::new(format, schema, FUTURE_NS);
    let mut lines = Vec::new();
    let mut outcome = Ok(());
    for piece in body.chunks(piece.max(1)) {
        outcome = outcome.and_then(|()| reader.push(piece, NOW, &mut lines));
    }
    let outcome = outcome.and_then(|()| reader.finish(NOW, &mut lines));
    (lines, outcome)
}

fn one(format: Format, body: &str) -> Result<crate::StreamElement, LineError> {
    let (mut lines, outcome) = read(format, schema(None), body.as_bytes(), 7);
    outcome.unwrap();
    assert_eq!(lines.len(), 1, "{body}");
    lines.remove(0).element
}

#[test]
fn every_type_is_read_in_each_format() {
    let json = r#"{"source_time": "1970-01-01T00:00:01Z", "quality": "bad", "b": true, "i": -7,
        "d": 1.5, "t": "a\"}b", "x": "AP8=",
        "s": {"start": "1970-01-01T00:00:00Z", "period_s": 0.004, "values": [1, 2.5]}}"#;
    let element = one(Format::Json, json).unwrap();
    assert_eq!(element.source_time, Timestamp(1_000_000_000));
    assert_eq!((element.receive_time, element.quality), (NOW, Quality::Bad));
    let Value::Samples(samples) = &element.values[5] else {
        panic!("{element:?}");
    };
    assert_eq!(
        (samples.period_ns, &*samples.values),
        (4_000_000, &[1.0, 2.5][..])
    );
    assert_eq!(element.values[3], Value::Text("a\"}b".into()));
    assert_eq!(
        one(Format::Ndjson, &json.replace('\n', " ")).unwrap(),
        element
    );
    let csv = "source_time,quality,b,i,d,t,x\n\
        1970-01-01T00:00:01Z,bad,true,-7,1.5,\"a\"\"}b\",AP8=";
    let mut without_samples = element.clone();
    without_samples.values[5] = Value::Null;
    assert_eq!(one(Format::Csv, csv).unwrap(), without_samples);
}

#[test]
fn a_missing_time_is_the_arrival_and_an_empty_cell_is_null() {
    let element = one(Format::Csv, "source_time,i,t\n,,\"\"\r\n").unwrap();
    assert_eq!(element.source_time, NOW);
    assert_eq!(element.values[1], Value::Null);
    assert_eq!(element.values[3], Value::Text(String::new()));
}

#[test]
fn a_number_that_is_an_integer_exactly_is_one_however_it_is_written() {
    let exact = [
        ("-0", 0),
        ("-0.0", 0),
        ("0e9", 0),
        ("1.0", 1),
        ("-1.50e1", -15),
        ("1e3", 1_000),
        ("1200e-2", 12),
        ("9007199254740993.0", 9_007_199_254_740_993),
        ("922337203685477580.7e1", i64::MAX),
        ("-9223372036854775808.0", i64::MIN),
    ];
    for (text, number) in exact {
        for (format, body) in [
            (Format::Ndjson, format!("{{\"d\": 0.5, \"i\": {text}}}")),
            (Format::Csv, format!("d,i\n0.5,{text}\n")),
        ] {
            let element = one(format, &body).unwrap();
            assert_eq!(element.values[1], Value::Integer(number), "{body}");
        }
    }
    let others = [
        "1.5",
        "1e-1",
        "4503599627370497.25",
        "9223372036854775808.0",
        "1e19",
        "1e300",
    ];
    for text in others {
        for (format, body) in [
            (Format::Ndjson, format!("{{\"i\": {text}}}")),
            (Format::Csv, format!("i\n{text}\n")),
        ] {
            let error = one(format, &body).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("type integer, not {text}")),
                "{body}: {error}"
            );
        }
    }
    for text in [
        ".5e1",
        "1.",
        "1e",
        "1e1.0",
        "1_0",
        "0x10",
        "--1",
        "e5",
        "1e99999999999",
    ] {
        let error = one(Format::Csv, &format!("i\n{text}\n")).unwrap_err();
        assert!(
            error.to_string().contains("type integer"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_byte_order_mark_precedes_a_body_only_whole_and_first() {
    let bodies = [
        (Format::Json, "{\"i\": 1}"),
        (Format::Json, "[{\"i\": 1}]"),
        (Format::Ndjson, "{\"i\": 1}\n"),
        (Format::Csv, "\"i\"\n1\n"),
    ];
    for (format, body) in bodies {
        let marked = [b"\xEF\xBB\xBF", body.as_bytes()].concat();
        for piece in 1..5 {
            let (lines, outcome) = read(format, schema(None), &marked, piece);
            outcome.unwrap();
            assert!(lines.len() == 1 && lines[0].element.is_ok(), "{lines:?}");
        }
    }
    for start in ["\u{feff}\u{feff}", " \u{feff}", "[\u{feff}"] {
        let (lines, _) = read(Format::Json, schema(None), start.as_bytes(), 1);
        assert!(lines.iter().all(|line| line.element.is_err()), "{start:?}");
    }
    let (lines, outcome) = read(Format::Json, schema(None), b"\xEF\xBB{\"i\": 1}", 9);
    assert!(lines.is_empty() && outcome.unwrap_err().reason.contains("not UTF-8"));
}

#[test]
fn each_bad_object_is_refused_with_its_reason() {
    let table = [
        (r#"{"i": 1.5}"#, "type integer, not 1.5"),
        (r#"{"i": 9223372036854775808}"#, "type integer"),
        (r#"{"i": "1"}"#, "type integer, not \"1\""),
        (r#"{"d": "1"}"#, "type double"),
        (r#"{"d": NaN}"#, "not JSON"),
        (r#"{"d": 1e999}"#, "not JSON"),
        (r#"{"b": 1}"#, "type boolean"),
        (r#"{"t": 1}"#, "type text"),
        (r#"{"x": "*"}"#, "not base64"),
        (
            r#"{"z": 1}"#,
            "unknown field \"z\"; the stream has b, i, d, t, x, s",
        ),
        (r#"{"i": 1, "i": 2}"#, "\"i\" occurs twice"),
        (r#"{"i": 1, "source_time": "yesterday"}"#, "is not a time"),
        (r#"{"i": 1, "source_time": 5}"#, "is not a time"),
        (
            r#"{"i": 1, "source_time": "1970-01-01T01:00:00Z"}"#,
            "more than 60 s ahead",
        ),
        (r#"{"i": 1, "quality": "fine"}"#, "quality: \"fine\""),
        (r#"{"i": 1, "key": "a"}"#, "has no keys"),
        (r#"{"i": 1, "key": 1}"#, "a key is a text"),
        ("{}", "no value"),
        (r#"{"i": null}"#, "no value"),
        (
            r#"{"s": {"start": "1970-01-01T00:00:00Z", "period_s": 0, "values": []}}"#,
            "period_s",
        ),
        (
            r#"{"s": {"start": "1970-01-01T00:00:00Z", "period_s": 1, "values": [null]}}"#,
            "finite numbers",
        ),
        (r#"{"s": [1]}"#, "type samples"),
        ("[1]", "not JSON"),
        ("7", "not JSON"),
        (r#"{"i": 1"#, "not JSON"),
    ];
    for (body, reason) in table {
        let error = one(Format::Ndjson, body).unwrap_err().to_string();
        assert!(error.contains(reason), "{body}: {error}");
    }
    let (lines, _) = read(Format::Ndjson, schema(Some("bed")), br#"{"i": 1}"#, 99);
    let error = lines[0].element.as_ref().unwrap_err().to_string();
    assert!(error.contains("needs a key"), "{error}");
    let (lines, _) = read(Format::Ndjson, schema(None), b"{\"t\": \"\xFF\"}", 99);
    assert_eq!(lines[0].element, Err(LineError::Encoding));
}

#[test]
fn each_bad_row_is_refused_with_its_reason() {
    let table = [
        ("i,d\n1\n", "has 1 cells, the header 2"),
        ("i,d\n1,2,3\n", "has 3 cells, the header 2"),
        ("i\n1.5\n", "type integer, not 1.5"),
        ("d\nNaN\n", "not a finite number"),
        ("d\ninf\n", "not a finite number"),
        ("d\n1;5\n", "type double"),
        ("b\nyes\n", "type boolean"),
        ("t\na\"b\n", "a quote is inside"),
        ("t\n\"a\"b\n", "a comma is missing"),
        ("i\n\"\n\"\n", "type integer"),
    ];
    for (body, reason) in table {
        let error = one(Format::Csv, body).unwrap_err().to_string();
        assert!(error.contains(reason), "{body:?}: {error}");
    }
    for (body, reason) in [
        ("i,z\n1,2\n", "unknown field \"z\""),
        ("i,i\n1,2\n", "\"i\" occurs twice"),
        ("s\n1\n", "only JSON has"),
    ] {
        let (lines, outcome) = read(Format::Csv, schema(None), body.as_bytes(), 99);
        let broken = outcome.unwrap_err();
        assert!(broken.to_string().contains(reason), "{body:?}: {broken}");
        assert!(lines.is_empty());
    }
}

#[test]
fn lines_are_counted_as_an_editor_does() {
    let body = "\u{feff}i,t\r\n1,\"two\nlines\"\r\n\r\nx,bad\r\n3,good";
    let (lines, outcome) = read(Format::Csv, schema(None), body.as_bytes(), 5);
    outcome.unwrap();
    let found: Vec<_> = lines
        .iter()
        .map(|line| (line.line, line.index, line.element.is_ok()))
        .collect();
    assert_eq!(found, [(2, 0, true), (5, 1, false), (6, 2, true)]);
    let body = b"{\"i\":1}\n\n  \n{\"i\":x}\n{\"i\":3}\n";
    let (lines, outcome) = read(Format::Ndjson, schema(None), body, 5);
    outcome.unwrap();
    let found: Vec<_> = lines.iter().map(|line| line.line).collect();
    assert_eq!(found, [1, 4, 5]);
}

#[test]
fn an_array_is_read_until_it_loses_its_structure() {
    let table = [
        ("[]", 0, ""),
        (r#" [ {"i":1} , {"t":"],["} ] "#, 2, ""),
        (r#"[{"i":1},7,{"i":2}]"#, 3, ""),
        (r#"[{"i":1}"#, 1, "ends within its array"),
        (r#"[{"i":1},"#, 1, "ends within its array"),
        (r#"[{"i":1} {"i":2}]"#, 1, "a comma or ] is missing"),
        (r#"[,{"i":2}]"#, 0, "a value is missing"),
        (r#"[{"i":1},]"#, 1, "a value is missing"),
        (r#"[{"i":1}]x"#, 1, "continues after its value"),
        (r#"{"i":1}{"i":2}"#, 1, "continues after its value"),
        ("", 0, "empty"),
    ];
    for (body, count, reason) in table {
        let (lines, outcome) = read(Format::Json, schema(None), body.as_bytes(), 3);
        assert_eq!(lines.len(), count, "{body}");
        let error = outcome.err().map_or(String::new(), |it| it.to_string());
        assert!(
            error.contains(reason) && error.is_empty() == reason.is_empty(),
            "{body}: {error}"
        );
    }
}

#[test]
fn a_stray_quote_spoils_its_own_line_only() {
    let body = b"i,t\n1,a\n2,5\" pipe\n3,\"b\nc\"\n4,\"x\"\"y\"\n5,\"z\"q\n6,d\n";
    for piece in 1..20 {
        let (lines, outcome) = read(Format::Csv, schema(None), body, piece);
        outcome.unwrap();
        let found: Vec<_> = lines
            .iter()
            .map(|it| (it.line, it.element.is_ok()))
            .collect();
        let right = [
            (2, true),
            (3, false),
            (4, true),
            (6, true),
            (7, false),
            (8, true),
        ];
        assert_eq!(found, right);
    }
    let open = b"i,t\n1,a\n2,\"b\n3,c\n";
    let (lines, outcome) = read(Format::Csv, schema(None), open, 5);
    assert_eq!(lines.len(), 1);
    let Broken { line, reason } = outcome.unwrap_err();
    assert_eq!(line, 3);
    assert!(reason.contains("within the cell in quotes"), "{reason}");
}

#[test]
fn a_record_that_is_too_long_is_refused_and_not_held() {
    let mut reader = ElementReader::new(Format::Ndjson, schema(None), FUTURE_NS);
    let mut lines = Vec::new();
    reader.push(b"{\"t\":\"", NOW, &mut lines).unwrap();
    let piece = vec![b'a'; 1 << 16];
    for _ in 0..100 {
        reader.push(&piece, NOW, &mut lines).unwrap();
        assert!(reader.held_bytes() <= LINE_BYTES_MAX);
    }
    reader.push(b"\"}\n{\"i\":1}\n", NOW, &mut lines).unwrap();
    assert_eq!(lines[0].element, Err(LineError::TooLong));
    assert!(lines[1].element.is_ok());
    let values = vec!["1"; RECORD_BYTES / 8 + 1].join(",");
    let samples =
        format!(r#"{{"s":{{"start":"1970-01-01T00:00:00Z","period_s":1,"values":[{values}]}}}}"#);
    assert_eq!(one(Format::Ndjson, &samples), Err(LineError::TooLarge));
}

const RECORD_BYTES: usize = crate::RECORD_BYTES_MAX;

proptest! {
    #[test]
    fn cutting_a_body_into_pieces_changes_nothing(
        body in "[\\[\\]{}\",:\\\\ \nitd1-9-]{0,80}", piece in 1_usize..20,
    ) {
        for format in [Format::Json, Format::Ndjson, Format::Csv] {
            let whole = read(format, schema(None), body.as_bytes(), usize::MAX);
            let pieces = read(format, schema(None), body.as_bytes(), piece);
            prop_assert_eq!(whole, pieces);
        }
    }
}
