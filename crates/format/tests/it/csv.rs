//! Goal: comma-separated values: headers, delimiters, quotes, decimal commas, comments, pieces of a file.

use chappe_format::{Decoder, Message, Output};
use chappe_stream::Value;

use crate::common::{NOW, decode, decoder, refused, text, values};

const PLAIN: &str = r#"
format = "csv"
[[stream]]
name = "a"
fields = [{ name = "celsius", type = "double" }, { name = "note", type = "text" }]
"#;

#[test]
fn the_header_names_the_columns() {
    let body = b"note, celsius ,other\nx,21.5,1\n\"a \"\"b\"\"\nc\",,2\n\"\",3,\n";
    assert_eq!(
        values(PLAIN, body),
        [
            vec![Value::Double(21.5), text("x")],
            vec![Value::Null, text("a \"b\"\nc")],
            vec![Value::Double(3.0), text("")],
        ]
    );
}

#[test]
fn european_files_are_read() {
    let config = r##"
format = { csv = { delimiter = ";", decimal = ",", comment = "#", skip_lines = 1, null = ["---"],
    time = ["Datum", "Zeit"], time_format = "%d.%m.%Y %H:%M:%S", time_zone = "+01:00" } }
[[stream]]
name = "station.{Station}"
fields = [{ name = "celsius", path = "Temperatur", type = "double" }, { name = "n", path = "Anzahl", type = "integer" }]
"##;
    let body = "Export 1.2\r\n# Kommentar\r\nStation;Datum;Zeit;Temperatur;Anzahl\r\nNord;21.11.2026;10:30:00;21,5;3\r\n\r\nNord;21.11.2026;10:31:00;---;4\r\nNord;21.11.2026;10:32:00;1.234,5;4\r\nNord;32.11.2026;10:32:00;1,5;4\r\n";
    let (elements, faults) = decode(config, body.as_bytes());
    assert_eq!(elements.len(), 2);
    assert_eq!(elements[0].0, "station.nord");
    assert_eq!(
        elements[0].1.source_time.to_string(),
        "2026-11-21T09:30:00Z"
    );
    assert_eq!(
        elements[0].1.values,
        [Value::Double(21.5), Value::Integer(3)]
    );
    assert_eq!(elements[1].1.values, [Value::Null, Value::Integer(4)]);
    assert!(
        faults[0].contains("line 7") && faults[0].contains("1.234,5"),
        "{faults:?}"
    );
    assert!(
        faults[1].contains("line 8") && faults[1].contains("not a time"),
        "{faults:?}"
    );
}

#[test]
fn wrong_rows_cost_themselves() {
    let body = b"celsius,note\n1,a\n2\n3,b\"c\n4,\"d\"e\n\xff,x\n5,f\n6,\"g\n7,h\n";
    let (elements, faults) = decode(PLAIN, body);
    let found: Vec<_> = elements
        .iter()
        .map(|(_, it)| it.values[0].clone())
        .collect();
    assert_eq!(found, [1.0, 5.0, 7.0].map(Value::Double));
    let words = [
        "row has 1 cells",
        "inside a cell",
        "after its closing",
        "UTF-8",
        "no closing quote",
    ];
    assert_eq!(faults.len(), words.len(), "{faults:?}");
    for ((fault, word), line) in faults.iter().zip(words).zip([3, 4, 5, 6, 8]) {
        assert!(
            fault.contains(word) && fault.contains(&format!("line {line}")),
            "{fault}"
        );
    }
}

#[test]
fn columns_without_a_header_and_pieces_of_a_file() {
    let config = r#"
format = { csv = { columns = ["t", "celsius", "note"], delimiter = "	", quote = "", time = "t", time_format = "s" } }
[[stream]]
name = "a"
fields = [{ name = "celsius", type = "double" }, { name = "note", type = "text" }]
"#;
    let found = values(config, b"1795255200.5\t1\t\"x\n1795255201\t2\t\n");
    assert_eq!(
        found,
        [
            vec![Value::Double(1.0), text("\"x")],
            vec![Value::Double(2.0), Value::Null],
        ]
    );
    let mut decoder: Decoder = decoder(PLAIN);
    let mut output = Output::default();
    decoder
        .decode(&Message::new(b"celsius,note\n1,a\n", NOW), &mut output)
        .unwrap();
    decoder
        .decode(&Message::new(b"2,b\n", NOW).continued(), &mut output)
        .unwrap();
    assert_eq!(output.elements[0].1.values, [Value::Double(2.0), text("b")]);
    decoder
        .decode(&Message::new(b"2,b\n", NOW), &mut output)
        .unwrap();
    assert!(output.elements.is_empty(), "a new text has its own header");
}

#[test]
fn headers_that_are_none() {
    assert!(refused(PLAIN, b"a,a\n1,2\n").contains("occurs twice"));
    assert!(refused(PLAIN, b"\"a\n1,2\n").contains("no closing quote"));
    let (elements, faults) = decode(PLAIN, b"x,y\n1,2\n");
    assert!(elements.is_empty());
    assert_eq!(
        faults,
        ["record 1, line 2, byte 4: no field of any stream has a value in it"]
    );
}
