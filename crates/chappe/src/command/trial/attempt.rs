//! `chappe try`: input and output of a descriptor side by side.

use std::path::Path;

use chappe_stream::trial::{Trial, TrialStep, TrialStream};
use chappe_stream::view::{ElementView, ValueView};
use chappe_stream::{
    Descriptor, Field, Quality, SensorLimits, StreamElement, StreamSchema, Timestamp, Value,
};
use serde_json::{Value as Json, json};

use super::{csv, data, recorded, rows};
use crate::cli::Try;
use crate::command::network;
use crate::command::node_client::NodeClient;
use crate::command::watch::short;
use crate::output::{self, Failure, Outcome, Table};

/// Characters of a time within one day, `10:00:01.250`.
const TIME_OF_DAY: std::ops::Range<usize> = 11..23;

/// Evaluates the descriptor and prints its course.
pub(crate) fn run(flags: Try, json: bool) -> Outcome {
    let descriptor = super::descriptor(&flags.file)?;
    let streams = streams(&descriptor, &flags)?;
    let trial = Trial::run(&descriptor, &streams, SensorLimits::default(), || true)
        .map_err(|error| super::impossible(error, &descriptor))?;
    match json {
        true => print_json(&descriptor, &streams, &trial),
        false => print(&descriptor, &streams, &trial, flags.rows),
    }
    let outputs = trial.outputs().count();
    match outputs > 0 && trial.failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::negative()),
    }
}

/// The elements that the flags name.
fn streams(descriptor: &Descriptor, flags: &Try) -> Result<Vec<TrialStream>, Failure> {
    if !flags.input.is_empty() {
        let declared = super::fields(&flags.fields)?;
        return files(descriptor, &flags.input, &declared);
    }
    let wanted = recorded::wanted(descriptor, &flags.on, "--on")?;
    if let Some(directory) = &flags.data {
        return data::read(directory, &wanted, flags.last);
    }
    let mut streams = Vec::new();
    network::block_on(async {
        let read = async {
            let node = NodeClient::new(&flags.node)?;
            streams = recorded::read(&node, &wanted, flags.last).await?;
            Ok::<(), Failure>(())
        };
        tokio::select! {
            result = read => result,
            result = network::interrupted() => result.and(Err(Failure::negative())),
        }
    })
    .map_err(|failure| match &*failure.error_code {
        "node_unreachable" => {
            failure.hint("start one: chappe up; or use --data DIR or --input FILE.csv")
        }
        _ => failure,
    })?;
    Ok(streams)
}

/// The elements of CSV files, each as the stream that its source names, or that of the file's name.
fn files(
    descriptor: &Descriptor,
    written: &[String],
    declared: &[Field],
) -> Result<Vec<TrialStream>, Failure> {
    let mut streams = Vec::new();
    for one in recorded::written(descriptor, written, "--input")? {
        let path = Path::new(&one.stream);
        let rows = csv::read(path, declared)?;
        let mut sources = descriptor.sources.iter();
        let source = sources.find(|source| source.alias == one.alias);
        let named = source.and_then(|source| descriptor.stream_of(&source.selection));
        let name = named.unwrap_or_else(|| one.alias.clone());
        streams.push(rows::stream(descriptor, &one.alias, &name, rows, declared)?);
    }
    Ok(streams)
}

fn view(element: &StreamElement, schema: &StreamSchema) -> Json {
    json!(ElementView {
        stream: None,
        element,
        schema
    })
}

fn print_json(descriptor: &Descriptor, streams: &[TrialStream], trial: &Trial) {
    let output = &descriptor.output.schema;
    let step = |step: &TrialStep| {
        let input = step.input.map(|(at, index)| {
            let stream = &streams[at];
            let element = view(&stream.elements[index], &stream.schema);
            json!({ "source": stream.alias, "element": element })
        });
        let outputs: Vec<_> = step.outputs.iter().map(|it| view(it, output)).collect();
        json!({ "input": input, "outputs": outputs })
    };
    let inputs: Vec<_> = streams
        .iter()
        .map(|one| {
            json!({ "source": one.alias, "stream": &*one.stream, "fields": one.schema.fields })
        })
        .collect();
    output::json(&json!({
        "sensor": descriptor.name,
        "inputs": inputs,
        "fields": output.fields,
        "steps": trial.steps.iter().map(step).collect::<Vec<_>>(),
        "elements_in": trial.counters.inputs,
        "elements_out": trial.outputs().count(),
        "misfits": trial.counters.misfits,
        "dead_letters": trial.dead_letters,
        "unused": super::unused_json(&trial.unused),
        "failures": trial.failures,
    }));
}

