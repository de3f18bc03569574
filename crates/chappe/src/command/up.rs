//! `chappe up`: runs the node of a directory.

use std::path::{Path, PathBuf};

use super::config::FILE;
use super::serve;
use crate::cli::{Serve, Up};
use crate::output::{Failure, Outcome};

/// Runs the node until a signal.
pub(crate) fn run(flags: Up, json: bool) -> Outcome {
    let file = Some(configuration(&flags.at)?);
    serve::run(
        Serve {
            file,
            set: flags.set,
        },
        json,
    )
}

/// The configuration at a path: the file itself, or `node.toml` of a directory.
pub(super) fn configuration(at: &Path) -> Result<PathBuf, Failure> {
    let file = match at.is_dir() {
        true => at.join(FILE),
        false => at.to_owned(),
    };
    if file.is_file() {
        return Ok(file);
    }
    let directory = match at.is_dir() || at.extension().is_none() {
        true => at,
        false => at.parent().unwrap_or(Path::new(".")),
    };
    Err(Failure::new(format!("there is no {}", file.display()))
        .coded("file_not_found")
        .hint(match directory.to_str() {
            Some("." | "") | None => {
                "make one from the devices that are found: chappe init".to_owned()
            }
            Some(directory) => {
                format!("make one from the devices that are found: chappe init {directory}")
            }
        }))
}
