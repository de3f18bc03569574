//! `chappe data`: checks, repairs, backs up and restores stored data.
//!
//! A data directory holds two logs: the streams (`log`) and the registry's journal (`registry`). Every
//! verb handles both in the same way.

mod backup;
mod check;
mod repair;
mod restore;

use std::path::{Path, PathBuf};

use chappe_log::{CorruptRange, Report, TornTail};
use chappe_terminal::counted;
use chappe_transport::FileDisk;
use serde_json::json;

use super::serve::failure;
use crate::output::{self, Failure, Table};

pub(crate) use backup::backup;
pub(crate) use check::check;
pub(crate) use repair::repair;
pub(crate) use restore::restore;

/// The logs of a data directory: name and path, the streams first. Data of a newer program is refused, before a command
/// changes any of it.
fn logs(directory: &Path) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let log = chappe_node::log_directory(directory);
    if let Err(error) = std::fs::read_dir(&log)
        && error.kind() == std::io::ErrorKind::PermissionDenied
    {
        let failure = Failure::new(format!("cannot read {}: {error}", log.display()))
            .coded("file_unreadable");
        return Err(
            failure.hint("run the command as the user of the node: sudo -u USER chappe data ...")
        );
    }
    if !log.is_dir() {
        let message = format!("{} holds no log", directory.display());
        return Err(Failure::new(message)
            .coded("data_unusable")
            .hint("name the data directory of a node (data_directory in its configuration)"));
    }
    chappe_node::check_formats(directory).map_err(failure)?;
    let mut logs = vec![("log", log)];
    let registry = chappe_node::registry_directory(directory);
    if registry.is_dir() {
        logs.push(("registry", registry));
    }
    Ok(logs)
}

/// Opens a log for this process alone.
fn open_exclusive(log: &Path) -> Result<FileDisk, Failure> {
    FileDisk::open(log).map_err(|error| {
        match error.kind() {
        std::io::ErrorKind::ReadOnlyFilesystem => output::refused("open", log, &error).hint(
            "copy the data directory to a file system that is not read-only (cp -a), and name the copy",
        ),
        std::io::ErrorKind::WouldBlock => Failure::new(error.to_string()).coded("data_in_use").hint(
            "stop the node that uses it; only `chappe data check` and `backup` work while it runs",
        ),
        _ => Failure::from(error),
    }
    })
}

/// Reports the progress of long work, in steps of 5 %.
struct Steps {
    work: String,
    reported: u64,
}

impl Steps {
    fn new(work: impl Into<String>) -> Self {
        Self {
            work: work.into(),
            reported: 0,
        }
    }

    fn at(&mut self, done: u64, all: u64) {
        let twentieth = (done * 20).checked_div(all).unwrap_or(20);
        if twentieth > self.reported {
            self.reported = twentieth;
            let percent = twentieth * 5;
            output::progress(format_args!("{}: {percent} %, {done} bytes", self.work));
        }
    }
}

fn print_streams(report: &Report) {
    let mut table = Table::new([
        "STREAM", "LEVEL", "EPOCH", "FIRST", "LAST", "RECORDS", "GAPS", "MISSING",
    ]);
    for stream in &report.streams {
        let info = &stream.info;
        table.row([
            info.name.clone(),
            format!("{:?}", info.level).to_lowercase(),
            format!("{:016x}", info.epoch),
            info.first.to_string(),
            info.last.to_string(),
            stream.records.to_string(),
            (stream.gaps.len() + stream.given_up.len()).to_string(),
            missing(&stream.gaps, &stream.given_up).to_string(),
        ]);
    }
    output::line(table);
}

/// The count of numbers in all ranges.
fn missing(gaps: &[(u64, u64)], given_up: &[(u64, u64)]) -> u64 {
    let all = gaps.iter().chain(given_up);
    all.map(|(first, last)| last - first + 1).sum()
}

fn print_summary(report: &Report) {
    let ended = if report.clean {
        "closed cleanly"
    } else {
        "not closed cleanly"
    };
    output::line(format_args!(
        "{}, {} bytes, {}, {}, {ended}",
        counted(report.segments, "segment"),
        report.bytes,
        counted(report.frames, "frame"),
        counted(report.records, "record")
    ));
    if let Some(tail) = &report.torn_tail {
        output::line(format_args!("torn tail: {}", tail_text(tail)));
    }
    for range in &report.corrupt {
        output::line(format_args!("damaged: {}", range_text(range)));
    }
    if report.copied {
        output::line("this is a copy: the node gives every stream a new epoch when it starts here");
    }
}

fn tail_text(tail: &TornTail) -> String {
    format!(
        "{} bytes at byte {} of {}, never acknowledged",
        tail.bytes, tail.offset, tail.segment
    )
}

fn range_text(range: &CorruptRange) -> String {
    let mut text = format!(
        "{} bytes at byte {} of {}: {}",
        range.bytes, range.offset, range.segment, range.what
    );
    for (stream, first, last) in &range.gaps {
        text.push_str(&format!("; {stream} misses {first} to {last}"));
    }
    text
}

fn as_json(report: &Report) -> serde_json::Value {
    let stream = |stream: &chappe_log::StreamReport| {
        json!({
            "name": stream.info.name,
            "level": format!("{:?}", stream.info.level).to_lowercase(),
            "epoch": format!("{:016x}", stream.info.epoch),
            "first": stream.info.first,
            "last": stream.info.last,
            "records": stream.records,
            "frames": stream.frames,
            "gaps": stream.gaps,
            "given_up": stream.given_up,
        })
    };
    let corrupt = |range: &CorruptRange| {
        json!({
            "segment": range.segment,
            "offset": range.offset,
            "bytes": range.bytes,
            "what": range.what,
            "gaps": range.gaps,
        })
    };
    json!({
        "healthy": report.healthy(),
        "clean": report.clean,
        "copied": report.copied,
        "segments": report.segments,
        "bytes": report.bytes,
        "frames": report.frames,
        "records": report.records,
        "streams": report.streams.iter().map(stream).collect::<Vec<_>>(),
        "torn_tail": report.torn_tail.as_ref().map(|tail| json!({
            "segment": tail.segment, "offset": tail.offset, "bytes": tail.bytes,
        })),
        "corrupt": report.corrupt.iter().map(corrupt).collect::<Vec<_>>(),
    })
}
