//! `chappe try` and `chappe test`: a descriptor over elements that are at hand.
//!
//! Both evaluate the descriptor in this process, with the machine that a node runs ([`chappe_stream::trial`]). `try`
//! shows what a descriptor makes of elements of a node, of a data directory or of a CSV file; `test` compares what it
//! makes of a few rows with what its author expects.

mod attempt;
mod csv;
mod data;
mod expectation;
mod recorded;
mod rows;
mod run;

use std::path::Path;

use chappe_stream::descriptor::DESCRIPTOR_BYTES_MAX;
use chappe_stream::trial::{TrialError, Unused};
use chappe_stream::{Descriptor, Field};
use serde::Deserialize as _;
use serde_json::{Value as Json, json};

use super::{stream, text_file};
use crate::output::Failure;

pub(crate) use attempt::run as attempt;
pub(crate) use run::run as test;

/// Reads a descriptor: GSN's, if the name of the file ends in `.xml`, else a TOML.
fn descriptor(path: &Path) -> Result<Descriptor, Failure> {
    let text =
        text_file::read(path, DESCRIPTOR_BYTES_MAX as u64).map_err(|failure| {
            match &*failure.error_code {
                "file_unreadable" => failure.hint(
                    "name the file of the descriptor, such as sensors/NAME.toml; \
                 chappe new sensor NAME --from STREAM writes one",
                ),
                _ => failure,
            }
        })?;
    let name = path.display().to_string();
    let is_xml = path.extension().is_some_and(|ending| ending == "xml");
    let read = match is_xml {
        true => chappe_gsn::descriptor::import(&name, &text).map(|imported| imported.descriptor),
        false => Descriptor::parse(&name, &text),
    };
    read.map_err(|error| {
        let hint = error.hint.clone();
        Failure::from(error).hint_if(hint)
    })
}

/// Fields that are written as `FIELD:TYPE[:UNIT]`.
pub(super) fn fields(written: &[String]) -> Result<Vec<Field>, Failure> {
    let field = |text: &String| {
        let json = stream::field(text)?;
        Field::deserialize(json).map_err(|error| {
            let types = "boolean, integer, double, text, bytes and samples";
            Failure::new(format!("{text:?}: {error}"))
                .coded("argument_invalid")
                .hint(format!("the types are {types}"))
        })
    };
    written.iter().map(field).collect()
}

/// Elements or results that the sensor did not use, as a line.
fn unused(one: &Unused) -> String {
    let why = match one.reason {
        "late" => "arrived after its window had moved on",
        "early" => "its source time is more than `ahead` after its receipt",
        "equal_time" => "another element of its stream has its time",
        "window_elements" => "left its window early, at the limit of elements",
        "window_bytes" => "left its window early, at the limit of bytes",
        "window_keys" => "the whole window of a key was dropped: see `keys`",
        "turns_skipped" => "a slide passed without an evaluation",
        "misfit" => "does not fit the fields of its stream",
        "sampled_out" => "left out by `sampling`",
        "too_soon" => "a result sooner than a rate allows",
        "beyond_count" => "a result after the last of its statement",
        "repeated_time" => "a result with the time of another",
        "null" => "a result with a field without a value",
        other => other,
    };
    let (count, reason) = (one.count, one.reason);
    match &one.source {
        Some(source) => format!("not used: {count} {reason} of {source} ({why})"),
        None => format!("not used: {count} {reason} ({why})"),
    }
}

/// The same, for programs.
fn unused_json(unused: &[Unused]) -> Vec<Json> {
    let one =
        |one: &Unused| json!({ "source": one.source, "reason": one.reason, "count": one.count });
    unused.iter().map(one).collect()
}

/// A trial that is not possible, with its remedy.
fn impossible(error: TrialError, descriptor: &Descriptor) -> Failure {
    let sources = || {
        let aliases = descriptor.sources.iter().map(|source| &*source.alias);
        aliases.collect::<Vec<_>>().join(", ")
    };
    let hint = match &error {
        TrialError::Unbound(aliases) => {
            let alias = aliases.first().map_or("ALIAS", String::as_str);
            Some(format!(
                "name its stream with --on {alias}=STREAM, or its file with --input {alias}=FILE.csv"
            ))
        }
        TrialError::Unknown(_) => Some(format!("its sources are {}", sources())),
        TrialError::Statement(_) => {
            Some("compare the columns of the statement with the fields of the stream".to_owned())
        }
        TrialError::Elements(_) | TrialError::Turns | TrialError::Outputs => {
            Some("use fewer elements, such as --last 1m".to_owned())
        }
        _ => None,
    };
    Failure::from(error).hint_if(hint)
}
