//! `chappe sensor` and `chappe import gsn`: commands of virtual sensors, and their descriptors in another format.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_gsn::descriptor::{self, Outcome as Part, Report};
use chappe_stream::descriptor::DESCRIPTOR_BYTES_MAX;
use chappe_stream::{Descriptor, DescriptorError};
use serde_json::map::Entry;
use serde_json::{Map, Value, json};

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use super::text_file;
use crate::cli::{DescriptorFormat, Import, ImportGsn, Sensor, SensorCall, SensorConvert};
use crate::output::{self, Failure, Outcome};

/// Most descriptors of one import; reason: a node runs at most as many.
const FILES_MAX: usize = 1_000;

/// Runs a verb of `sensor`.
pub(crate) fn run(verb: Sensor, json: bool) -> Outcome {
    match verb {
        Sensor::Convert(flags) => convert(&flags, json),
        Sensor::Call(flags) => network::block_on(async move {
            tokio::select! {
                result = call(flags, json) => result,
                result = network::interrupted() => result,
            }
        }),
    }
}

/// Runs a verb of `import`.
pub(crate) fn import(verb: Import, json: bool) -> Outcome {
    match verb {
        Import::Gsn(flags) => import_gsn(&flags, json),
    }
}

async fn call(flags: SensorCall, json: bool) -> Outcome {
    let arguments = arguments(&flags.arguments)?;
    let node = NodeClient::new(&flags.node)?;
    let (name, command) = (percent(&flags.name), percent(&flags.command));
    let path = format!("/api/v1/virtual-sensors/{name}/commands/{command}");
    let answer = node.post(&path, Value::Object(arguments)).await?;
    if json {
        output::json(&answer);
        return Ok(());
    }
    let stream = answer["stream"].as_str().unwrap_or_default();
    output::line(format_args!("stored: {stream} {}", answer["sequence"]));
    if !answer["answer"].is_null() {
        output::line(format_args!("answer: {}", answer["answer"]));
    }
    Ok(())
}

/// Arguments `NAME=VALUE` and `NAME=@FILE`; those with the same name are an array.
fn arguments(written: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut arguments = Map::new();
    for argument in written {
        let Some((name, value)) = argument.split_once('=') else {
            let failure =
                Failure::new(format!("{argument:?} is not an argument")).coded("argument_invalid");
            return Err(failure.hint("write NAME=VALUE"));
        };
        let value = match value.strip_prefix('@') {
            Some(path) => {
                let bytes = fs::read(path).map_err(|error| {
                    Failure::new(format!("cannot read {path}: {error}")).coded("file_unreadable")
                })?;
                STANDARD.encode(bytes)
            }
            None => value.to_owned(),
        };
        let value = Value::String(value);
        match arguments.entry(name) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(mut place) => match place.get_mut() {
                Value::Array(values) => values.push(value),
                first => *first = Value::Array(vec![first.take(), value]),
            },
        }
    }
    Ok(arguments)
}

fn convert(flags: &SensorConvert, json: bool) -> Outcome {
    let text = text_file::read(&flags.file, DESCRIPTOR_BYTES_MAX as u64)?;
    let name = flags.file.display().to_string();
    let is_xml = is_xml(&flags.file);
    let to = match is_xml {
        true => DescriptorFormat::Toml,
        false => DescriptorFormat::Gsn,
    };
    let to = flags.to.unwrap_or(to);
    let (read, mut report, links) = match is_xml {
        true => {
            let imported = descriptor::import(&name, &text).map_err(failure)?;
            (imported.descriptor, imported.report, imported.links)
        }
        false => {
            let read = Descriptor::parse(&name, &text).map_err(failure)?;
            (read, Report::default(), Vec::new())
        }
    };
    let converted = match to {
        DescriptorFormat::Toml => read.to_toml(),
        DescriptorFormat::Gsn => {
            let (made, exported) = descriptor::export(&read).map_err(|error| {
                Failure::new(format!("{name}: {error}")).coded("file_unreadable").hint(
                    "this part of the descriptor has no counterpart in GSN; remove it, or keep the \
                     TOML",
                )
            })?;
            report.lines.extend(exported.lines);
            made.to_xml()
        }
    };
    if json {
        output::json(&json!({ "descriptor": converted, "report": report, "links": links }));
        return Ok(());
    }
    for line in &report.lines {
        output::note(line);
    }
    output::line(converted.trim_end());
    Ok(())
}

