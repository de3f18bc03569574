//! `chappe data restore`: restores a backup as the data of a node.
//!
//! All files are verified before the first write, and again at their destination. The logs are marked
//! as copies, so the node that opens them gives every stream a new epoch: numbers assigned after the
//! backup must not identify other records.

use std::fs;
use std::path::{Path, PathBuf};

use chappe_identity::hex_encode;
use chappe_log::Disk as _;
use chappe_node::SECRET_FILES;
use serde_json::json;

use super::backup::{
    Copied, FORMAT, MANIFEST, MANIFEST_SUM, Manifest, Part, digest, sha256, write_secret,
};
use super::{Steps, failure, open_exclusive, print_summary};
use crate::output::{self, Failure, Outcome};

/// Restores the backup in `from` to the data directory `directory`, which must hold no data.
pub(crate) fn restore(from: &Path, directory: &Path, json: bool) -> Outcome {
    let manifest = manifest(from)?;
    chappe_node::check_formats(from).map_err(failure)?;
    let all: u64 = files(&manifest).map(|(_, file)| file.bytes).sum();
    let mut steps = Steps::new("verifying");
    let mut done = 0;
    for (part, file) in files(&manifest) {
        verify(&from.join(&part.name).join(&file.name), &file.sha256)?;
        done += file.bytes;
        steps.at(done, all);
    }
    for file in &manifest.secrets {
        verify(&from.join(&file.name), &file.sha256)?;
        if directory.join(&file.name).exists() {
            let message = format!("{} already exists", directory.join(&file.name).display());
            return Err(Failure::new(message)
                .coded("backup_unusable")
                .hint("restore into a new directory, or move the data away first"));
        }
    }
    let mut targets = Vec::new();
    for part in &manifest.parts {
        let target = target(directory, part)?;
        let disk = open_exclusive(&target)?;
        if disk.list()?.iter().any(|name| name.ends_with(".segment")) {
            let message = format!("{} already holds data", target.display());
            return Err(Failure::new(message)
                .coded("backup_unusable")
                .hint("restore into a new directory, or move the data away first"));
        }
        targets.push((part, target, disk));
    }
    let (mut steps, mut done) = (Steps::new("restoring"), 0);
    let mut reports = Vec::new();
    for (part, target, disk) in targets {
        for file in &part.files {
            let path = target.join(&file.name);
            let mut copy = disk.create(&file.name)?;
            copy_into(&from.join(&part.name).join(&file.name), &mut *copy)?;
            verify(&path, &file.sha256)?;
            done += file.bytes;
            steps.at(done, all);
        }
        // The marker of the empty log would claim these records as its own.
        if disk.list()?.iter().any(|name| name == "marker") {
            disk.remove("marker")?;
        }
        disk.sync_directory()?;
        reports.push((part, chappe_log::check(&disk)?));
    }
    for file in &manifest.secrets {
        let path = directory.join(&file.name);
        write_secret(&path, &fs::read(from.join(&file.name))?)?;
        verify(&path, &file.sha256)?;
    }
    if json {
        let part = |(part, report): &(&Part, chappe_log::Report)| {
            json!({ "name": part.name, "records": report.records, "healthy": report.healthy(),
                "new_epoch": report.copied })
        };
        let parts: Vec<_> = reports.iter().map(part).collect();
        output::json(&json!({ "directory": directory.display().to_string(), "parts": parts }));
    } else {
        for (part, report) in &reports {
            output::line(format_args!("{}:", part.name));
            print_summary(report);
        }
        output::line(format_args!("restored to {}", directory.display()));
    }
    if !directory.join("key.pem").exists() {
        output::note(
            "hint: copy the node's key.pem there too; with another key it is another node and does not \
             continue these streams. Links and subscriptions that were added at run time are in \
             links.json and subscriptions.json, places and exclusions of devices in places.json and \
             excluded-devices.json",
        );
    }
    Ok(())
}

fn files(manifest: &Manifest) -> impl Iterator<Item = (&Part, &Copied)> {
    let parts = manifest.parts.iter();
    parts.flat_map(|part| part.files.iter().map(move |file| (part, file)))
}

/// Reads the manifest, verifies it, and refuses file names outside the backup.
fn manifest(from: &Path) -> Result<Manifest, Failure> {
    let path = from.join(MANIFEST);
    let text = fs::read(&path).map_err(|error| {
        Failure::new(format!("cannot read {}: {error}", path.display()))
            .coded("backup_unusable")
            .hint("name a directory that `chappe data backup` completed")
    })?;
    let sum = fs::read_to_string(from.join(MANIFEST_SUM)).unwrap_or_default();
    if sum.split_whitespace().next() != Some(&hex_encode(&digest(&text))) {
        return Err(damaged(&path));
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| {
        Failure::new(format!("{} is not a manifest: {error}", path.display()))
            .coded("backup_unusable")
    })?;
    if manifest.format > FORMAT {
        let message = format!(
            "{} was made by {} and has format version {}; this program reads up to {FORMAT}",
            from.display(),
            manifest.program,
            manifest.format
        );
        return Err(Failure::new(message)
            .coded("backup_unusable")
            .hint("use that program, or a newer one"));
    }
    let known = |part: &Part| matches!(part.name.as_str(), "log" | "registry");
    let plain = |name: &str| {
        let digits = name.strip_suffix(".segment");
        digits.is_some_and(|it| it.len() == 10 && it.bytes().all(|b| b.is_ascii_digit()))
    };
    let secret = |file: &Copied| SECRET_FILES.contains(&file.name.as_str());
    let named = manifest.parts.iter().all(known)
        && files(&manifest).all(|(_, file)| plain(&file.name))
        && manifest.secrets.iter().all(secret);
    if !named {
        return Err(Failure::new(format!(
            "{} names files that a backup never contains",
            path.display()
        ))
        .coded("backup_unusable"));
    }
    Ok(manifest)
}

fn damaged(path: &Path) -> Failure {
    let message = format!("{} differs from its checksum in the backup", path.display());
    Failure::new(message)
        .coded("backup_unusable")
        .hint("use another backup")
}

fn verify(path: &Path, wanted: &str) -> Result<(), Failure> {
    match sha256(path) {
        Ok(found) if found == wanted => Ok(()),
        Ok(_) => Err(damaged(path)),
        Err(error) => Err(
            Failure::new(format!("cannot read {}: {error}", path.display()))
                .coded("backup_unusable"),
        ),
    }
}

fn target(directory: &Path, part: &Part) -> Result<PathBuf, Failure> {
    Ok(match part.name.as_str() {
        "log" => chappe_node::log_directory(directory),
        "registry" => chappe_node::registry_directory(directory),
        other => {
            return Err(Failure::new(format!("unknown part {other:?} of a backup"))
                .coded("backup_unusable"));
        }
    })
}

fn copy_into(from: &Path, to: &mut dyn chappe_log::File) -> Result<(), Failure> {
    use std::io::Read as _;
    let mut source = fs::File::open(from)?;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(to.sync()?),
            read => to.append(&buffer[..read])?,
        }
    }
}
