//! What the author of a descriptor expects of it: `NAME.test.toml` next to `NAME.toml`.
//!
//! ```toml
//! tolerance = 0.01                                # of numbers; default: a billionth of the number
//! fields = ["temperature:double:Cel"]             # only where a type or unit cannot be seen
//!
//! [[test]]
//! name = "a mean of two"
//! input = [
//!   { at = "0s", temperature = 20.0 },            # `at`: a time since the first row, or RFC 3339
//!   { at = "1s", temperature = 22.0, quality = "bad" },
//! ]
//! output = [
//!   { mean = 20.0 },                              # only what is written is compared
//!   { at = "1s", mean = 21.0 },
//! ]
//! ```
//!
//! A row of input has fields that the statements of the descriptor name, or that `fields` declares. Another one is an
//! error, since a misspelt field would be null. A row has its fields, and if wanted `at`, `key`, `quality` and, for a
//! descriptor with several sources, `source`. An empty array is null. A field with one of these names is written in a
//! table `values`.

use std::collections::BTreeSet;

use chappe_stream::descriptor::{nearest, toml_words};
use chappe_stream::view::ValueView;
use chappe_stream::{
    Descriptor, Field, Quality, Selection, StreamElement, Timestamp, Value, column_name,
};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toml::{Spanned, Table, Value as Toml};

use super::csv::quality;
use super::rows::{Row, START};
use crate::output::Failure;

/// Longest file in bytes; reason: a person writes some rows.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;
/// The tolerance of numbers without one, as a share of the number; reason: sums of doubles differ in their last digits
/// with the order of the summands.
const SHARE: f64 = 1e-9;

/// A file of expectations as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    tolerance: Option<f64>,
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    test: Vec<Spanned<RawTest>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTest {
    name: Option<String>,
    tolerance: Option<f64>,
    #[serde(default)]
    fields: Vec<String>,
    input: Vec<Spanned<Table>>,
    output: Vec<Spanned<Table>>,
}

/// A test.
#[derive(Debug, Clone)]
pub(super) struct Expectation {
    pub name: String,
    /// The line on which it begins.
    pub line: usize,
    pub tolerance: Option<f64>,
    pub fields: Vec<Field>,
    /// The rows of input, each with its source.
    pub input: Vec<(String, Row)>,
    pub output: Vec<Expected>,
}

/// A row of output as expected: only what is written is compared.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    line: usize,
    time: Option<Timestamp>,
    row: Row,
    has_quality: bool,
}

/// A difference between what came and what was expected.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// The row of output, from 1.
    pub row: usize,
    /// Its line in the file; `None`: a row that was not expected.
    pub line: Option<usize>,
    /// The field; `None`: the whole row.
    pub field: Option<String>,
    /// `Null` for a row that was not expected.
    pub expected: Json,
    /// `Null` for a row that did not come.
    pub found: Json,
}

/// Reads a file of expectations for a descriptor.
pub(super) fn parse(
    file: &str,
    text: &str,
    descriptor: &Descriptor,
) -> Result<Vec<Expectation>, Failure> {
    let place = |at: usize| {
        let end = at.min(text.len());
        1 + text.as_bytes()[..end]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    };
    let raw: RawFile = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| place(span.start));
        Failure::new(format!("{file}:{line}: {}", toml_words(error.message())))
            .coded("expectation_invalid")
            .hint("the format is in: chappe test --help")
    })?;
    let common = super::fields(&raw.fields)?;
    let mut tests = Vec::with_capacity(raw.test.len());
    for (index, test) in raw.test.into_iter().enumerate() {
        let line = place(test.span().start);
        let test = test.into_inner();
        let tolerance = test.tolerance.or(raw.tolerance);
        if tolerance.is_some_and(|it| !it.is_finite() || it < 0.0) {
            return Err(
                Failure::new(format!("{file}:{line}: the tolerance is not zero or above"))
                    .coded("expectation_invalid"),
            );
        }
        let mut fields = super::fields(&test.fields)?;
        let is_new = |field: &&Field| fields.iter().all(|own| own.name != field.name);
        let inherited: Vec<Field> = common.iter().filter(is_new).cloned().collect();
        fields.extend(inherited);
        let mut input = Vec::with_capacity(test.input.len());
        for table in test.input {
            let place = format!("{file}:{}", place(table.span().start));
            let mut table = table.into_inner();
            let source = source(&mut table, descriptor, &place)?;
            input.push((source, row(table, place)?.0));
        }
        check_input(&input, descriptor, &fields)?;
        let mut output = Vec::with_capacity(test.output.len());
        for table in test.output {
            let line = place(table.span().start);
            let (row, has_quality) = row(table.into_inner(), format!("{file}:{line}"))?;
            let known = &descriptor.output.schema.fields;
            for (name, _) in &row.values {
                if known.iter().all(|field| field.name != *name) {
                    let names: Vec<&str> = known.iter().map(|field| &*field.name).collect();
                    let failure =
                        Failure::new(format!("{file}:{line}: the output has no field {name:?}"))
                            .coded("expectation_invalid");
                    return Err(failure.hint(format!("its fields are {}", names.join(", "))));
                }
            }
            output.push(Expected {
                line,
                time: row.time,
                row,
                has_quality,
            });
        }
        tests.push(Expectation {
            name: test.name.unwrap_or_else(|| format!("test {}", index + 1)),
            line,
            tolerance,
            fields,
            input,
            output,
        });
    }
    Ok(tests)
}

