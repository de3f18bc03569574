//! The checkout that the program runs in, for what is built or lies beside it.

use std::path::PathBuf;

/// The root of the checkout that the current directory lies in.
pub(crate) fn root() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let mut folders = here.ancestors();
    let root = folders.find(|folder| folder.join("crates/bench/Cargo.toml").is_file())?;
    Some(root.to_owned())
}

/// A Python with the peers' packages: `CHAPPE_PEERS_PYTHON`, or what `check/peers` has made.
pub(crate) fn peers_python() -> Option<PathBuf> {
    let named = std::env::var_os("CHAPPE_PEERS_PYTHON").map(PathBuf::from);
    let made = || Some(root()?.join("target/peers/python/bin/python"));
    named.or_else(made).filter(|path| path.is_file())
}
