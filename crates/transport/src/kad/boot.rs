//! The boot number: increases with every start, even after the state was restored from a backup.

use std::fs;
use std::io;
use std::path::Path;

use crate::{SHARED, replace_file};

/// The number of this start, stored in the file before it is returned: the greater of the last one plus 1 and
/// `unix_s`, the time of day in seconds since 1970.
///
/// # Errors
/// The file cannot be read, written or synced, or is not a number: failing to start is better than using a number
/// twice.
pub fn next_boot(path: &Path, unix_s: u64) -> io::Result<u32> {
    let last = match fs::read_to_string(path) {
        Ok(text) => text.trim().parse::<u32>().map_err(|_| {
            let what = format!("{} is not a boot number", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    // Seconds fit until 2106; later the number increases by one.
    let time = u32::try_from(unix_s).unwrap_or(u32::MAX);
    let next = last.checked_add(1).map(|next| next.max(time));
    let next = next.ok_or_else(|| io::Error::other("the boot number cannot be increased"))?;
    replace_file(path, SHARED, format!("{next}\n").as_bytes())?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_increases_with_any_clock_and_a_broken_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boot");
        assert_eq!(next_boot(&path, 1_000).unwrap(), 1_000);
        assert_eq!(next_boot(&path, 1_000).unwrap(), 1_001);
        assert_eq!(next_boot(&path, 5).unwrap(), 1_002);
        assert_eq!(next_boot(&path, 2_000).unwrap(), 2_000);
        fs::write(&path, "x").unwrap();
        assert_eq!(
            next_boot(&path, 3_000).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        fs::write(&path, u32::MAX.to_string()).unwrap();
        assert!(next_boot(&path, 3_000).is_err());
    }
}