/// Refuses fields of the input that no statement names and `declared` does not have.
fn check_input(
    input: &[(String, Row)],
    descriptor: &Descriptor,
    declared: &[Field],
) -> Result<(), Failure> {
    let words = words(descriptor);
    let fields = |alias: &'_ String| {
        let alias = alias.clone();
        let rows = input.iter().filter(move |(source, _)| *source == alias);
        rows.flat_map(move |(_, row)| row.values.iter().map(|(name, _)| name.as_str()))
    };
    for (alias, row) in input {
        let mut sources = descriptor.sources.iter();
        let source = sources.find(|source| source.alias == *alias);
        let is_query = source.is_some_and(|it| matches!(it.selection, Selection::Query(_)));
        for (name, _) in &row.values {
            // The only field of a source that a query finds is its `value`, whatever its name.
            let is_value = is_query && fields(alias).all(|other| other == name);
            let is_named = words.contains(&column_name(name).to_lowercase());
            if is_value || is_named || declared.iter().any(|field| field.name == *name) {
                continue;
            }
            let known = words.iter().map(String::as_str);
            let known: Vec<&str> = known
                .chain(declared.iter().map(|field| &*field.name))
                .collect();
            let hint = match nearest(name, &known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("if the stream has it, declare it: fields = [\"{name}:TYPE\"]"),
            };
            let message = format!(
                "{}: no statement names the input's field {name:?}",
                row.place
            );
            return Err(Failure::new(message)
                .coded("expectation_invalid")
                .hint(hint));
        }
    }
    Ok(())
}

/// The words of the statements in lower case, among them all columns that they read. With a `*`, those of the output are
/// read, too.
fn words(descriptor: &Descriptor) -> BTreeSet<String> {
    let statements = descriptor.statements.iter().map(|one| one.sql.as_str());
    let of_sources = descriptor.sources.iter();
    let of_sources = of_sources.filter_map(|source| source.sql.as_deref());
    let keys = descriptor.sources.iter();
    let keys = keys.filter_map(|source| Some(source.per.as_ref()?.column.as_str()));
    let mut texts: Vec<&str> = statements.chain(of_sources).chain(keys).collect();
    if texts.iter().any(|text| text.contains('*')) {
        let fields = descriptor.output.schema.fields.iter();
        texts.extend(fields.map(|field| field.name.as_str()));
    }
    let is_part = |c: char| c == '_' || c.is_alphanumeric();
    let words = texts.iter().flat_map(|text| text.split(|c| !is_part(c)));
    let words = words.filter(|word| !word.is_empty()).map(str::to_lowercase);
    // A name in quotes may have any characters.
    let quoted = texts
        .iter()
        .flat_map(|text| text.split(['"', '`', '[', ']']));
    words.chain(quoted.map(str::to_lowercase)).collect()
}

