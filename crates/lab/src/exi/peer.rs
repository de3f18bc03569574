//! EXIficient, warmed up in one Java machine: the same documents, schemas and layouts.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::documents::{self, Document};
use super::{INFORMED, Informed, LAYOUTS, Measured, row};
use crate::process::Folder;
use crate::{Error, Limit, Reference, Report, Settings, checkout};

/// The folder of its libraries, installed by `check/peers exi`.
const LIBRARIES: &str = "target/peers/exi/jars";
const PROGRAM: &str = "check/exi/Speed.java";

/// Rows of the peer, and the ratio of our sizes to its sizes.
pub(super) fn rows(
    folder: &Folder,
    documents: &[Document],
    ours: &[Measured],
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Error> {
    let largest = compare(folder, documents, ours, settings, report)?;
    if let Err(reason) = &largest {
        report.skipped.push(reason.clone());
    }
    let name = "bytes of a document, where they are the most of EXIficient's";
    let own = largest.as_ref().map_or(0.0, |(own, _)| *own);
    let theirs = largest.map(|(_, theirs)| Reference::new("EXIficient", theirs));
    report.compare(name, (own, "bytes"), theirs, Limit::AtMost(1.0));
    Ok(())
}

/// Our bytes and theirs where the ratio is largest, or the reason why there are none.
fn compare(
    folder: &Folder,
    documents: &[Document],
    ours: &[Measured],
    settings: &Settings,
    report: &mut Report,
) -> Result<Result<(f64, f64), String>, Error> {
    let libraries = std::env::var_os("CHAPPE_EXIFICIENT").map(PathBuf::from);
    let root = checkout::root();
    let libraries = libraries.or_else(|| Some(root.as_ref()?.join(LIBRARIES)));
    let program = root.map(|root| root.join(PROGRAM));
    let (Some(libraries), Some(program)) = (libraries, program) else {
        return Ok(Err("EXIficient: this is not a checkout".to_owned()));
    };
    if !libraries.is_dir() {
        let reason = "EXIficient is not installed (`check/peers exi` installs it)";
        return Ok(Err(reason.to_owned()));
    }
    (settings.progress)("EXIficient");
    let jobs = jobs(folder.path(), documents)?;
    let text: String = jobs.iter().map(|(line, _)| format!("{line}\n")).collect();
    let file = folder.path().join("jobs");
    std::fs::write(&file, text).map_err(Error::io("writing the peer's jobs"))?;
    let batch_ms = if settings.quick { "5" } else { "40" };
    let output = Command::new("java")
        .arg("-cp")
        .arg(format!("{}/*", libraries.display()))
        .arg(&program)
        .arg(&file)
        .arg(batch_ms)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            return Ok(Err(format!("EXIficient: java: {error}")));
        }
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    // Our bytes and theirs, where their ratio is the largest.
    let mut largest: Option<(f64, f64)> = None;
    for ((line, mut theirs), printed) in jobs.into_iter().zip(printed.lines()) {
        let mut fields = printed.split(' ');
        let mut field = || fields.next().and_then(|field| field.parse::<f64>().ok());
        let (Some(bytes), Some(encode_us), Some(decode_us)) = (field(), field(), field()) else {
            return Err(Error::Failed(format!(
                "EXIficient prints {printed:?} for {line:?}"
            )));
        };
        theirs.bytes = bytes as usize;
        (theirs.encode_us, theirs.decode_us) = (encode_us, decode_us);
        row(report, "EXIficient: ", &theirs);
        let same = |one: &&Measured| {
            one.document == theirs.document
                && one.informed == theirs.informed
                && one.layout == theirs.layout
        };
        if let Some(own) = ours.iter().find(same) {
            let own = own.bytes as f64;
            if largest.is_none_or(|(ours, theirs)| own / bytes > ours / theirs) {
                largest = Some((own, bytes));
            }
        }
    }
    Ok(largest.ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or("no output");
        format!("EXIficient: {last}")
    }))
}

/// The peer's jobs, one per line, with the measured operation.
fn jobs(folder: &Path, documents: &[Document]) -> Result<Vec<(String, Measured)>, Error> {
    let mut jobs = Vec::new();
    let schema = folder.join(documents::WHOLE).display().to_string();
    for (number, document) in documents.iter().enumerate() {
        let file = folder.join(format!("document-{number}.xml"));
        std::fs::write(&file, &document.text).map_err(Error::io("writing a document"))?;
        for (_, informed) in INFORMED {
            for (layout, ..) in LAYOUTS {
                let line = [
                    file.display().to_string(),
                    match informed {
                        Informed::Not => "-".to_owned(),
                        _ => schema.clone(),
                    },
                    match informed {
                        Informed::Strict => "strict".to_owned(),
                        _ => String::new(),
                    },
                    layout.to_owned(),
                ];
                let theirs = Measured {
                    document: document.name,
                    informed,
                    layout,
                    bytes: 0,
                    encode_us: 0.0,
                    decode_us: 0.0,
                };
                jobs.push((line.join("\t"), theirs));
            }
        }
    }
    Ok(jobs)
}
