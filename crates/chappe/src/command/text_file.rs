//! Files of text that a command reads: configurations, descriptors, expectations, recordings.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::output::Failure;

/// Reads a file of at most `bytes_max` bytes, whatever length the system says it has.
///
/// # Errors
/// It cannot be read (`file_unreadable`), or is longer (`file_too_large`).
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<String, Failure> {
    let unreadable = |reason: &str| {
        Failure::new(format!("cannot read {}: {reason}", path.display())).coded("file_unreadable")
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(&error.to_string()))?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("{} is longer than {bytes_max} bytes", path.display());
        return Err(Failure::new(message)
            .coded("file_too_large")
            .hint("divide it into shorter files"));
    }
    String::from_utf8(bytes).map_err(|_| unreadable("it is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_read() {
        let code = |failure: Failure| failure.error_code.into_owned();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "abé").unwrap();
        assert_eq!(read(&path, 4).unwrap(), "abé");
        assert_eq!(code(read(&path, 3).unwrap_err()), "file_too_large");
        assert_eq!(
            code(read(Path::new("/dev/zero"), 9).unwrap_err()),
            "file_too_large"
        );
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(code(read(&path, 3).unwrap_err()), "file_unreadable");
    }
}
