//! Goal: a configuration of formats is read whole, or refused with line, key and hint.

use chappe_format::{Format, format_json_schema};

const FIELDS: &str = "fields = [{ name = \"v\", type = \"double\" }]";

#[test]
fn an_error_names_line_column_key_and_hint() {
    // Text, line, column, key, part of the message, part of the hint.
    let table = [
        (
            "format = \"jsn\"\n[[stream]]\nname = \"a\"\nF",
            1,
            10,
            "format",
            "`jsn` is not one of",
            "json",
        ),
        (
            "format = { jsn = {} }\n[[stream]]\nname = \"a\"\nF",
            1,
            12,
            "jsn",
            "unknown key",
            "json",
        ),
        (
            "format = { json = {}, csv = {} }\n[[stream]]\nname = \"a\"\nF",
            1,
            10,
            "format",
            "2 formats",
            "write one",
        ),
        (
            "format = {}\n[[stream]]\nname = \"a\"\nF",
            1,
            10,
            "format",
            "0 formats",
            "write one",
        ),
        (
            "format = { json = { eac = 1 } }\n[[stream]]\nname = \"a\"\nF",
            1,
            21,
            "eac",
            "unknown key",
            "each",
        ),
        (
            "format = { json = { each = \"a\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            28,
            "each",
            "begins with `$`",
            "$.readings",
        ),
        (
            "format = \"regex\"\n[[stream]]\nname = \"a\"\nF",
            1,
            10,
            "format",
            "needs a pattern",
            "pattern",
        ),
        (
            "format = { regex = { pattern = \"(\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            32,
            "pattern",
            "unclosed group",
            "",
        ),
        (
            "format = { regex = { pattern = \"a\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            32,
            "pattern",
            "no named group",
            "(?<",
        ),
        (
            "format = { csv = { delimiter = \"ab\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            32,
            "delimiter",
            "one ASCII",
            "",
        ),
        (
            "format = { csv = { time_zone = \"CET\", time = \"t\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            32,
            "time_zone",
            "not an offset",
            "+02:00",
        ),
        (
            "format = { csv = { time_format = \"%Y\", time = \"t\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            34,
            "time_format",
            "no full date",
            "",
        ),
        (
            "format = { csv = { time_format = \"s\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            34,
            "time",
            "need `time`",
            "",
        ),
        (
            "format = { csv = { columns = [\"a\"] } }\n[[stream]]\nname = \"a\"\nF",
            4,
            20,
            "stream[0].fields[0].path",
            "\"v\" is not one of a",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"A\"\nF",
            3,
            8,
            "stream[0].name",
            "not a stream name",
            "",
        ),
        (
            "names = [\"line\"]\nformat = \"json\"\n[[stream]]\nname = \"a.{lin}\"\nF",
            4,
            8,
            "stream[0].name",
            "nothing gives a value for {lin}",
            "line",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a.{\"\nF",
            3,
            8,
            "stream[0].name",
            "not closed",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nsubject = \"x\"\nF",
            2,
            1,
            "stream[0].subject",
            "no `key`",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nstreams_max = 0\nF",
            4,
            15,
            "stream[0].streams_max",
            "1 to 100000",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nfields = []",
            4,
            10,
            "stream[0].fields",
            "0 fields",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"key\", type = \"text\" }]",
            4,
            20,
            "stream[0].fields[0].name",
            "every element has",
            "rename",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"V\", type = \"text\" }]",
            4,
            20,
            "stream[0].fields[0].name",
            "usable field name",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"v\", type = \"double\", unit = \"C°\" }]",
            4,
            49,
            "stream[0].fields[0].unit",
            "not a UCUM unit",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"v\", type = \"double\", unit = \"m\", source_unit = \"s\" }]",
            4,
            68,
            "stream[0].fields[0].source_unit",
            "does not convert",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"v\", type = \"integer\", unit = \"m\", source_unit = \"km\" }]",
            4,
            32,
            "stream[0].fields[0].type",
            "only doubles",
            "",
        ),
        (
            "format = \"csv\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"v\", type = \"samples\", period_s = 1 }]",
            4,
            20,
            "stream[0].fields[0].path",
            "samples exist in json",
            "",
        ),
        (
            "format = \"json\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"v\", type = \"samples\" }]",
            4,
            32,
            "stream[0].fields[0].period_s",
            "seconds from one",
            "0.004",
        ),
        (
            "names = [\"x\"]\nformat = \"json\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"{x}\", path = \"$\", type = \"text\" }]",
            5,
            20,
            "stream[0].fields[0].name",
            "also be in the name",
            "same fields",
        ),
        (
            "format = { binary = { layout = [{ name = \"v\", at = 0, type = \"u7\" }] } }\n[[stream]]\nname = \"a\"\nF",
            1,
            62,
            "type",
            "not a type of a layout",
            "u8",
        ),
        (
            "format = { binary = { layout = [{ name = \"v\", at = 0, type = \"u8\", bit = 8 }] } }\n[[stream]]\nname = \"a\"\nF",
            1,
            74,
            "bit",
            "8 unsigned bits",
            "",
        ),
        (
            "format = { binary = { record_bytes = 1, layout = [{ name = \"v\", at = 0, type = \"u16\" }] } }\n[[stream]]\nname = \"a\"\nF",
            1,
            38,
            "record_bytes",
            "needs 2 bytes",
            "",
        ),
        (
            "format = \"senml\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"temp\", type = \"double\" }]",
            4,
            20,
            "stream[0].fields[0].path",
            "not one of n, u",
            "",
        ),
        (
            "format = \"nmea\"\n[[stream]]\nname = \"a\"\nfields = [{ name = \"latt\", type = \"double\" }]",
            4,
            20,
            "stream[0].fields[0].path",
            "neither the number",
            "",
        ),
        (
            "format = { xml = { each = \"a//b\" } }\n[[stream]]\nname = \"a\"\nF",
            1,
            27,
            "each",
            "empty step",
            "",
        ),
    ];
    for (text, line, column, key, message, hint) in table {
        let text = text
            .strip_suffix("\nF")
            .map_or(text.to_owned(), |text| format!("{text}\n{FIELDS}"));
        let error = match Format::parse("f.toml", &text) {
            Ok(_) => panic!("it is accepted:\n{text}"),
            Err(error) => error,
        };
        let place = (error.line, error.column, error.key.as_str());
        assert_eq!(place, (line, column, key), "{error}\n{text}");
        assert!(error.message.contains(message), "{error}");
        assert!(
            error.hint.as_deref().unwrap_or_default().contains(hint),
            "{error}: {:?}",
            error.hint
        );
    }
}

#[test]
fn the_json_schema_knows_every_format() {
    let schema = format_json_schema().to_value().to_string();
    for word in [
        "line_protocol",
        "record_bytes",
        "checksum_optional",
        "source_unit_path",
        "streams_max",
        "between",
    ] {
        assert!(schema.contains(word), "{word}");
    }
}
