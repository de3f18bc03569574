//! `chappe data backup`: copies both logs, also of a running node, with a manifest.
//!
//! The manifest lists each file with its length and SHA-256, and the newest record of each stream. It
//! is written last, so that an interrupted copy is not a backup. Files with secrets are optional:
//! without them a backup can go to people who must not be able to impersonate the node.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use chappe_identity::hex_encode;
use chappe_log::Report;
use chappe_node::SECRET_FILES;
use chappe_transport::FileDisk;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Steps, logs, print_summary};
use crate::output::{self, Failure, NewFile, Outcome};

/// The manifest's file name.
pub(super) const MANIFEST: &str = "manifest.json";
/// The file with the manifest's SHA-256, as `sha256sum` writes it.
pub(super) const MANIFEST_SUM: &str = "manifest.json.sha256";
/// Version of the manifest.
pub(super) const FORMAT: u32 = 1;
/// Bytes of one read.
const READ_BYTES: usize = 256 * 1024;

/// The contents of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// [`FORMAT`].
    pub(super) format: u32,
    /// The program that made it.
    pub(super) program: String,
    /// Unix time in seconds.
    pub(super) made_at_unix_s: u64,
    /// The logs.
    pub(super) parts: Vec<Part>,
    /// Files with secrets, of [`SECRET_FILES`].
    #[serde(default)]
    pub(super) secrets: Vec<Copied>,
}

/// One log of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// Its directory, in the backup and in a data directory: `log` or `registry`.
    pub(super) name: String,
    /// Records in it.
    pub(super) records: u64,
    /// False if the original was damaged.
    pub(super) healthy: bool,
    /// The newest number of each stream.
    pub(super) streams: Vec<Newest>,
    /// Its files.
    pub(super) files: Vec<Copied>,
}

/// The newest record of a stream.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Newest {
    name: String,
    epoch: String,
    first: u64,
    last: u64,
}

/// A file of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Copied {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// Whether a path that may not exist yet is inside a directory.
fn is_inside(path: &Path, directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else {
        return false;
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = path.ancestors().find_map(|one| one.canonicalize().ok());
    existing.is_some_and(|existing| existing.starts_with(directory))
}

/// Copies both logs below `directory` to the new directory `to`, and the files with secrets if
/// `with_secrets`.
pub(crate) fn backup(directory: &Path, to: &Path, with_secrets: bool, json: bool) -> Outcome {
    let logs = logs(directory)?;
    if is_inside(to, directory) {
        let message = format!("{} is inside the data directory", to.display());
        return Err(Failure::new(message)
            .coded("backup_unusable")
            .hint("name a directory outside of it, best on another disk"));
    }
    new_directory(to)?;
    let (mut parts, mut reports) = (Vec::new(), Vec::new());
    for (name, path) in logs {
        let target = to.join(name);
        new_directory(&target)?;
        let (from, into) = (
            FileDisk::open_unlocked(&path)?,
            FileDisk::open_unlocked(&target)?,
        );
        let mut steps = Steps::new(format!("copying {name}"));
        let made = chappe_log::back_up(&from, &into, &mut |done, all| steps.at(done, all))?;
        output::progress(format_args!("checksums of {name}"));
        let mut files = Vec::new();
        for (name, bytes) in made.files {
            let sha256 = sha256(&target.join(&name))?;
            files.push(Copied {
                name,
                bytes,
                sha256,
            });
        }
        parts.push(part(name, &made.report, files));
        reports.push((name, made.report));
    }
    let present = |name: &&str| directory.join(name).exists();
    let present: Vec<&str> = SECRET_FILES.into_iter().filter(present).collect();
    let mut secrets = Vec::new();
    for name in present.iter().filter(|_| with_secrets) {
        secrets.push(copy_secret(&directory.join(name), &to.join(name), name)?);
    }
    let healthy = reports.iter().all(|(_, report)| report.healthy());
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let manifest = Manifest {
        format: FORMAT,
        program: format!("chappe {}", env!("CARGO_PKG_VERSION")),
        made_at_unix_s: since.map_or(0, |since| since.as_secs()),
        parts,
        secrets,
    };
    write_manifest(to, &manifest)?;
    if json {
        let manifest = serde_json::to_value(&manifest)?;
        let to = to.display().to_string();
        output::json(&json!({ "backup": to, "healthy": healthy, "manifest": manifest }));
    } else {
        for (name, report) in &reports {
            output::line(format_args!("{name}:"));
            print_summary(report);
        }
        output::line(format_args!("backup in {}", to.display()));
    }
    if !with_secrets && !present.is_empty() {
        output::note(format_args!(
            "hint: {} not copied, because they hold secrets: keep copies elsewhere, or add --with-secrets",
            present.join(", ")
        ));
    }
    if healthy {
        return Ok(());
    }
    output::note("the original is damaged, and so is the copy; see: chappe data check");
    Err(Failure::negative())
}

/// Copies a small private file to a private file.
fn copy_secret(from: &Path, to: &Path, name: &str) -> Result<Copied, Failure> {
    let content = fs::read(from).map_err(|error| {
        Failure::new(format!("cannot read {}: {error}", from.display()))
            .coded("backup_unusable")
            .hint("run it as the node's user")
    })?;
    write_secret(to, &content)?;
    Ok(Copied {
        name: name.to_owned(),
        bytes: content.len() as u64,
        sha256: hex_encode(&digest(&content)),
    })
}

/// Writes a file that only its owner can read.
pub(super) fn write_secret(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn part(name: &str, report: &Report, files: Vec<Copied>) -> Part {
    let streams = report.streams.iter().map(|stream| Newest {
        name: stream.info.name.clone(),
        epoch: format!("{:016x}", stream.info.epoch),
        first: stream.info.first,
        last: stream.info.last,
    });
    Part {
        name: name.to_owned(),
        records: report.records,
        healthy: report.healthy(),
        streams: streams.collect(),
        files,
    }
}

/// Makes a directory for its owner alone, or takes an empty one.
fn new_directory(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let entries = made.and_then(|()| fs::read_dir(path));
    let mut entries = entries.map_err(|error| {
        Failure::new(format!("cannot create {}: {error}", path.display()))
            .coded("file_unwritable")
            .hint("name a new directory, on a disk with enough room")
    })?;
    if entries.next().is_some() {
        let message = format!("{} is not empty", path.display());
        return Err(Failure::new(message)
            .coded("backup_unusable")
            .hint("name a new directory for each backup"));
    }
    Ok(())
}

fn write_manifest(to: &Path, manifest: &Manifest) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(manifest)?;
    let sum = format!("{}  {MANIFEST}\n", hex_encode(&digest(&text)));
    for (name, bytes) in [(MANIFEST_SUM, sum.as_bytes()), (MANIFEST, &text)] {
        let mut new = NewFile::begin(&to.join(name))?;
        new.write_all(bytes)?;
        new.create()?;
    }
    Ok(())
}

/// SHA-256 of bytes.
pub(super) fn digest(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes)
        .as_ref()
        .to_vec()
}

/// SHA-256 of a file, hexadecimal.
pub(super) fn sha256(path: &Path) -> io::Result<String> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex_encode(context.finish().as_ref())),
            read => context.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_for_a_backup_is_compared_with_the_data() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        for (to, inside) in [
            (data.join("monday"), true),
            (data.join("a/b"), true),
            (data.join("../data/monday"), true),
            (folder.path().join("data-monday"), false),
            (data.join("../monday"), false),
            (folder.path().join("monday/tuesday"), false),
        ] {
            assert_eq!(is_inside(&to, &data), inside, "{}", to.display());
        }
    }
}
