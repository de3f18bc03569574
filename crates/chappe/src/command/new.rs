//! `chappe new sensor`: the descriptor of a virtual sensor to begin with.

use chappe_stream::{Descriptor, Field, FieldType, check_name, column_name};
use serde_json::json;

use super::export::elements::schema;
use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use super::trial;
use crate::cli::{New, NewSensor};
use crate::output::{self, Failure, Outcome};

/// Fields of the stream that the file computes means of; reason: it is to be read.
const MEANS_MAX: usize = 8;
/// The JSON Schema next to the files, by which editors complete them.
const SCHEMA_FILE: &str = "sensor.schema.json";

/// Runs a verb of `new`.
pub(crate) fn run(verb: New, json: bool) -> Outcome {
    match verb {
        New::Sensor(flags) => sensor(&flags, json),
    }
}

fn sensor(flags: &NewSensor, json: bool) -> Outcome {
    for name in [&flags.name, &flags.from] {
        check_name(name).map_err(|error| {
            Failure::from(error)
                .hint("a name consists of a-z, 0-9, - and _, with dots between its parts")
        })?;
    }
    let path = flags.into.join(format!("{}.toml", flags.name));
    if flags.name == flags.from {
        let message = format!(
            "the sensor cannot write {}, the stream that it reads",
            flags.from
        );
        let failure = Failure::new(message).coded("argument_invalid");
        return Err(failure.hint("choose another name: a sensor's stream has the sensor's name"));
    }
    if flags.name.ends_with(".test") {
        let failure = Failure::new(format!(
            "{} would be a file of expectations",
            path.display()
        ))
        .coded("argument_invalid");
        return Err(failure.hint("choose a name that does not end in `.test`"));
    }
    if path.exists() && !flags.force {
        let failure =
            Failure::new(format!("{} already exists", path.display())).coded("file_exists");
        return Err(failure.hint("choose another name, or add --force to overwrite it"));
    }
    let fields = match flags.fields.is_empty() {
        true => of_node(flags)?,
        false => trial::fields(&flags.fields)?,
    };
    let text = valid_text(&flags.name, &flags.from, &fields)?;
    output::folder(&flags.into)
        .map_err(|failure| failure.hint("name a directory that you can write: --into DIR"))?;
    let schema = flags.into.join(SCHEMA_FILE);
    if !schema.exists() {
        let schema_text = serde_json::to_string_pretty(&chappe_node::config::sensor_schema())?;
        output::file(&schema, &schema_text)?;
    }
    output::file(&path, &text)?;
    let shown = path.display();
    if json {
        output::json(&json!({ "file": path, "schema": schema, "sensor": flags.name }));
    } else {
        output::line(format_args!("wrote {shown}"));
    }
    output::progress(format_args!("next: chappe try {shown}"));
    Ok(())
}

/// The fields of the stream as the node describes them.
fn of_node(flags: &NewSensor) -> Result<Vec<Field>, Failure> {
    let mut fields = Vec::new();
    network::block_on(async {
        let node = NodeClient::new(&flags.node)?;
        let path = format!("/api/v1/streams/{}", percent(&flags.from));
        fields = schema(&node.get(&path).await?)?.fields;
        Ok(())
    })
    .map_err(
        |failure| match failure.message.starts_with("no node answers") {
            true => failure.hint(format!(
                "start the node, or give the fields: chappe new sensor {} --from {} --fields \
             temperature:double:Cel",
                flags.name, flags.from
            )),
            false => failure,
        },
    )?;
    Ok(fields)
}

/// The descriptor, valid whatever the names and units of the fields: names are in quotes only if one is a word of SQL.
fn valid_text(name: &str, stream: &str, fields: &[Field]) -> Result<String, Failure> {
    let plain = text(name, stream, fields, "");
    if Descriptor::parse(name, &plain).is_ok() {
        return Ok(plain);
    }
    let in_quotes = text(name, stream, fields, "\"");
    Descriptor::parse(name, &in_quotes)?;
    Ok(in_quotes)
}

