//! `chappe data`: stored data.

use std::path::Path;

use chappe_log::{CorruptRange, Report, TornTail};
use serde_json::json;

use crate::output::{self, Failure, Outcome, Table};

/// Reads every frame of the log and of the registry's journal below `directory` and says what is
/// damaged.
pub(crate) fn check(directory: &Path, json: bool) -> Outcome {
    let log = chappe_node::log_directory(directory);
    if !log.is_dir() {
        let message = format!("{} holds no log", directory.display());
        return Err(Failure::new(message)
            .hint("name the data directory of a node (data_directory in its configuration)"));
    }
    let log = read(&log)?;
    let registry = chappe_node::registry_directory(directory);
    let registry = registry.is_dir().then(|| read(&registry)).transpose()?;
    let healthy = log.healthy() && registry.as_ref().is_none_or(Report::healthy);
    if json {
        let mut whole = as_json(&log);
        whole["healthy"] = healthy.into();
        whole["registry"] = registry.as_ref().map(as_json).into();
        output::json(&whole);
    } else {
        print(&log);
        if let Some(registry) = &registry {
            output::line("the registry's journal:");
            print_summary(registry);
        }
        output::line(if healthy { "healthy" } else { "damaged" });
    }
    if healthy {
        Ok(())
    } else {
        Err(Failure::negative())
    }
}

fn read(log: &Path) -> Result<Report, Failure> {
    let disk = chappe_transport::FileDisk::open_unlocked(log)?;
    Ok(chappe_log::check(&disk)?)
}

fn print(report: &Report) {
    let mut table = Table::new([
        "STREAM", "LEVEL", "EPOCH", "FIRST", "LAST", "RECORDS", "GAPS",
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
            stream.gaps.len().to_string(),
        ]);
    }
    output::line(table);
    print_summary(report);
}

fn print_summary(report: &Report) {
    let ended = if report.clean {
        "closed cleanly"
    } else {
        "not closed cleanly"
    };
    output::line(format_args!(
        "{} segments, {} bytes, {} frames, {} records, {ended}",
        report.segments, report.bytes, report.frames, report.records
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
        "{} bytes at {} of {}, never acknowledged",
        tail.bytes, tail.offset, tail.segment
    )
}

fn range_text(range: &CorruptRange) -> String {
    let mut text = format!(
        "{} bytes at {} of {}: {}",
        range.bytes, range.offset, range.segment, range.what
    );
    for (stream, first, last) in &range.gaps {
        text.push_str(&format!("; {stream} lacks {first} to {last}"));
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
