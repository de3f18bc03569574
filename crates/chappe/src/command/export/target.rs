//! The names of the files of an export.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_streams_need_a_placeholder() {
        let streams = ["a".to_owned(), "b.c".to_owned()];
        assert!(paths(Path::new("x.csv"), &streams).is_err());
        assert!(paths(Path::new("/"), &streams[..1]).is_err());
        let found = paths(Path::new("d/{stream}.csv"), &streams).ok().unwrap();
        assert_eq!(found, [Path::new("d/a.csv"), Path::new("d/b.c.csv")]);
    }
}