/// The descriptor: means of the numbers over one minute, or the number of elements if there are none.
fn text(name: &str, stream: &str, fields: &[Field], quote: &str) -> String {
    let column = |field: &Field| format!("{quote}{}{quote}", column_name(&field.name));
    let numbers = fields
        .iter()
        .filter(|field| matches!(field.field_type, FieldType::Double | FieldType::Integer));
    let numbers: Vec<&Field> = numbers.take(MEANS_MAX).collect();
    let mut columns = Vec::new();
    let mut declared = String::new();
    for field in &numbers {
        let mean = mean_name(&field.name, fields);
        columns.push(format!("avg({}) as {mean}", column(field)));
        declared.push_str(&format!("\n[[output.field]]\nname = {}\n", quoted(&mean)));
        declared.push_str("type = \"double\"\n");
        for (key, value) in [
            ("unit", &field.unit),
            ("observed_property", &field.observed_property),
        ] {
            if let Some(value) = value {
                declared.push_str(&format!("{key} = {}\n", quoted(value)));
            }
        }
    }
    if columns.is_empty() {
        columns.push("count(*) as elements".to_owned());
        declared.push_str("\n[[output.field]]\nname = \"elements\"\ntype = \"integer\"\n");
    }
    let known = fields.iter().map(|field| {
        let unit = field.unit.as_ref().map(|unit| format!(" in {unit}"));
        let unit = output::clean(&unit.unwrap_or_default());
        format!(
            "#   {} {}{unit}\n",
            column_name(&field.name),
            field.field_type.name()
        )
    });
    let known: String = known.collect();
    let alarm = numbers.first().map_or_else(String::new, |field| {
        format!(
            "\n# An alarm is one more column and field: avg({}) > 30 as alarm, of type boolean.",
            column(field)
        )
    });
    format!(
        "#:schema ./{SCHEMA_FILE}\n\
         # Try it: chappe try {name}.toml. Check it: chappe test, by rows in {name}.test.toml.\n\
         name = {quoted_name}\n\
         \n\
         [[source]]\n\
         alias = \"input\"\n\
         stream = {quoted_stream}\n\
         window = \"1m\" # the statement reads the elements of one minute, or of a number: 60\n\
         slide = \"10s\" # and is evaluated every ten seconds; 1: with each element\n\
         \n\
         [output]\n\
         # A SELECT of SQLite. The columns of \"input\", besides source_time, key and quality:\n\
         {known}\
         sql = \"\"\"\n\
         select {columns}\n\
         from input\n\
         \"\"\"{alarm}\n\
         {declared}",
        quoted_name = quoted(name),
        quoted_stream = quoted(stream),
        columns = columns.join(",\n       "),
    )
}

/// A name for the mean of a field that no field has.
fn mean_name(field: &str, fields: &[Field]) -> String {
    let mut name = format!("{field}_mean");
    while fields.iter().any(|other| other.name == name) {
        name.push('_');
    }
    name
}

/// A text of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sensor_does_not_write_the_stream_that_it_reads() {
        use clap::Parser as _;
        let line = [
            "chappe", "new", "sensor", "a.b", "--from", "a.b", "--fields", "v:double",
        ];
        let crate::cli::Command::New(verb) = crate::cli::Cli::try_parse_from(line).unwrap().command
        else {
            panic!("not new");
        };
        assert_eq!(run(verb, false).unwrap_err().error_code, "argument_invalid");
    }

    #[test]
    fn the_file_is_valid_for_any_fields() {
        let written = [
            "temperature:double:Cel",
            "count:integer",
            "key:double",
            "count_mean:text",
            "wave:samples:mV",
            "order:integer",
            "odd:double:a\"b\u{7f}\n",
        ];
        let written = written.map(str::to_owned);
        for fields in [&written[..], &written[..1], &written[4..5], &[]] {
            let fields = trial::fields(fields).unwrap();
            let text = valid_text("a.b", "lab.room", &fields).ok().unwrap();
            assert!(
                text.lines().all(|line| line.chars().count() <= 130),
                "{text}"
            );
        }
        let fields = trial::fields(&written[..1]).unwrap();
        let text = valid_text("a", "lab.room", &fields).ok().unwrap();
        let read = Descriptor::parse("a.toml", &text).unwrap();
        let field = &read.output.schema.fields[0];
        assert_eq!(
            (&*field.name, field.unit.as_deref()),
            ("temperature_mean", Some("Cel"))
        );
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert!(lines.count() <= 16, "{text}");
    }
}
