//! Replaces a state file of this process.
//!
//! Deliberately out of scope: files that several processes or requests replace at once, and files of users, which keep
//! their owner. Those have temporary names that nobody can guess.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The mode of a file with secrets.
pub const PRIVATE: u32 = 0o600;
/// The mode of any other file, less the process's umask.
pub const SHARED: u32 = 0o666;

/// Replaces a file, so that after a loss of power either the old or the new content is there. It has this mode before it
/// has the content. Only one thread of one process may replace it: the new file has a fixed name until it is complete.
///
/// # Errors
/// The system's error; the old content is still there.
pub fn replace_file(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    // What a loss of power left may have another mode.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_private_and_what_was_left_over_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links.json");
        fs::write(folder.path().join("links.json.new"), "left over").unwrap();
        for text in ["one", "two"] {
            replace_file(&path, PRIVATE, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace_file(&folder.path().join("none/a"), SHARED, b"").is_err());
    }
}