fn import_gsn(flags: &ImportGsn, json: bool) -> Outcome {
    let found = descriptors(&flags.directory)?;
    if found.is_empty() {
        let message = format!("{} has no *.xml file", flags.directory.display());
        return Err(Failure::new(message)
            .coded("file_not_found")
            .hint("name GSN's directory of virtual sensors"));
    }
    if !flags.dry_run {
        output::folder(&flags.into)?;
    }
    let mut files = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut failed = 0;
    for path in found {
        let imported = import_file(&path, flags, &mut names);
        failed += usize::from(imported.is_err());
        if json {
            files.push(as_json(&path, imported));
        } else {
            print(&path, imported);
        }
    }
    if json {
        output::json(&files);
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::negative()),
    }
}

/// A written file.
struct Written {
    to: PathBuf,
    report: Report,
    links: Vec<descriptor::NeededLink>,
}

fn import_file(
    path: &Path,
    flags: &ImportGsn,
    names: &mut Vec<String>,
) -> Result<Written, Failure> {
    let text = text_file::read(path, DESCRIPTOR_BYTES_MAX as u64)?;
    let imported = descriptor::import(&path.display().to_string(), &text).map_err(failure)?;
    let name = imported.descriptor.name.clone();
    if names.contains(&name) {
        let message = format!("{}: another file has the name {name:?}", path.display());
        return Err(Failure::new(message)
            .coded("file_exists")
            .hint("rename one of the sensors"));
    }
    let to = flags.into.join(format!("{name}.toml"));
    names.push(name);
    if !flags.replace && to.exists() {
        let message = format!("{} exists", to.display());
        return Err(Failure::new(message)
            .coded("file_unwritable")
            .hint("add --replace to overwrite it"));
    }
    if !flags.dry_run {
        output::file(&to, &imported.descriptor.to_toml())?;
    }
    Ok(Written {
        to,
        report: imported.report,
        links: imported.links,
    })
}

fn print(path: &Path, imported: Result<Written, Failure>) {
    match imported {
        Ok(written) => {
            let report = &written.report;
            output::line(format_args!(
                "{} -> {}: {} taken, {} changed, {} ignored",
                path.display(),
                written.to.display(),
                report.count(Part::Taken),
                report.count(Part::Changed),
                report.count(Part::Ignored)
            ));
            for line in &report.lines {
                output::line(format_args!("  {line}"));
            }
        }
        Err(failure) => {
            output::line(format_args!("{}: not imported", path.display()));
            output::line(format_args!("  error: {}", failure.message));
            if let Some(hint) = failure.hint {
                output::line(format_args!("  hint: {hint}"));
            }
        }
    }
}

fn as_json(path: &Path, imported: Result<Written, Failure>) -> Value {
    let file = path.display().to_string();
    match imported {
        Ok(written) => json!({
            "file": file, "sensor_file": written.to.display().to_string(),
            "report": written.report, "links": written.links,
        }),
        Err(failure) => json!({ "file": file, "error": failure.message, "hint": failure.hint }),
    }
}

/// The descriptors of a directory, by name.
fn descriptors(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |error: std::io::Error| {
        Failure::new(format!("cannot read {}: {error}", directory.display()))
            .coded("file_unreadable")
            .hint("name GSN's directory of virtual sensors")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if is_xml(&path) && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    if found.len() > FILES_MAX {
        let message = format!("{} has more than {FILES_MAX} files", directory.display());
        return Err(Failure::new(message)
            .coded("too_many_files")
            .hint("import them in parts"));
    }
    Ok(found)
}

fn is_xml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "xml")
}

fn failure(error: DescriptorError) -> Failure {
    let hint = error.hint.clone();
    Failure::from(error)
        .coded("descriptor_invalid")
        .hint_if(hint)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::arguments;

    #[test]
    fn arguments_are_texts_files_and_arrays() {
        let file = std::env::current_dir().unwrap().join("Cargo.toml");
        let written = ["a=1=2", "b=x", "b=y", "b=z"].map(str::to_owned);
        let read = Value::Object(arguments(&written).unwrap());
        assert_eq!(read, json!({ "a": "1=2", "b": ["x", "y", "z"] }));
        let written = [format!("f=@{}", file.display())];
        assert!(arguments(&written).unwrap()["f"].as_str().unwrap().len() > 100);
        assert!(arguments(&["a".to_owned()]).is_err());
    }
}
