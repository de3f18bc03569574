//! The floors: the lines of the same program, or of the same file, that are only read, or read and parsed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::de::IgnoredAny;

use crate::Error;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Lines per second of a program that prints a file.
pub(super) fn read(path: &Path) -> Result<f64, Error> {
    printed(path, |_| true)
}

/// The same, each line parsed as JSON.
pub(super) fn parsed(path: &Path) -> Result<f64, Error> {
    printed(path, |line| {
        serde_json::from_slice::<IgnoredAny>(line).is_ok()
    })
}

/// Lines per second of a file.
pub(super) fn read_file(path: &Path) -> Result<f64, Error> {
    let file = File::open(path).map_err(Error::io("opening the file"))?;
    rate(file, |_| true)
}

fn printed(path: &Path, each: impl FnMut(&[u8]) -> bool) -> Result<f64, Error> {
    let failed = || Error::io("running cat");
    let mut child = Command::new("cat")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed())?;
    let output = child.stdout.take();
    let output = output.ok_or_else(|| Error::Failed("cat has no output".to_owned()))?;
    let rate = rate(output, each);
    child.wait().map_err(failed())?;
    rate
}

fn rate(source: impl std::io::Read, mut each: impl FnMut(&[u8]) -> bool) -> Result<f64, Error> {
    let mut source = BufReader::with_capacity(READ_BYTES, source);
    let (mut line, mut lines, start) = (Vec::new(), 0_u64, Instant::now());
    loop {
        line.clear();
        let read = source.read_until(b'\n', &mut line);
        if read.map_err(Error::io("reading lines"))? == 0 {
            break;
        }
        if !each(&line) {
            return Err(Error::Failed(format!("line {lines} is no JSON")));
        }
        lines += 1;
    }
    Ok(lines as f64 / start.elapsed().as_secs_f64())
}
