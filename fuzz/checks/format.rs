//! What must hold of the formats of messages for any bytes.

use std::sync::{Arc, OnceLock};

use chappe_format::{Attributes, Decoder, Encoder, Encoding, Format, Message, Output};
use chappe_stream::Timestamp;

use crate::bounds::Bound;

/// A document of nested objects takes some hundred bytes for one of text, an element of two bytes too.
const BOUND: Bound = Bound::memory(4 << 20, 2_000);

/// Compiling a configuration includes regular expressions, whose size has its own limit.
const CONFIG_BOUND: Bound = Bound::memory(32 << 20, 4_000);

const FIELDS: &str = r#"
fields = [
    { name = "b", type = "boolean" },
    { name = "i", type = "integer" },
    { name = "d", type = "double", unit = "Cel" },
    { name = "t", type = "text" },
    { name = "x", type = "bytes" },
]
[[stream]]
name = "all"
fields = [{ name = "d", type = "double" }]
"#;

/// The configurations of each format; the first byte of an input chooses one.
const CONFIGS: [(&str, &[&str]); 9] = [
    (
        "json",
        &[
            "format = { json = { each = \"$.e[*]\", time = \"$.at\" } }\n[[stream]]\nname = \"s.{k}\"\nvariables = { k = \"$.k\" }",
            "format = { json = { lines = true, time = \"$.at\", time_format = \"s\", non_finite = \"null\" } }\n[[stream]]\nname = \"s\"",
            "format = { json = { each = \"$..[?@.d > 1 || count($..*) == 3]\" } }\n[[stream]]\nname = \"s\"",
        ],
    ),
    (
        "csv",
        &[
            "format = { csv = { time = \"at\" } }\n[[stream]]\nname = \"s.{k}\"",
            "format = { csv = { columns = [\"b\", \"i\", \"d\", \"t\", \"x\"], delimiter = \";\", decimal = \",\", comment = \"#\", null = [\"-\"] } }\n[[stream]]\nname = \"s\"",
            "format = { csv = { quote = \"\", skip_lines = 2, time = [\"day\", \"at\"], time_format = \"%d.%m.%y %I:%M:%S%f %p %z\" } }\n[[stream]]\nname = \"s\"",
        ],
    ),
    (
        "key_value",
        &[
            "format = { key_value = { time = \"at\", time_format = \"ms\" } }\n[[stream]]\nname = \"s.{k}\"",
            "format = { key_value = { assign = \":\", between = \"|\", whole = true } }\n[[stream]]\nname = \"s\"",
        ],
    ),
    (
        "regex",
        &[
            "format = { regex = { pattern = '(?<k>\\w+) (?<b>\\S*) (?<i>\\S*) (?<d>[-+.0-9e]*) (?<t>.*) (?<x>\\S*)' } }\n[[stream]]\nname = \"s.{k}\"",
            "format = { regex = { pattern = '<(?<b>.)(?<i>.)(?<d>.)(?<t>.)(?<x>.)>', whole = true } }\n[[stream]]\nname = \"s\"",
        ],
    ),
    (
        "line_protocol",
        &[
            "format = \"line_protocol\"\n[[stream]]\nname = \"{measurement}.{k}\"\nkey = \"{k}\"",
            "format = { line_protocol = { precision = \"s\" } }\n[[stream]]\nname = \"s\"\nwhen = { k = [\"a\", \"b\"] }",
        ],
    ),
    (
        "senml",
        &["format = { senml = { each = \"time\" } }\n[[stream]]\nname = \"s.{base_name}\""],
    ),
    (
        "nmea",
        &[
            "format = { nmea = { checksum_optional = true } }\n[[stream]]\nname = \"{talker}.{sentence}\"",
        ],
    ),
    (
        "binary",
        &[
            "format = { binary = { record_bytes = 16, header_bytes = 1, header = [{ name = \"k\", at = 0, type = \"u8\" }], layout = [{ name = \"b\", at = 0, type = \"u8\", bit = 1 }, { name = \"i\", at = 0, type = \"i64\" }, { name = \"d\", at = 8, type = \"f32\", scale = 3 }, { name = \"t\", at = 12, type = \"text\", length = 3 }, { name = \"x\", at = 12, type = \"bytes\" }] } }\n[[stream]]\nname = \"s.{k}\"",
            "format = { binary = { byte_order = \"little\", layout = [{ name = \"b\", at = 0, type = \"u24\", bit = 23 }, { name = \"i\", at = 0, type = \"u64\", bit = 0, bits = 64 }, { name = \"d\", at = 0, type = \"f64\" }, { name = \"t\", at = 8, type = \"text\" }, { name = \"x\", at = 0, type = \"bytes\" }] } }\n[[stream]]\nname = \"s\"",
        ],
    ),
    (
        "xml",
        &[
            "format = { xml = { each = \"e\", time = \"@at\" } }\n[[stream]]\nname = \"s.{k}\"\nvariables = { k = \"//@k\" }",
            "format = \"xml\"\n[[stream]]\nname = \"s\"",
        ],
    ),
];

