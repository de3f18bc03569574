//! Goal: InfluxDB's line protocol: tags, fields, integers, escapes and precisions of time.

use chappe_stream::{Timestamp, Value};

use crate::common::{NOW, decode, text, values};

const CONFIG: &str = r#"
format = "line_protocol"
[[stream]]
name = "{measurement}.{line}"
key = "{machine}"
fields = [
    { name = "celsius", type = "double" },
    { name = "people", type = "integer" },
    { name = "on", type = "boolean" },
    { name = "note", type = "text" },
]
"#;

#[test]
fn tags_name_stream_and_key() {
    let body = br#"
# comment
climate,line=3,machine=Press\ 1 celsius=21.5,people=9007199254740993i,on=T,note="a, \"b\" \\ c" 1795255200000000001
climate,line=3,machine=press celsius=1e1
climate,line=4,machine=x people=18446744073709551615u
climate,line=4,machine=x people=3
"#;
    let (elements, faults) = decode(CONFIG, body);
    assert_eq!(elements.len(), 3);
    let (stream, first) = &elements[0];
    assert_eq!(
        (stream.as_str(), first.key.as_deref()),
        ("climate.3", Some("Press 1"))
    );
    assert_eq!(first.source_time, Timestamp(1_795_255_200_000_000_001));
    assert_eq!(
        first.values,
        [
            Value::Double(21.5),
            Value::Integer(9_007_199_254_740_993),
            Value::Boolean(true),
            text("a, \"b\" \\ c")
        ]
    );
    assert_eq!(elements[1].1.source_time, NOW);
    assert_eq!(elements[2].1.values[1], Value::Integer(3));
    assert_eq!(
        faults,
        [
            "record 3, line 5, byte 168: {measurement}.{line}: field \"people\": 18446744073709551615 does not fit an integer of 64 bits"
        ]
    );
}

#[test]
fn wrong_lines_are_named() {
    let body = b"climate\nclimate,line celsius=1\nclimate,line=1,machine=a celsius=\nclimate,line=1,machine=a note=\"x\nclimate,line=1,machine=a on=true soon\n,a=b c=1\n";
    let (elements, faults) = decode(CONFIG, body);
    assert!(elements.is_empty());
    let words = [
        "field `key=value`",
        "has no value",
        "not a value of a field",
        "closing quote",
        "not a timestamp",
        "measurement",
    ];
    assert_eq!(faults.len(), words.len());
    for (fault, word) in faults.iter().zip(words) {
        assert!(fault.contains(word), "{fault}");
    }
}

#[test]
fn precision_and_selection() {
    let config = r#"
format = { line_protocol = { precision = "s" } }
[[stream]]
name = "cpu.{host}"
when = { measurement = ["cpu", "cpu2"], host = "a" }
fields = [{ name = "usage", type = "double" }]
"#;
    let body = b"cpu,host=a usage=1 1795255200\nmem,host=a usage=2\ncpu2,host=a usage=3 1795255201\ncpu,host=b usage=4\n";
    assert_eq!(
        values(config, body),
        [[Value::Double(1.0)], [Value::Double(3.0)]]
    );
}