/// The source of a row of input: the one it names, or the only one.
fn source(table: &mut Table, descriptor: &Descriptor, place: &str) -> Result<String, Failure> {
    let aliases: Vec<&str> = descriptor.sources.iter().map(|it| &*it.alias).collect();
    match (table.remove("source"), &aliases[..]) {
        (Some(Toml::String(name)), known) if known.contains(&&*name) => Ok(name),
        (None, [only]) => Ok((*only).to_owned()),
        (given, known) => {
            let what = match given {
                None => "the row names no source".to_owned(),
                Some(given) => format!("there is no source {given}"),
            };
            let failure = Failure::new(format!("{place}: {what}")).coded("expectation_invalid");
            Err(failure.hint(format!("write source = one of {}", known.join(", "))))
        }
    }
}

/// A row, and whether it states a quality.
fn row(mut table: Table, place: String) -> Result<(Row, bool), Failure> {
    let wrong =
        |text: String| Failure::new(format!("{place}: {text}")).coded("expectation_invalid");
    let time = match table.remove("at") {
        None => None,
        Some(Toml::String(text)) => Some(time(&text).ok_or_else(|| {
            wrong(format!("at: {text:?} is not a time"))
                .hint("write \"1.5s\" after the start, or 2026-11-21T10:00:00Z")
        })?),
        Some(Toml::Datetime(time)) => {
            Some(Timestamp::parse(&time.to_string()).ok_or_else(|| {
                wrong(format!("at: {time} is not a time with its zone")).hint("add Z for UTC")
            })?)
        }
        Some(other) => {
            return Err(wrong(format!("at: {other} is not a time")).hint("write \"10s\""));
        }
    };
    let key = match table.remove("key") {
        None => None,
        Some(Toml::String(key)) => Some(key),
        Some(other) => return Err(wrong(format!("key: {other} is not a text"))),
    };
    let stated = match table.remove("quality") {
        None => None,
        Some(Toml::String(text)) => Some(quality(&text).ok_or_else(|| {
            wrong(format!("quality: {text:?} is not a quality"))
                .hint("write good, questionable or bad")
        })?),
        Some(other) => return Err(wrong(format!("quality: {other} is not a quality"))),
    };
    match table.remove("values") {
        None => {}
        Some(Toml::Table(more)) => table.extend(more),
        Some(other) => {
            table.insert("values".to_owned(), other);
        }
    }
    let mut values = Vec::with_capacity(table.len());
    for (name, value) in table {
        let value = match value {
            Toml::Boolean(flag) => Value::Boolean(flag),
            Toml::Integer(number) => Value::Integer(number),
            Toml::Float(number) => Value::Double(number),
            Toml::String(text) => Value::Text(text),
            Toml::Array(items) if items.is_empty() => Value::Null,
            other => {
                let failure = wrong(format!("{name}: {other} is not a value"));
                return Err(failure.hint("write a number, a text, true, false, or [] for null"));
            }
        };
        values.push((name, value));
    }
    let row = Row {
        place,
        time,
        received: None,
        key,
        quality: stated.unwrap_or(Quality::Good),
        values,
    };
    Ok((row, stated.is_some()))
}

/// A time since the start, such as `1.5s`, or one of RFC 3339.
fn time(text: &str) -> Option<Timestamp> {
    if let Some(time) = Timestamp::parse(text) {
        return Some(time);
    }
    let since = chappe_terminal::duration(text).ok()?;
    let since = i64::try_from(since.as_nanos()).ok()?;
    Some(Timestamp(START.0.checked_add(since)?))
}

/// Compares the results with what is expected, row by row.
pub(super) fn differences(
    test: &Expectation,
    descriptor: &Descriptor,
    outputs: &[&StreamElement],
) -> Vec<Difference> {
    let fields = &descriptor.output.schema.fields;
    let mut found = Vec::new();
    for index in 0..outputs.len().max(test.output.len()) {
        let row = index + 1;
        match (test.output.get(index), outputs.get(index)) {
            (Some(expected), Some(output)) => {
                compare(test, expected, (row, output), fields, &mut found);
            }
            (Some(expected), None) => found.push(Difference {
                row,
                line: Some(expected.line),
                field: None,
                expected: written(expected),
                found: Json::Null,
            }),
            (None, Some(output)) => {
                let values = fields.iter().zip(&output.values);
                let values = values.map(|(field, value)| (field.name.clone(), as_json(value)));
                found.push(Difference {
                    row,
                    line: None,
                    field: None,
                    expected: Json::Null,
                    found: Json::Object(values.collect()),
                });
            }
            (None, None) => {}
        }
    }
    found
}