fn print(descriptor: &Descriptor, streams: &[TrialStream], trial: &Trial, rows: usize) {
    for one in streams {
        let fields = described(&one.schema);
        output::line(format_args!(
            "input   {} = {}: {fields}",
            one.alias, one.stream
        ));
    }
    let fields = described(&descriptor.output.schema);
    output::line(format_args!(
        "output  {}: {fields}",
        descriptor.output.stream
    ));
    let lines = lines(descriptor, streams, trial);
    let first = match rows {
        0 => 0,
        rows => lines.len().saturating_sub(rows),
    };
    if first > 0 {
        output::note(format_args!(
            "{first} earlier rows are not shown: --rows 0 shows all"
        ));
    }
    print_lines(&lines[first..]);
    let counters = trial.counters;
    let outputs = trial.outputs().count();
    output::line(format_args!("{} in, {outputs} out", counters.inputs));
    for one in &trial.unused {
        output::line(super::unused(one));
    }
    if trial.dead_letters > 0 {
        let count = trial.dead_letters;
        output::line(format_args!("{count} of these are dead letters"));
    }
    for failure in &trial.failures {
        output::line(format_args!("an evaluation failed: {failure}"));
    }
    if outputs == 0 && trial.failures.is_empty() {
        output::note(match trial.unused.is_empty() {
            true if counters.inputs == 0 => {
                "hint: there was no element to read: raise --last, wait until the stream has elements, or give \
                 some with --input FILE.csv"
            }
            true => {
                "hint: no row was output: the window may be longer than the elements, or a condition of \
                 the statement excludes all; try more of them with --last"
            }
            false => {
                "hint: no row was output, and not everything was used: \
                 docs/reference/virtual-sensors.md explains each reason"
            }
        });
    }
    output::progress(
        "next: move the file to the node's sensors directory, where it takes effect at once",
    );
}

/// The fields with their units.
fn described(schema: &StreamSchema) -> String {
    let field = |field: &Field| match &field.unit {
        Some(unit) => format!("{} ({unit})", field.name),
        None => field.name.clone(),
    };
    schema
        .fields
        .iter()
        .map(field)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A line of the table: time, input and output.
type Line = [String; 3];

/// The steps as lines: the first result stands beside its input, further ones below.
fn lines(descriptor: &Descriptor, streams: &[TrialStream], trial: &Trial) -> Vec<Line> {
    let times = || {
        let inputs = streams.iter().flat_map(|one| &one.elements);
        let elements = inputs.chain(trial.outputs());
        elements.map(|element| element.source_time.to_string())
    };
    let day = times().next();
    let is_one_day = times().all(|time| day.as_ref().is_some_and(|day| day[..10] == time[..10]));
    let time = |time: Timestamp| {
        let text = time.to_string();
        match is_one_day {
            true => {
                let end = TIME_OF_DAY.end.min(text.len());
                text[TIME_OF_DAY.start..end]
                    .trim_end_matches('Z')
                    .to_owned()
            }
            false => text,
        }
    };
    let mut lines = Vec::new();
    for step in &trial.steps {
        let mut results = step.outputs.iter();
        let first = results.next();
        let result = |element: &StreamElement| values(element, &descriptor.output.schema);
        let (at, input) = match step.input {
            Some((at, index)) => {
                let stream = &streams[at];
                let element = &stream.elements[index];
                let values = values(element, &stream.schema);
                let text = match streams {
                    [_] => values,
                    _ => format!("{}: {values}", stream.alias),
                };
                (element.source_time, text)
            }
            None => (
                first.map_or_else(Timestamp::default, |element| element.source_time),
                "(silence)".to_owned(),
            ),
        };
        lines.push([time(at), input, first.map(result).unwrap_or_default()]);
        for further in results {
            lines.push([time(further.source_time), String::new(), result(further)]);
        }
    }
    lines
}

/// The values of an element with the names of their fields.
fn values(element: &StreamElement, schema: &StreamSchema) -> String {
    let key = element.key.iter().map(|key| format!("[{key}]"));
    let fields = schema.fields.iter().zip(&element.values);
    let values = fields.map(|(field, value)| format!("{} {}", field.name, shown(value)));
    let quality = match element.quality {
        Quality::Good => None,
        other => Some(format!("({})", other.name())),
    };
    key.chain(values)
        .chain(quality)
        .collect::<Vec<_>>()
        .join("  ")
}

/// A value in a few characters.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Double(number) => output::number(*number),
        other => short(&json!(ValueView(other))),
    }
}

/// A table where the terminal is wide enough for it, else one line for each cell.
fn print_lines(lines: &[Line]) {
    let mut table = Table::new(["TIME", "INPUT", "OUTPUT"]);
    lines.iter().for_each(|line| table.row(line.clone()));
    let text = table.to_string();
    let widest = text.lines().map(|line| line.chars().count()).max();
    if output::width().is_none_or(|width| widest <= Some(width)) {
        return output::line(text);
    }
    for [time, input, output] in lines {
        output::line(time);
        for (name, cell) in [("in ", input), ("out", output)] {
            if !cell.is_empty() {
                output::line(format_args!("  {name} {cell}"));
            }
        }
    }
}
