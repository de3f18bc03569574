//! The checkout in which the program runs: its root, and programs built from it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// The root of the checkout that contains the current directory.
pub(crate) fn root() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let mut folders = here.ancestors();
    let root = folders.find(|folder| folder.join("crates/lab/Cargo.toml").is_file())?;
    Some(root.to_owned())
}

/// Builds a program of the checkout, if necessary, and returns its path.
pub(crate) fn build(root: &Path, name: &str, arguments: &[&str]) -> Result<PathBuf, Error> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["build", "--locked"])
        .args(["--message-format", "json-render-diagnostics"])
        .args(arguments)
        .output()
        .map_err(Error::io("running cargo"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or_default();
        return Err(Error::Failed(format!("cannot build {name}: {last}")));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let executable = |message: serde_json::Value| {
        let is_wanted = message["target"]["name"] == name;
        let path = message["executable"].as_str().filter(|_| is_wanted)?;
        Some(PathBuf::from(path))
    };
    let missing = || Error::Failed(format!("cargo does not print the path of {name}"));
    messages
        .filter_map(executable)
        .next_back()
        .ok_or_else(missing)
}

/// A Python with the peers' packages: `CHAPPE_PEERS_PYTHON`, or the one that `check/peers`
/// installed.
pub(crate) fn peers_python() -> Option<PathBuf> {
    let named = std::env::var_os("CHAPPE_PEERS_PYTHON").map(PathBuf::from);
    let made = || Some(root()?.join("target/peers/python/bin/python"));
    named.or_else(made).filter(|path| path.is_file())
}
