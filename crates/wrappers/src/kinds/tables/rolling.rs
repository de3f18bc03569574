//! The files that are being written, one for each stream. Blocks on the disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_stream::{Position, StreamElement};
use tokio::time::Instant;

use super::names::{Found, file_name, parse};
use crate::table_file::{TableFile, TableForm, TableStream};
use crate::{Batch, NodeParts, Part, StreamDefinition, WrapperError};

/// Most files that are written at once; reason: each is a descriptor and some buffers.
const FILES_MAX: usize = 128;
/// Most memory of rows that are not in their files yet.
const MEMORY_MAX: usize = 64 << 20;
/// The ending of a file that is not complete.
const TEMPORARY: &str = ".tmp";

/// When a file is finished.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// The files of a directory.
pub(super) struct Rolling {
    directory: PathBuf,
    /// The name of the exporter.
    name: String,
    form: TableForm,
    limits: Limits,
    node: NodeParts,
    open: BTreeMap<Arc<str>, OpenFile>,
    /// The complete files that were there at the start.
    pub(super) found: Vec<Found>,
    /// Numbers temporary names.
    made: u64,
    /// Held as long as something is written.
    _lock: File,
}

struct OpenFile {
    file: TableFile<BufWriter<File>>,
    path: PathBuf,
    definition: Arc<StreamDefinition>,
    first: Position,
    last: u64,
    /// When it is finished at the latest.
    due: Instant,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> WrapperError + use<> {
    let path = path.display().to_string();
    move |error| WrapperError::peer(format!("cannot write {path}: {error}"))
}

impl Rolling {
    /// Opens a directory, and removes what was not finished; `None` while another one writes there.
    pub(super) fn open(
        directory: &Path,
        name: &str,
        form: TableForm,
        limits: Limits,
        node: NodeParts,
    ) -> Result<Option<Self>, WrapperError> {
        let failed = failed(directory);
        fs::create_dir_all(directory).map_err(&failed)?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true);
        let lock = lock
            .open(directory.join(format!(".{name}.lock")))
            .map_err(&failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let file = entry.file_name();
            let Some(file) = file.to_str() else { continue };
            if file.starts_with(&temporary_prefix(name)) && file.ends_with(TEMPORARY) {
                fs::remove_file(entry.path()).map_err(&failed)?;
            } else if let Some((stream, first, last)) = parse(file, form.extension()) {
                let modified = entry.metadata().and_then(|it| it.modified());
                found.push(Found {
                    stream,
                    first,
                    last,
                    modified: modified.map_err(&failed)?,
                });
            }
        }
        Ok(Some(Self {
            directory: directory.to_owned(),
            name: name.to_owned(),
            form,
            limits,
            node,
            open: BTreeMap::new(),
            found,
            made: 0,
            _lock: lock,
        }))
    }

    /// When a file is to be finished.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.values().map(|open| open.due).min()
    }

    /// Writes a batch, and finishes the files for which it is time; returns how far the finished ones are.
    pub(super) fn step(
        &mut self,
        batch: &Batch,
        now: Instant,
    ) -> Result<Vec<(String, Position)>, WrapperError> {
        let mut reached = Vec::new();
        for part in &batch.parts {
            for element in &part.elements {
                self.push(part, element, now, &mut reached)?;
            }
        }
        let due = self.open.iter().filter(|(_, open)| open.due <= now);
        let due: Vec<Arc<str>> = due.map(|(stream, _)| stream.clone()).collect();
        for stream in due {
            self.finish(&stream, &mut reached)?;
        }
        self.bound_memory()?;
        Ok(reached)
    }

    fn push(
        &mut self,
        part: &Part,
        element: &StreamElement,
        now: Instant,
        reached: &mut Vec<(String, Position)>,
    ) -> Result<(), WrapperError> {
        let limit = self.limits.bytes;
        let is_over = self.open.get(&part.stream).is_some_and(|open| {
            open.first.epoch != element.position.epoch
                || open.definition != part.definition
                || open.file.bytes() >= limit
        });
        if is_over {
            self.finish(&part.stream, reached)?;
        }
        if !self.open.contains_key(&part.stream) {
            while self.open.len() >= FILES_MAX
                && let Some((stream, _)) = self.open.iter().min_by_key(|(_, open)| open.due)
            {
                let stream = stream.clone();
                self.finish(&stream, reached)?;
            }
            let open = self.begin(part, element.position, now)?;
            self.open.insert(part.stream.clone(), open);
        }
        if let Some(open) = self.open.get_mut(&part.stream) {
            open.file.push(element).map_err(failed(&open.path))?;
            open.last = element.position.sequence;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        part: &Part,
        first: Position,
        now: Instant,
    ) -> Result<OpenFile, WrapperError> {
        self.made += 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_nanos());
        let prefix = temporary_prefix(&self.name);
        let path = self
            .directory
            .join(format!("{prefix}{since}.{}{TEMPORARY}", self.made));
        let failed = failed(&path);
        let output = BufWriter::new(File::create_new(&path).map_err(&failed)?);
        let device = (self.node.stream)(&part.stream).map(|stream| stream.source);
        let stream = TableStream {
            name: part.stream.to_string(),
            device: device.unwrap_or_default(),
            schema: part.definition.schema.clone(),
        };
        Ok(OpenFile {
            file: TableFile::new(output, self.form, &stream).map_err(&failed)?,
            path,
            definition: part.definition.clone(),
            first,
            last: first.sequence,
            due: now + self.limits.time,
        })
    }

    /// Finishes the file of a stream, and gives it its name.
    fn finish(
        &mut self,
        stream: &Arc<str>,
        reached: &mut Vec<(String, Position)>,
    ) -> Result<(), WrapperError> {
        let Some(open) = self.open.remove(stream) else {
            return Ok(());
        };
        let failed = failed(&open.path);
        let output = open.file.finish().map_err(&failed)?;
        let file = output
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(&failed)?;
        let name = file_name(stream, open.first, open.last, self.form.extension());
        fs::rename(&open.path, self.directory.join(name)).map_err(&failed)?;
        File::open(&self.directory)
            .and_then(|directory| directory.sync_all())
            .map_err(&failed)?;
        let position = Position {
            epoch: open.first.epoch,
            sequence: open.last,
        };
        reached.push((stream.to_string(), position));
        Ok(())
    }

    /// Passes rows to their files, those of the largest first, while there are too many in memory.
    fn bound_memory(&mut self) -> Result<(), WrapperError> {
        let mut memory: usize = self.open.values().map(|open| open.file.memory()).sum();
        while memory > MEMORY_MAX
            && let Some(open) = self.open.values_mut().max_by_key(|open| open.file.memory())
        {
            let before = open.file.memory();
            open.file.flush().map_err(failed(&open.path))?;
            let freed = before.saturating_sub(open.file.memory());
            if freed == 0 {
                break;
            }
            memory = memory.saturating_sub(freed);
        }
        Ok(())
    }
}

