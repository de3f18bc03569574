//! `chappe data repair`: repairs the logs of a stopped node.

use std::path::{Path, PathBuf};

use chappe_log::{Disk, Error, Repaired};
use chappe_terminal::counted;
use chappe_transport::FileDisk;
use serde_json::json;

use super::{as_json, logs, open_exclusive, range_text, tail_text};
use crate::output::{self, Outcome};

/// Repairs both logs below `directory`: moves damaged bytes to a separate directory, cuts an
/// incomplete end, gives up missing records, and rebuilds the index.
pub(crate) fn repair(directory: &Path, json: bool) -> Outcome {
    let mut parts = Vec::new();
    for (name, path) in logs(directory)? {
        let aside = aside_of(directory, name);
        let disk = open_exclusive(&path)?;
        output::progress(format_args!("reading {}", path.display()));
        let mut made = false;
        let mut make = || -> Result<Box<dyn Disk>, Error> {
            made = true;
            let disk = FileDisk::open(&aside).map_err(|error| Error::Io {
                what: format!("make {}", aside.display()),
                reason: error.to_string(),
            })?;
            Ok(Box::new(disk))
        };
        let seed = chappe_transport::seed_number()?;
        let repaired = chappe_log::repair(Box::new(disk), &mut make, seed)?;
        parts.push((name, repaired, made.then_some(aside)));
    }
    if json {
        let part = |(name, repaired, aside): &(&str, Repaired, Option<PathBuf>)| {
            let epochs = repaired.recovery.new_epochs.iter().map(|new| {
                json!({ "stream": new.stream, "epoch": format!("{:016x}", new.epoch),
                    "first": new.first, "reason": new.reason.text() })
            });
            json!({
                "name": name,
                "before": as_json(&repaired.before),
                "kept_aside": aside.as_ref().map(|aside| aside.display().to_string()),
                "files": repaired.aside,
                "given_up": repaired.given_up,
                "new_epochs": epochs.collect::<Vec<_>>(),
            })
        };
        output::json(&json!({ "parts": parts.iter().map(part).collect::<Vec<_>>() }));
    } else {
        for (name, repaired, aside) in &parts {
            print(name, repaired, aside.as_deref());
        }
    }
    Ok(())
}

/// A new directory for damaged bytes.
fn aside_of(directory: &Path, name: &str) -> PathBuf {
    let of = |n: u32| directory.join(format!("damaged-{n}")).join(name);
    let free = (1..).find(|n| !of(*n).exists());
    of(free.unwrap_or(u32::MAX))
}

fn print(name: &str, repaired: &Repaired, aside: Option<&Path>) {
    output::line(format_args!("{name}:"));
    if let Some(tail) = &repaired.before.torn_tail {
        output::line(format_args!("  cut: {}", tail_text(tail)));
    }
    for range in &repaired.before.corrupt {
        output::line(format_args!("  damaged: {}", range_text(range)));
    }
    if let Some(aside) = aside {
        let files = counted(repaired.aside.len(), "file");
        let text = format!("  damaged bytes: {files} in {}", aside.display());
        output::line(text);
    }
    for (stream, first, last) in &repaired.given_up {
        output::line(format_args!("  given up: {stream} {first} to {last}"));
    }
    for new in &repaired.recovery.new_epochs {
        let reason = new.reason.text();
        output::line(format_args!("  new epoch: {} ({reason})", new.stream));
    }
    output::line(format_args!(
        "  {} in {}",
        counted(repaired.recovery.records, "record"),
        counted(repaired.recovery.segments, "segment")
    ));
}
