//! `chappe export`: writes the elements of streams to CSV, Parquet or Arrow files.
//!
//! A file is written under a temporary name next to it, synced, and renamed: it is complete or not there. A device, a
//! pipe or `/dev/stdout` gets the rows as they come. Elements that came after the command was started are left out. What
//! a stream lost is in the summary.

pub(super) mod elements;
mod target;

use std::io::{BufWriter, Write as _};
use std::path::Path;

use chappe_terminal::counted;
use chappe_wrappers::table_file::{TableFile, TableForm, TableStream};
use serde_json::{Value, json};

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{Export, ExportFormat};
use crate::output::{self, Failure, NewFile, Outcome, Table};
use elements::Elements;
use target::paths;

/// Elements between two reports of progress.
const REPORT_ELEMENTS: u64 = 250_000;

/// Exports each stream.
pub(crate) fn run(flags: Export, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = export(flags, json) => result,
            result = network::interrupted() => result,
        }
    })
}

fn writable(failure: Failure) -> Failure {
    failure.hint("name a file in a directory that exists, on a disk with enough room")
}

async fn export(flags: Export, json: bool) -> Outcome {
    if flags.out == Path::new("-") {
        let failure = Failure::new("--out - is no file").coded("argument_invalid");
        return Err(failure.hint("name a file, or /dev/stdout with --format csv"));
    }
    let form = form(flags.format, &flags.out)?;
    let paths = paths(&flags.out, &flags.streams)?;
    let node = NodeClient::new(&flags.node)?;
    let mut rows = Vec::new();
    for (stream, path) in flags.streams.iter().zip(&paths) {
        rows.push(one(&node, stream, (&flags.from, &flags.to), form, path).await?);
    }
    let is_complete = rows.iter().all(|row| row["complete"] == true);
    let summary = json!({ "complete": is_complete, "files": rows });
    match (
        paths.iter().any(|path| output::is_standard_output(path)),
        json,
    ) {
        // Standard output has the rows alone.
        (true, true) => output::note(&summary),
        (true, false) => output::note(table(&rows)),
        (false, true) => output::json(&summary),
        (false, false) => output::line(table(&rows)),
    }
    if !json {
        note_incomplete(&rows);
    }
    match is_complete {
        true => Ok(()),
        false => Err(Failure::negative()),
    }
}

/// The form that the flags name, or the ending of the file.
fn form(format: Option<ExportFormat>, out: &Path) -> Result<TableForm, Failure> {
    let ending = out.extension().and_then(|ending| ending.to_str());
    let format = format.or(match ending {
        Some("csv") => Some(ExportFormat::Csv),
        Some("parquet") => Some(ExportFormat::Parquet),
        Some("arrow" | "feather" | "ipc") => Some(ExportFormat::Arrow),
        _ => None,
    });
    match format {
        Some(ExportFormat::Csv) => Ok(TableForm::Csv),
        #[cfg(feature = "parquet")]
        Some(ExportFormat::Parquet) => Ok(TableForm::Parquet),
        #[cfg(feature = "parquet")]
        Some(ExportFormat::Arrow) => Ok(TableForm::Arrow),
        #[cfg(not(feature = "parquet"))]
        Some(_) => Err(
            Failure::new("this program was built without Parquet and Arrow")
                .coded("not_built_in")
                .hint(
                    "use --format csv, or build it with `cargo build --release --features parquet`",
                ),
        ),
        None => {
            let failure = Failure::new(format!("the ending of {} names no format", out.display()))
                .coded("argument_invalid");
            Err(failure.hint("add --format csv, parquet or arrow"))
        }
    }
}

/// Exports a stream; returns its row of the summary.
async fn one(
    node: &NodeClient,
    stream: &str,
    (from, to): (&Option<String>, &Option<String>),
    form: TableForm,
    path: &Path,
) -> Result<Value, Failure> {
    let path_of_stream = format!("/api/v1/streams/{}", percent(stream));
    let found = node.get(&path_of_stream).await?;
    let described = TableStream {
        name: found["name"].as_str().unwrap_or(stream).to_owned(),
        device: found["source"].as_str().unwrap_or_default().to_owned(),
        schema: elements::schema(&found)?,
    };
    let last = found["last"].as_u64().unwrap_or(0);
    let mut new = NewFile::begin(path).map_err(writable)?;
    let mut elements = Elements::new(node, &path_of_stream, (from, to), last, &described.schema);
    let mut file = TableFile::new(BufWriter::new(&mut new), form, &described)?;
    let mut reported = 0;
    while let Some(some) = elements.next().await? {
        for element in &some {
            file.push(element)?;
        }
        if elements.count() - reported >= REPORT_ELEMENTS {
            reported = elements.count();
            output::progress(format_args!("{stream}: {}", counted(reported, "element")));
        }
    }
    file.finish()?.flush()?;
    let bytes = new.replace().map_err(writable)?;
    let times = [("from", from), ("to", to)];
    let times: Vec<String> = times
        .iter()
        .filter_map(|(key, time)| Some(format!("{key}={}", percent(time.as_deref()?))))
        .collect();
    let query = times.join("&");
    let completeness = node
        .get(&format!("{path_of_stream}/completeness?{query}"))
        .await?;
    let is_none = |kind: &str| {
        completeness[kind]
            .as_object()
            .is_none_or(|it| it.is_empty())
    };
    let is_complete = is_none("lost") && is_none("refused") && elements.damaged() == 0;
    Ok(json!({
        "stream": described.name,
        "file": path.display().to_string(),
        "bytes": bytes,
        "elements": elements.count(),
        "first": elements.first().map(|at| at.to_string()),
        "last": elements.last().map(|at| at.to_string()),
        "complete": is_complete,
        "damaged": elements.damaged(),
        "lost": completeness["lost"],
        "refused": completeness["refused"],
        "removed": completeness["removed"],
        "exact": completeness["exact"],
    }))
}

fn table(rows: &[Value]) -> Table {
    let mut table = Table::new([
        "STREAM", "FILE", "ELEMENTS", "BYTES", "LOST", "REFUSED", "REMOVED",
    ]);
    for row in rows {
        table.row([
            text(&row["stream"]),
            text(&row["file"]),
            row["elements"].to_string(),
            row["bytes"].to_string(),
            total(&row["lost"]),
            total(&row["refused"]),
            row["removed"]["elements"].to_string(),
        ]);
    }
    table
}

/// Says which files lack elements.
fn note_incomplete(rows: &[Value]) {
    for row in rows.iter().filter(|row| row["complete"] == false) {
        output::note(format_args!(
            "{} is not complete; see: chappe stream completeness {}",
            text(&row["file"]),
            text(&row["stream"])
        ));
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The number of elements for all reasons.
fn total(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    let elements = counts.map(|(_, count)| count["elements"].as_u64().unwrap_or(0));
    elements.sum::<u64>().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_named_or_the_ending_of_the_file() {
        assert_eq!(form(None, Path::new("a.csv")).ok(), Some(TableForm::Csv));
        let named = form(Some(ExportFormat::Csv), Path::new("a.parquet"));
        assert_eq!(named.ok(), Some(TableForm::Csv));
        assert!(form(None, Path::new("a.txt")).is_err());
        let parquet = form(None, Path::new("a.parquet"));
        assert_eq!(parquet.is_ok(), cfg!(feature = "parquet"));
    }
}
