//! The rules of a processor: it answers each batch, and a restart does not change what it prints.

use std::time::Duration;

use chappe_stream::{Epoch, Position};
use serde_json::{Map, Value, json};

use super::{FITS, ProgramCheck, Run, shown};
use crate::kinds::program::protocol::line;
use crate::kinds::program::wrapper::{ProgramWrapper, open_program};
use crate::{
    Condition, Inputs, Mark, Notes, Wrapper as _, WrapperError, WrapperFile, WrapperOpening,
};

/// Most elements that are passed.
const ELEMENTS_MAX: usize = 10_000;

/// An element to pass: its line, its stream and its position.
struct Sample {
    line: Vec<u8>,
    stream: String,
    position: Position,
}

/// Passes the elements in two batches, and the second one again to a program that starts with the state
/// after the first.
pub(super) async fn check(
    file: &WrapperFile,
    inputs: &Inputs,
    elements: Option<&str>,
    time: Duration,
) -> Result<Vec<ProgramCheck>, WrapperError> {
    let samples = samples(elements.unwrap_or_default(), inputs)?;
    if samples.len() < 2 {
        let text = "a program with `inputs` is checked with at least two elements of them";
        let hint =
            "chappe watch --stream INPUT --json > elements.jsonl, then --elements elements.jsonl";
        return Err(WrapperError::settings(text).with_hint(hint));
    }
    let (first, second) = samples.split_at(samples.len() / 2);
    let mut checks = Vec::new();
    let mut check = |rule, is_kept, detail: String| {
        checks.push(ProgramCheck {
            rule,
            is_kept,
            detail,
        });
    };
    let mut program = open(file, None)?;
    let (mut before, mut after, mut again) = (Run::default(), Run::default(), Run::default());
    let passing = async {
        pass(&mut program, first, &mut before, time).await?;
        pass(&mut program, second, &mut after, time).await
    };
    const ANSWERS: &str = "it answers each batch with `stored`";
    match passing.await {
        Ok(()) => check(ANSWERS, true, "2 batches".to_owned()),
        Err(error) => {
            check(ANSWERS, false, error.to_string());
            return Ok(checks);
        }
    }
    drop(program);
    let count = before.elements.len() + after.elements.len();
    let of = format!("{count} of {} inputs", samples.len());
    check("it prints elements", count > 0, of);
    let fits = match before.fits() {
        (true, _) => after.fits(),
        wrong => wrong,
    };
    check(FITS, fits.0, fits.1);
    let mut program = open(file, before.mark.clone())?;
    let passed = pass(&mut program, second, &mut again, time).await;
    let (is_kept, detail) = match passed {
        Err(error) => (false, error.to_string()),
        Ok(()) => is_same(&before, &after, &again),
    };
    check("a restart does not change what it prints", is_kept, detail);
    Ok(checks)
}

/// Whether the program printed the same when it was restarted between the batches.
fn is_same(before: &Run, after: &Run, again: &Run) -> (bool, String) {
    let pairs = after.elements.iter().zip(&again.elements);
    let differing = pairs.filter(|(a, b)| shown(a) != shown(b)).count()
        + after.elements.len().abs_diff(again.elements.len());
    let state = match &before.mark {
        Some(state) => format!("its state has {} bytes", state.bytes().len()),
        None => "it prints no state".to_owned(),
    };
    match differing {
        0 => (true, state),
        count => {
            let of = after.elements.len();
            (false, format!("{count} of {of} elements differ; {state}"))
        }
    }
}

fn open(file: &WrapperFile, mark: Option<Mark>) -> Result<ProgramWrapper, WrapperError> {
    open_program(WrapperOpening {
        file,
        mark,
        condition: Condition::default(),
        notes: Notes::default(),
        drops: Default::default(),
        inbox: tokio::sync::mpsc::channel(1).1,
    })
}

/// Passes a batch and waits for what becomes of it.
async fn pass(
    program: &mut ProgramWrapper,
    samples: &[Sample],
    run: &mut Run,
    time: Duration,
) -> Result<(), WrapperError> {
    let lines = samples.iter().flat_map(|sample| &sample.line).copied();
    let positions = samples.iter().map(|one| (&*one.stream, one.position));
    program.pass(lines.collect(), positions).await?;
    let batch = tokio::time::timeout(time, program.next()).await;
    let late = |_| {
        let text = format!("no answer within {} s", time.as_secs_f64());
        Err(WrapperError::peer(text))
    };
    run.add(batch.unwrap_or_else(late)?);
    Ok(())
}

/// Reads the elements to pass. Members that are missing get the values of any element.
fn samples(text: &str, inputs: &Inputs) -> Result<Vec<Sample>, WrapperError> {
    let objects = serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    let read = (1..)
        .zip(objects.take(ELEMENTS_MAX))
        .map(|(number, element)| {
            let wrong = |what: String| WrapperError::settings(format!("element {number}: {what}"));
            let mut element = element.map_err(|error| wrong(error.to_string()))?;
            let stream = element.get("stream").and_then(Value::as_str);
            let stream = stream.map(str::to_owned);
            let stream = stream.ok_or_else(|| wrong("it names no stream".to_owned()))?;
            if !inputs.selects(&stream) {
                return Err(wrong(format!("{stream:?} is not one of the inputs")));
            }
            if !element.get("values").is_some_and(Value::is_object) {
                return Err(wrong("it has no `values`".to_owned()));
            }
            let position = Position {
                epoch: Epoch(1),
                sequence: number,
            };
            element.insert("epoch".to_owned(), json!(position.epoch.to_string()));
            element.insert("number".to_owned(), json!(number));
            for (name, value) in [
                ("source_time", json!("2026-01-01T00:00:00Z")),
                ("receive_time", json!("2026-01-01T00:00:00Z")),
                ("key", Value::Null),
                ("quality", json!("good")),
            ] {
                element.entry(name).or_insert(value);
            }
            Ok(Sample {
                line: line(&json!({ "element": element })),
                stream,
                position,
            })
        });
    read.collect()
}