fn compare(
    test: &Expectation,
    expected: &Expected,
    (row, output): (usize, &StreamElement),
    fields: &[Field],
    found: &mut Vec<Difference>,
) {
    let mut differ = |field: &str, expected_value: Json, found_value: Json| {
        found.push(Difference {
            row,
            line: Some(expected.line),
            field: Some(field.to_owned()),
            expected: expected_value,
            found: found_value,
        });
    };
    if let Some(time) = expected.time.filter(|time| *time != output.source_time) {
        differ(
            "at",
            json!(time.to_string()),
            json!(output.source_time.to_string()),
        );
    }
    let key = expected.row.key.as_ref();
    if key.is_some() && key != output.key.as_ref() {
        differ("key", json!(key), json!(output.key));
    }
    if expected.has_quality && expected.row.quality != output.quality {
        differ(
            "quality",
            json!(expected.row.quality.name()),
            json!(output.quality.name()),
        );
    }
    for (field, value) in fields.iter().zip(&output.values) {
        let wanted = expected
            .row
            .values
            .iter()
            .find(|(name, _)| *name == field.name);
        let Some((_, wanted)) = wanted else { continue };
        if !equal(wanted, value, test.tolerance) {
            differ(&field.name, as_json(wanted), as_json(value));
        }
    }
}

fn equal(wanted: &Value, found: &Value, tolerance: Option<f64>) -> bool {
    let number = |value: &Value| match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Double(number) => Some(*number),
        _ => None,
    };
    match (number(wanted), number(found)) {
        (Some(wanted), Some(found)) => {
            let tolerance = tolerance.unwrap_or(wanted.abs() * SHARE);
            wanted == found
                || (wanted - found).abs() <= tolerance
                || (wanted.is_nan() && found.is_nan())
        }
        _ => wanted == found,
    }
}

fn as_json(value: &Value) -> Json {
    json!(ValueView(value))
}

