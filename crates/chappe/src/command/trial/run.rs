//! `chappe test`: the expectations of a directory, and their differences.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chappe_stream::trial::{Trial, TrialStream, Unused};
use chappe_stream::{Descriptor, SensorLimits, StreamElement};
use serde_json::{Value as Json, json};

use super::expectation::{Difference, Expectation, FILE_BYTES_MAX, differences, parse};
use super::rows;
use crate::cli::Test;
use crate::command::text_file;
use crate::output::{self, Failure, Outcome};

/// The ending of the names of files with expectations.
const ENDING: &str = ".test.toml";
/// Most files of one run; reason: a node runs at most as many virtual sensors.
const FILES_MAX: usize = 1_000;
/// Differences of a test that are printed; `--json` has all.
const SHOWN_MAX: usize = 20;

/// The result of a test.
struct Tested {
    file: String,
    name: String,
    line: usize,
    differences: Vec<Difference>,
    /// Why it could not be evaluated, or an evaluation failed.
    failures: Vec<String>,
    unused: Vec<Unused>,
}

impl Tested {
    fn passed(&self) -> bool {
        self.differences.is_empty() && self.failures.is_empty()
    }
}

/// Runs the expectations of a directory, or of one file.
pub(crate) fn run(flags: &Test, json: bool) -> Outcome {
    let (files, untested) = files(&flags.at)?;
    let mut tested = Vec::new();
    for file in &files {
        let results = of_file(file)?;
        if !json {
            results.iter().for_each(print);
        }
        tested.extend(results);
    }
    let failed = tested.iter().filter(|one| !one.passed()).count();
    if json {
        output::json(&json!({
            "tests": tested.iter().map(as_json).collect::<Vec<_>>(),
            "passed": tested.len() - failed,
            "failed": failed,
            "untested": untested,
        }));
    } else {
        output::line(format_args!(
            "{} passed, {failed} failed",
            tested.len() - failed
        ));
        if !untested.is_empty() {
            output::line(format_args!(
                "without expectations: {}",
                untested.join(", ")
            ));
        }
    }
    match failed == 0 && !tested.is_empty() {
        true => Ok(()),
        false if tested.is_empty() => Err(Failure {
            code: 1,
            ..Failure::new(format!("{} has no expectations", flags.at.display()))
                .coded("expectation_invalid")
                .hint("write NAME.test.toml next to NAME.toml; its format: chappe test --help")
        }),
        false => Err(Failure::negative()),
    }
}

/// The files with expectations, and the names of descriptors without any.
fn files(at: &Path) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
    let wrong = |error: std::io::Error| {
        Failure::new(format!("cannot read {}: {error}", at.display()))
            .coded("file_unreadable")
            .hint("name the directory of the descriptors: chappe test DIR")
    };
    if std::fs::metadata(at).map_err(wrong)?.is_file() {
        return match at.to_string_lossy().ends_with(ENDING) {
            true => Ok((vec![at.to_owned()], Vec::new())),
            false => {
                let beside = at.with_extension("").display().to_string() + ENDING;
                let failure = Failure::new(format!("{} is not NAME{ENDING}", at.display()));
                Err(failure.coded("argument_invalid").hint(format!(
                    "name the file of expectations, chappe test {beside}, or the directory"
                )))
            }
        };
    }
    let mut files = Vec::new();
    let mut descriptors = BTreeSet::new();
    for entry in std::fs::read_dir(at).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let stem = [ENDING, ".toml", ".xml"]
            .into_iter()
            .find_map(|ending| Some((name.strip_suffix(ending)?, ending)));
        match stem {
            _ if name.starts_with('.') || !path.is_file() => {}
            Some((_, ENDING)) => files.push(path),
            Some((stem, _)) => {
                descriptors.insert(stem.to_owned());
            }
            None => {}
        }
    }
    if files.len() > FILES_MAX {
        let message = format!(
            "{} has more than {FILES_MAX} files of expectations",
            at.display()
        );
        return Err(Failure::new(message)
            .coded("too_many_files")
            .hint("split them over several directories"));
    }
    files.sort();
    for file in &files {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        descriptors.remove(name.trim_end_matches(ENDING));
    }
    Ok((files, descriptors.into_iter().collect()))
}