/// The compiled configurations of a format.
type Compiled = (&'static str, Vec<Arc<Format>>);

fn formats(name: &str) -> Vec<Arc<Format>> {
    static FORMATS: OnceLock<Vec<Compiled>> = OnceLock::new();
    let all = FORMATS.get_or_init(|| {
        let compile = |(name, configs): &(&'static str, &[&str])| {
            let compile = |config: &&str| {
                // The fields are in the words of the format.
                let fields = match *name {
                    "nmea" => FIELDS
                        .replace("\"b\", type", "\"b\", path = \"6\", type")
                        .replace("\"i\", type", "\"i\", path = \"satellites\", type")
                        .replace("\"d\", type", "\"d\", path = \"lat\", type")
                        .replace("\"t\", type", "\"t\", path = \"2\", type")
                        .replace("\"x\", type", "\"x\", path = \"3\", type")
                        .replace("unit = \"Cel\"", "unit = \"rad\""),
                    _ => FIELDS.to_owned(),
                };
                let text = format!("{config}{fields}");
                let format = Format::parse(name, &text);
                Arc::new(format.unwrap_or_else(|error| panic!("{error}\n{text}")))
            };
            (*name, configs.iter().map(compile).collect())
        };
        CONFIGS.iter().map(compile).collect()
    });
    let found = all.iter().find(|(other, _)| *other == name);
    found.expect("a format of the table").1.clone()
}

/// No panic, within bounds; the same message gives the same elements; they fit their schemas, and every
/// encoder takes or refuses them. The first byte chooses the configuration.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(name: &str, data: &[u8]) {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    let formats = formats(name);
    let format = &formats[usize::from(*choice) % formats.len()];
    BOUND.hold(body.len(), || check_message(format, body));
}

/// As [`check`], with the configuration in the input: TOML, a zero, and the message.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check_config(data: &[u8]) {
    CONFIG_BOUND.hold(data.len(), || {
        let end = data.iter().position(|byte| *byte == 0);
        let (text, body) = data.split_at(end.unwrap_or(data.len()));
        let Ok(text) = std::str::from_utf8(text) else {
            return;
        };
        match Format::parse("f.toml", text) {
            Ok(format) => check_message(&Arc::new(format), body.get(1..).unwrap_or_default()),
            Err(error) => assert!(error.line > 0 && error.column > 0 && !error.message.is_empty()),
        }
    });
}

fn check_message(format: &Arc<Format>, body: &[u8]) {
    let now = Timestamp(1_800_000_000_000_000_000);
    let mut attributes = Attributes::new();
    attributes.set("line", "1");
    let message = Message::new(body, now).with(&attributes);
    let decode = || {
        let mut decoder = Decoder::new(Arc::clone(format));
        let mut output = Output::default();
        let outcome = decoder.decode(&message, &mut output);
        (decoder, output, outcome)
    };
    let (decoder, output, outcome) = decode();
    if body.len() < 4_096 {
        let (_, again, other) = decode();
        // A NaN is in no element, so that equality holds.
        assert_eq!((&output, &outcome), (&again, &other));
    }
    if outcome.is_err() {
        assert_eq!(output, Output::default());
    }
    assert!(output.faults.len() <= 100 && output.faults.len() as u64 <= output.fault_count);
    let mut text = String::new();
    for (stream, element) in &output.elements {
        let definition = decoder.stream(*stream);
        chappe_stream::check_name(&definition.name).expect("a name");
        definition
            .schema
            .check(element)
            .expect("an element of the schema");
        text.clear();
        for encoding in [
            Encoding::Json,
            Encoding::Csv(Default::default()),
            Encoding::LineProtocol,
            Encoding::Senml,
        ] {
            let encoder = Encoder::new(encoding, &definition.name, Arc::clone(&definition.schema));
            let _ = encoder.encode(element, &mut text);
        }
    }
}
