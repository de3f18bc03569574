//! What dead exporters cost one that works: one whose program never answers, and one whose program ends as
//! soon as it is passed elements.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Wrappers, node};
use crate::{Error, Limit, Reference, Report};

/// Repeats with and without dead exporters, in turn; the fastest of each counts.
const REPEATS: usize = 5;
/// Time between two looks at the file.
const LOOK: Duration = Duration::from_millis(2);
/// More than the length of an exported element.
const LAST_BYTES: u64 = 1_000;

const GOOD: &str = "kind = \"file\"\npath = \"../out.jsonl\"\nstreams = [\"bench\"]\n";
const STALLED: &str = "kind = \"program\"\nprogram = [\"sh\", \"-c\", \"exec cat > /dev/null\"]\nstreams = [\"bench\"]\n";
const ENDED: &str = "kind = \"program\"\n\
    program = [\"sh\", \"-c\", \"read -r start; echo '{\\\"ready\\\":{}}'; read -r element; exit 1\"]\n\
    streams = [\"bench\"]\n";

pub(super) fn run(bench: &Wrappers<'_>, quick: bool, report: &mut Report) -> Result<(), Error> {
    let folder = filled(bench)?;
    let lines = bench.lines as u64;
    let (mut alone, mut beside) = (f64::INFINITY, f64::INFINITY);
    let repeats = if quick { 2 } else { REPEATS };
    for repeat in 0..repeats {
        for (others, fastest) in [(&[][..], &mut alone), (&[STALLED, ENDED], &mut beside)] {
            (bench.progress)(&format!(
                "exporters: {} dead, repeat {}",
                others.len(),
                repeat + 1
            ));
            *fastest = fastest.min(export(&folder, repeat, others, lines)?);
        }
    }
    let rate = |seconds: f64| lines as f64 / seconds;
    report.row("exported to a file", rate(alone), "1/s", "alone");
    report.row(
        "exported to a file",
        rate(beside),
        "1/s",
        "next to 2 dead exporters",
    );
    report.target(
        "time to export next to 2 dead exporters",
        (beside, "s"),
        Reference::new("alone", alone),
        Limit::AtMost(1.02),
    );
    Ok(())
}

/// The folder of a node whose stream `bench` has all lines.
pub(super) fn filled(bench: &Wrappers<'_>) -> Result<PathBuf, Error> {
    let folder = node::fresh(bench.folder);
    (bench.progress)("exporters: filling a stream");
    let path = bench.write("export.csv", &super::csv(bench.lines))?;
    let wrapper = super::file_wrapper(&path);
    node::write(&folder, "wrappers/bench.toml", &wrapper)?;
    let lines = bench.lines as u64;
    node::with(node::config(&folder), async |node| {
        while node
            .stream("bench")
            .is_none_or(|log| log.log().last() < lines)
        {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    })?;
    let removed = std::fs::remove_file(folder.join("wrappers/bench.toml"));
    removed.map_err(Error::io("removing the wrapper"))?;
    Ok(folder)
}

/// Seconds that an exporter of a new name takes for the whole stream.
fn export(folder: &Path, repeat: usize, others: &[&str], lines: u64) -> Result<f64, Error> {
    let directory = folder.join("exporters");
    let _ = std::fs::remove_dir_all(&directory);
    let _ = std::fs::remove_file(folder.join("out.jsonl"));
    let count = others.len();
    // Cursors are stored by name, so that each run has names of its own.
    for (index, text) in others.iter().enumerate() {
        node::write(&directory, &format!("dead-{repeat}-{index}.toml"), text)?;
    }
    node::write(&directory, &format!("good-{repeat}-{count}.toml"), GOOD)?;
    let out = folder.join("out.jsonl");
    node::with(node::config(folder), async |_| {
        while !out.exists() {
            tokio::time::sleep(LOOK).await;
        }
        let start = Instant::now();
        while number(&out)? < lines {
            tokio::time::sleep(LOOK).await;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

/// The number of the last element in a file.
fn number(path: &Path) -> Result<u64, Error> {
    let failed = || Error::io("reading what was exported");
    let mut file = std::fs::File::open(path).map_err(failed())?;
    let length = file.metadata().map_err(failed())?.len();
    let start = length.saturating_sub(LAST_BYTES);
    file.seek(SeekFrom::Start(start)).map_err(failed())?;
    let mut end = String::new();
    file.read_to_string(&mut end).map_err(failed())?;
    let last = end.rsplit_once("\"number\":").map_or("", |(_, last)| last);
    let digits: String = last.chars().take_while(char::is_ascii_digit).collect();
    // A number whose end is not written yet is smaller.
    Ok(digits.parse().unwrap_or(0))
}