/// Runs the tests of a file.
fn of_file(path: &Path) -> Result<Vec<Tested>, Failure> {
    let file = path.display().to_string();
    let base = file.strip_suffix(ENDING).unwrap_or(&file);
    let of = [format!("{base}.toml"), format!("{base}.xml")];
    let Some(of) = of.into_iter().find(|of| Path::new(of).is_file()) else {
        let failure = Failure::new(format!("{file}: there is no descriptor {base}.toml"))
            .coded("file_not_found");
        return Err(failure.hint("give both files the same name"));
    };
    let descriptor = super::descriptor(Path::new(&of))?;
    let text = text_file::read(path, FILE_BYTES_MAX)?;
    let tests = parse(&file, &text, &descriptor)?;
    if tests.is_empty() {
        let failure = Failure::new(format!("{file} has no [[test]]")).coded("expectation_invalid");
        return Err(failure.hint("its format: chappe test --help"));
    }
    tests
        .into_iter()
        .map(|test| one(&file, &descriptor, test))
        .collect()
}

fn one(file: &str, descriptor: &Descriptor, test: Expectation) -> Result<Tested, Failure> {
    // Sources of the same stream have the same rows.
    let name = |alias: &String| {
        let mut sources = descriptor.sources.iter();
        let source = sources.find(|source| source.alias == *alias);
        let named = source.and_then(|source| descriptor.stream_of(&source.selection));
        named.unwrap_or_else(|| alias.clone())
    };
    let mut streams: Vec<TrialStream> = Vec::new();
    for source in &descriptor.sources {
        let stream = name(&source.alias);
        let of_stream = test
            .input
            .iter()
            .filter(|(source, _)| name(source) == stream);
        let rows: Vec<_> = of_stream.map(|(_, row)| row.clone()).collect();
        streams.push(rows::stream(
            descriptor,
            &source.alias,
            &stream,
            rows,
            &test.fields,
        )?);
    }
    let mut tested = Tested {
        file: file.to_owned(),
        name: test.name.clone(),
        line: test.line,
        differences: Vec::new(),
        failures: Vec::new(),
        unused: Vec::new(),
    };
    match Trial::run(descriptor, &streams, SensorLimits::default(), || true) {
        Ok(trial) => {
            let outputs: Vec<&StreamElement> = trial.outputs().collect();
            tested.differences = differences(&test, descriptor, &outputs);
            tested.failures = trial.failures;
            tested.unused = trial.unused;
            if trial.counters.misfits > 0 {
                let text = "rows of input do not fit the fields of their stream".to_owned();
                tested.failures.push(text);
            }
        }
        Err(error) => tested.failures.push(error.to_string()),
    }
    Ok(tested)
}

fn print(tested: &Tested) {
    let Tested {
        file, name, line, ..
    } = tested;
    if tested.passed() {
        return output::line(format_args!("ok      {file}:{line}  {name}"));
    }
    output::line(format_args!("FAILED  {file}:{line}  {name}"));
    for failure in &tested.failures {
        output::line(format_args!("        {failure}"));
    }
    for one in tested.differences.iter().take(SHOWN_MAX) {
        let row = match one.line {
            Some(line) => format!("row {} (line {line})", one.row),
            None => format!("row {}", one.row),
        };
        let (expected, found) = (&one.expected, &one.found);
        output::line(match (&one.field, one.line) {
            (Some(field), _) => format!("        {row}: {field} is {found}, expected {expected}"),
            (None, Some(_)) => format!("        {row}: expected {expected}, but no more rows came"),
            (None, None) => format!("        {row}: got {found}, but no row was expected"),
        });
    }
    let more = tested.differences.len().saturating_sub(SHOWN_MAX);
    if more > 0 {
        output::line(format_args!(
            "        and {more} more differences: --json lists all"
        ));
    }
    for one in &tested.unused {
        output::line(format_args!("        {}", super::unused(one)));
    }
}

fn as_json(tested: &Tested) -> Json {
    let difference = |one: &Difference| {
        json!({
            "row": one.row, "line": one.line, "field": one.field, "expected": one.expected,
            "found": one.found,
        })
    };
    json!({
        "file": tested.file,
        "name": tested.name,
        "line": tested.line,
        "passed": tested.passed(),
        "differences": tested.differences.iter().map(difference).collect::<Vec<_>>(),
        "failures": tested.failures,
        "unused": super::unused_json(&tested.unused),
    })
}
