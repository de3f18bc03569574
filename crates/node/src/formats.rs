//! The format versions of a data directory, read before anything in it is changed.
//!
//! Each log and each state file is also checked where it is opened. That is too late for a directory of which only a
//! part is newer: the parts opened before would already be changed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::data::{log_directory, registry_directory};
use crate::error::StartError;
use crate::links::newer_version;

/// Checks that no newer program wrote the logs and state files of a data directory, or of a backup. Only reads, so the
/// directory may be read-only, or in use by a node. A file that cannot be read passes: its reader reports that.
///
/// # Errors
/// [`StartError::NewerFormat`] for the first file that this program does not know.
pub fn check_formats(directory: &Path) -> Result<(), StartError> {
    for log in [log_directory(directory), registry_directory(directory)] {
        for path in files(&log) {
            refuse_newer(newer_log(&path), path)?;
        }
    }
    let is_state = |path: &PathBuf| path.extension() == Some(OsStr::new("json"));
    for path in files(directory).filter(is_state) {
        refuse_newer(newer_version(&path), path)?;
    }
    Ok(())
}

fn refuse_newer(newer: Option<(u32, u32)>, path: PathBuf) -> Result<(), StartError> {
    match newer {
        Some((found, known)) => Err(StartError::NewerFormat { path, found, known }),
        None => Ok(()),
    }
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// The format version of a log's file that a newer program wrote, and the newest known one.
fn newer_log(path: &Path) -> Option<(u32, u32)> {
    let mut start = Vec::new();
    let file = File::open(path).ok()?;
    let limit = chappe_log::FORMAT_BYTES as u64;
    file.take(limit).read_to_end(&mut start).ok()?;
    let name = path.file_name()?.to_str()?;
    match chappe_log::check_format(name, &start) {
        Err(chappe_log::Error::NewerFormat { found, known, .. }) => Some((found, known)),
        _ => None,
    }
}