fn written(expected: &Expected) -> Json {
    let values = expected.row.values.iter();
    let values = values.map(|(name, value)| (name.clone(), as_json(value)));
    Json::Object(values.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        let text = "name = \"n\"\n[[source]]\nalias = \"air\"\nstream = \"s\"\n\
            [output]\nsql = \"select 1.0 as mean, 'a' as word from air where x > at\"\n\
            [[output.field]]\nname = \"mean\"\ntype = \"double\"\n\
            [[output.field]]\nname = \"word\"\ntype = \"text\"\n";
        Descriptor::parse("n.toml", text).unwrap()
    }

    fn output(mean: f64, word: Value) -> StreamElement {
        StreamElement {
            position: Default::default(),
            source_time: START,
            receive_time: START,
            key: None,
            values: vec![Value::Double(mean), word],
            quality: Quality::Good,
            origin: None,
        }
    }

    #[test]
    fn rows_are_compared_by_what_is_written() {
        let text = "tolerance = 0.1\n[[test]]\ninput = [{ x = 1 }]\noutput = [\n{ mean = 1 },\n\
            { at = \"0s\", mean = 2.0, word = [], quality = \"bad\" },\n{ mean = 3 },\n]\n";
        let tests = parse("n.test.toml", text, &descriptor()).unwrap();
        let first = output(1.05, Value::Text("any".to_owned()));
        let second = output(2.2, Value::Text("b".to_owned()));
        let found = differences(&tests[0], &descriptor(), &[&first, &second]);
        let places: Vec<_> = found
            .iter()
            .map(|it| (it.row, it.line, it.field.as_deref()))
            .collect();
        let wanted = [
            (2, Some(6), Some("quality")),
            (2, Some(6), Some("mean")),
            (2, Some(6), Some("word")),
            (3, Some(7), None),
        ];
        assert_eq!(places, wanted);
        assert_eq!(found[1].expected, json!(2.0));
        let found = differences(&tests[0], &descriptor(), &[&first, &first, &first, &first]);
        assert_eq!(
            (found.last().unwrap().row, found.last().unwrap().line),
            (4, None)
        );
    }

    #[test]
    fn wrong_files_are_refused_with_the_line() {
        for (text, words) in [
            (
                "[[test]]\ninput = []\n",
                "n.test.toml:1: missing field `output`",
            ),
            ("x = 1\n", "n.test.toml:1: unknown field `x`"),
            (
                "[[test]]\ninput = []\noutput = [{ median = 1 }]\n",
                ":3: the output has no field \"median\"",
            ),
            (
                "[[test]]\noutput = []\ninput = [{ at = \"soon\" }]\n",
                ":3: at: \"soon\" is not a time",
            ),
            (
                "[[test]]\noutput = []\ninput = [{ source = \"water\" }]\n",
                ":3: there is no source \"water\"",
            ),
            (
                "[[test]]\noutput = []\ninput = [{ x = { y = 1 } }]\n",
                ":3: x: ",
            ),
            (
                "[[test]]\noutput = []\ninput = [{ xx = 1 },\n  { x = 1 }]\n",
                ":3: no statement names the input's field \"xx\"",
            ),
            (
                "tolerance = -1.0\n[[test]]\noutput = []\ninput = []\n",
                ":2: the tolerance is not zero or above",
            ),
        ] {
            let error = parse("n.test.toml", text, &descriptor()).unwrap_err();
            assert!(error.message.contains(words), "{text}: {}", error.message);
        }
    }

    #[test]
    fn a_misspelt_field_of_the_input_is_refused_with_the_nearest_name() {
        let long = "name = \"n\"\n[[source]]\nalias = \"air\"\nstream = \"s\"\n[output]\n\
            sql = \"select avg(Temperature) as mean, [door_state] from air\"\n\
            [[output.field]]\nname = \"mean\"\ntype = \"double\"\n\
            [[output.field]]\nname = \"door_state\"\ntype = \"text\"\n";
        let long = Descriptor::parse("n.toml", long).unwrap();
        let parsed = |rows: &str| {
            let text = format!(
                "fields = [\"humidity:double\"]\n[[test]]\noutput = []\ninput = [{rows}]\n"
            );
            parse("n.test.toml", &text, &long)
        };
        assert!(parsed("{ temperature = 1, \"door_state\" = \"shut\" }, { humidity = 2 }").is_ok());
        for (rows, line, hint) in [
            (
                "{ temperature = 1 },\n{ temprature = 2 }",
                5,
                "did you mean temperature?",
            ),
            ("{ humdity = 2 }", 4, "did you mean humidity?"),
            (
                "{ wind = 2 }",
                4,
                "if the stream has it, declare it: fields = [\"wind:TYPE\"]",
            ),
        ] {
            let error = parsed(rows).unwrap_err();
            assert!(
                error.message.starts_with(&format!("n.test.toml:{line}: ")),
                "{}",
                error.message
            );
            assert_eq!(error.hint.as_deref(), Some(hint));
        }
        // The only field that a query finds has any name.
        let query = "query = { observed_property = \"urn:p\" }";
        let found = "name = \"n\"\n[[source]]\nalias = \"air\"\nQUERY\n[output]\nsql = \"select value as v from air\"\n\
            [[output.field]]\nname = \"v\"\ntype = \"double\"\n";
        let found = Descriptor::parse("n.toml", &found.replace("QUERY", query)).unwrap();
        let one = "[[test]]\noutput = []\ninput = [{ warmth = 1 }, { warmth = 2 }]\n";
        assert!(parse("n.test.toml", one, &found).is_ok());
        assert!(
            parse(
                "n.test.toml",
                &one.replace("warmth = 2", "warmt = 2"),
                &found
            )
            .is_err()
        );
    }

    #[test]
    fn names_of_the_format_are_fields_in_a_table_of_values() {
        let text = "[[test]]\noutput = []\ninput = [{ at = \"1500ms\", values = { at = 3 } }]\n";
        let tests = parse("n.test.toml", text, &descriptor()).unwrap();
        let (source, row) = &tests[0].input[0];
        assert_eq!(
            (source.as_str(), row.time.unwrap().0 - START.0),
            ("air", 1_500_000_000)
        );
        assert_eq!(row.values, [("at".to_owned(), Value::Integer(3))]);
    }
}