/// The prefix of the temporary files of an exporter.
fn temporary_prefix(name: &str) -> String {
    format!(".{name}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_file::tests::{element, stream};

    fn rolling(directory: &Path, limits: Limits) -> Option<Rolling> {
        let node = NodeParts::default();
        Rolling::open(directory, "out", TableForm::Csv, limits, node).unwrap()
    }

    fn batch(numbers: std::ops::RangeInclusive<u64>) -> Batch {
        let definition = Arc::new(StreamDefinition {
            schema: stream().schema,
            ..StreamDefinition::default()
        });
        let mut batch = Batch::default();
        for number in numbers {
            batch.push(&"plant.oven".into(), &definition, element(number));
        }
        batch
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
        names.sort();
        names
    }

    const NAME: &str = "plant.oven-000000000000000a-00000000000000000001-00000000000000000004.csv";

    #[test]
    fn a_file_gets_its_name_when_it_is_old_and_only_then_counts() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits {
            time: Duration::from_secs(60),
            bytes: 1 << 30,
        };
        let mut files = rolling(directory.path(), limits).unwrap();
        let start = Instant::now();
        assert_eq!(files.step(&batch(1..=3), start).unwrap(), []);
        assert!(names(directory.path())[0].ends_with(TEMPORARY));
        let later = start + Duration::from_secs(60);
        let reached = files.step(&batch(4..=4), later).unwrap();
        assert_eq!((reached.len(), reached[0].1.sequence), (1, 4));
        assert_eq!(names(directory.path()), [NAME]);
        assert_eq!(files.due(), None);
    }

    #[test]
    fn what_was_not_finished_is_removed_and_what_was_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits {
            time: Duration::ZERO,
            bytes: 1 << 30,
        };
        let mut files = rolling(directory.path(), limits).unwrap();
        files.step(&batch(1..=4), Instant::now()).unwrap();
        files.limits.time = Duration::from_secs(60);
        files.step(&batch(5..=6), Instant::now()).unwrap();
        assert_eq!(names(directory.path()).len(), 2);
        assert!(rolling(directory.path(), limits).is_none(), "it is locked");
        drop(files);
        fs::write(directory.path().join(".other.1.tmp"), "x").unwrap();
        let files = rolling(directory.path(), limits).unwrap();
        assert_eq!(names(directory.path()), [".other.1.tmp", NAME]);
        let reached = super::super::names::reached(&files.found, &BTreeMap::new());
        assert_eq!((reached.len(), reached[0].1.sequence), (1, 4));
    }

    #[test]
    fn a_large_file_another_schema_and_another_epoch_begin_the_next_file() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits {
            time: Duration::from_secs(60),
            bytes: 1,
        };
        let mut files = rolling(directory.path(), limits).unwrap();
        let reached = files.step(&batch(1..=3), Instant::now()).unwrap();
        assert_eq!(reached.len(), 2);
        files.limits.bytes = 1 << 30;
        let mut other = batch(4..=5);
        other.parts[0].elements[1].position.epoch.0 = 11;
        let reached = files.step(&other, Instant::now()).unwrap();
        assert_eq!(reached.last().unwrap().1.sequence, 4);
        let mut changed = batch(6..=6);
        let mut definition = StreamDefinition::clone(&changed.parts[0].definition);
        definition.schema.fields[0].unit = None;
        changed.parts[0].definition = Arc::new(definition);
        changed.parts[0].elements[0].position.epoch.0 = 11;
        let reached = files.step(&changed, Instant::now()).unwrap();
        assert_eq!((reached.len(), reached[0].1.sequence), (1, 5));
    }
}
