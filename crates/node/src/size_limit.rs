//! The size limit of the log: `log.max_bytes`, or a default derived from the disk.
//!
//! The default is half of the file system, so that a node does not fill a small disk before retention
//! removes elements. It never shrinks a log: a log that is larger at the start keeps its size, and a
//! notice reports that.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::config::{Config, MaxBytes};
use crate::data::log_directory;

/// The default is the size of the file system divided by this; other programs have the rest.
const DISK_DIVISOR: u64 = 2;
/// The minimum default; reason: a few hours of a busy node. On a small disk a tenth stays free.
const DEFAULT_MIN_BYTES: u64 = 1 << 30;

/// The size limit of a log, and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    /// The limit; `None`: unlimited.
    pub bytes: Option<u64>,
    /// Whether it is the default.
    pub is_default: bool,
    /// The default derived from the disk, when the log is already larger.
    pub exceeded: Option<u64>,
}

impl SizeLimit {
    /// The limit for a node with this configuration, whether or not it has data yet.
    ///
    /// # Errors
    /// The file system or the log's directory cannot be read.
    pub fn of(config: &Config) -> io::Result<Self> {
        match config.log.max_bytes {
            MaxBytes::Bytes(bytes) => Ok(Self {
                bytes: Some(bytes).filter(|bytes| *bytes > 0),
                is_default: false,
                exceeded: None,
            }),
            MaxBytes::Word(_) => {
                let log = log_directory(&config.data_directory);
                Ok(Self::default_for(disk_bytes(&log)?, held_bytes(&log)?))
            }
        }
    }

    fn default_for(disk_bytes: u64, held_bytes: u64) -> Self {
        let most = disk_bytes / 10 * 9;
        let limit = (disk_bytes / DISK_DIVISOR).max(DEFAULT_MIN_BYTES).min(most);
        Self {
            bytes: Some(limit.max(held_bytes)),
            is_default: true,
            exceeded: Some(limit).filter(|limit| *limit < held_bytes),
        }
    }
}

impl fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.bytes else {
            return f.write_str("the log has no size limit (log.max_bytes = 0)");
        };
        let size = Bytes(bytes);
        match (self.exceeded, self.is_default) {
            (Some(limit), _) => write!(
                f,
                "the log holds {size}, more than the default limit of {}: it keeps this size, and new \
                 elements replace its oldest files (set log.max_bytes to choose a limit, 0 for none)",
                Bytes(limit)
            ),
            (None, true) => write!(
                f,
                "the log may grow to {size}, half of its disk (set log.max_bytes to change this, 0 for \
                 no limit)"
            ),
            (None, false) => write!(f, "the log may grow to {size} (log.max_bytes)"),
        }
    }
}

/// A size for display.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = UNITS.iter().find(|(shift, _)| self.0 >> shift > 0);
        match unit {
            Some((shift, name)) => {
                write!(f, "{:.1} {name}", self.0 as f64 / (1_u64 << shift) as f64)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// The size of the file system of `directory`, which need not exist yet.
fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let absolute = std::path::absolute(directory)?;
    let existing = absolute.ancestors().find(|path| path.exists());
    let disk = nix::sys::statvfs::statvfs(existing.unwrap_or(Path::new("/")))?;
    Ok(disk.blocks() as u64 * disk.fragment_size() as u64)
}

/// Bytes of the log's segments; 0 when there is no log yet.
fn held_bytes(log: &Path) -> io::Result<u64> {
    let files = match fs::read_dir(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        files => files?,
    };
    let mut bytes = 0;
    for file in files {
        let file = file?;
        if file.path().extension().is_some_and(|it| it == "segment") {
            bytes += file.metadata()?.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_default_is_half_of_the_disk_and_leaves_room_on_a_small_one() {
        let bytes = |disk, held| SizeLimit::default_for(disk, held).bytes.unwrap();
        assert_eq!(bytes(100 * GIB, 0), 50 * GIB);
        assert_eq!(bytes(3 * GIB / 2, 0), GIB);
        assert_eq!(bytes(10 << 20, 0), 9 << 20);
    }

    #[test]
    fn the_default_never_shrinks_a_log_and_reports_that_it_is_exceeded() {
        let limit = SizeLimit::default_for(100 * GIB, 80 * GIB);
        assert_eq!(limit.bytes, Some(80 * GIB));
        assert_eq!(limit.exceeded, Some(50 * GIB));
        let text = limit.to_string();
        assert!(
            text.contains("80.0 GiB") && text.contains("50.0 GiB"),
            "{text}"
        );
    }

    #[test]
    fn a_configured_limit_applies_and_zero_means_unlimited() {
        let mut config = Config::default();
        config.log.max_bytes = MaxBytes::Bytes(5);
        assert_eq!(SizeLimit::of(&config).unwrap().bytes, Some(5));
        config.log.max_bytes = MaxBytes::Bytes(0);
        assert_eq!(SizeLimit::of(&config).unwrap().bytes, None);
    }

    #[test]
    fn only_segments_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(held_bytes(&directory.path().join("log")).unwrap(), 0);
        fs::write(directory.path().join("0000000001.segment"), [0; 300]).unwrap();
        fs::write(directory.path().join("0000000001.index"), [0; 9]).unwrap();
        assert_eq!(held_bytes(directory.path()).unwrap(), 300);
    }
}
