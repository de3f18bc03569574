//! The file that appears once it is complete.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use crate::output::Failure;

/// The placeholder in the name of a file.
const STREAM: &str = "{stream}";

/// The file of each stream.
pub(super) fn paths(out: &Path, streams: &[String]) -> Result<Vec<PathBuf>, Failure> {
    let text = out.to_string_lossy();
    if streams.len() > 1 && !text.contains(STREAM) {
        let failure =
            Failure::new("several streams do not fit into one file").coded("argument_invalid");
        return Err(failure.hint(format!(
            "write {STREAM} into its name: --out '{STREAM}.parquet'"
        )));
    }
    if out.file_name().is_none() {
        return Err(Failure::new(format!("{text:?} names no file")).coded("argument_invalid"));
    }
    let path = |stream: &String| PathBuf::from(text.replace(STREAM, stream));
    match text.contains(STREAM) {
        true => Ok(streams.iter().map(path).collect()),
        false => Ok(vec![out.to_owned()]),
    }
}

/// A file under its temporary name, which is removed unless it is finished.
pub(super) struct Target {
    path: PathBuf,
    temporary: PathBuf,
    is_finished: bool,
}

impl Target {
    pub(super) fn new(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = format!(".{name}.{}.tmp", std::process::id());
        Self {
            path: path.to_owned(),
            temporary: path.with_file_name(temporary),
            is_finished: false,
        }
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::new(format!("cannot write {}: {error}", self.path.display()))
            .coded("file_unwritable")
            .hint("name a file in a directory that exists, on a disk with enough room")
    }

    pub(super) fn output(&self) -> Result<BufWriter<File>, Failure> {
        let file = File::create(&self.temporary);
        Ok(BufWriter::new(file.map_err(|error| self.failed(&error))?))
    }

    /// Syncs the file and gives it its name; returns its length in bytes.
    pub(super) fn finish(&mut self, output: BufWriter<File>) -> Result<u64, Failure> {
        let finish = || -> std::io::Result<u64> {
            let file = output.into_inner().map_err(|error| error.into_error())?;
            file.sync_all()?;
            let bytes = file.metadata()?.len();
            fs::rename(&self.temporary, &self.path)?;
            let directory = match self.path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            File::open(directory)?.sync_all()?;
            Ok(bytes)
        };
        let bytes = finish().map_err(|error| self.failed(&error))?;
        self.is_finished = true;
        Ok(bytes)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_finished {
            // It may not have been created.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn several_streams_need_a_placeholder() {
        let streams = ["a".to_owned(), "b.c".to_owned()];
        assert!(paths(Path::new("x.csv"), &streams).is_err());
        assert!(paths(Path::new("/"), &streams[..1]).is_err());
        let found = paths(Path::new("d/{stream}.csv"), &streams).ok().unwrap();
        assert_eq!(found, [Path::new("d/a.csv"), Path::new("d/b.c.csv")]);
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        let count = || fs::read_dir(directory.path()).unwrap().count();
        let target = Target::new(&path);
        let mut output = target.output().ok().unwrap();
        output.write_all(b"half").unwrap();
        drop(target);
        assert_eq!(count(), 0);
        let mut target = Target::new(&path);
        let mut output = target.output().ok().unwrap();
        output.write_all(b"whole").unwrap();
        assert_eq!(target.finish(output).ok(), Some(5));
        drop(target);
        assert_eq!((fs::read(&path).unwrap(), count()), (b"whole".to_vec(), 1));
    }
}
