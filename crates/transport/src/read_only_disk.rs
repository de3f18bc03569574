//! The log's disk on files that are only read: whatever is written stays in memory.
//!
//! Source: the contract of `chappe_log::Disk`. Opening a log repairs an incomplete end and starts a new file; here that
//! happens in memory, so that the log of another process, or of a read-only medium, can be opened and read. Out of
//! scope: following what the other process appends afterwards.

use chappe_log::{Disk, File};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::FileDisk;

/// The directory of a log that is only read.
pub struct ReadOnlyDisk {
    base: FileDisk,
    /// The files that were opened, written or removed, by name; `None`: removed.
    files: Mutex<BTreeMap<String, Option<SharedFile>>>,
}

type SharedFile = Arc<Mutex<Layered>>;

/// A file, and what was appended to it.
struct Layered {
    /// `None`: a new file.
    base: Option<Box<dyn File>>,
    /// Bytes of the file below that count.
    base_bytes: u64,
    appended: Vec<u8>,
}

impl ReadOnlyDisk {
    /// Opens an existing directory without a lock.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self {
            base: FileDisk::open_unlocked(path)?,
            files: Mutex::default(),
        })
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Option<SharedFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> io::Result<SharedFile> {
        let mut files = self.files();
        if let Some(known) = files.get(name) {
            return known.clone().ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        let base = self.base.open(name)?;
        let file = Arc::new(Mutex::new(Layered {
            base_bytes: base.len()?,
            base: Some(base),
            appended: Vec::new(),
        }));
        files.insert(name.to_owned(), Some(file.clone()));
        Ok(file)
    }
}

impl Disk for ReadOnlyDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let file = Arc::new(Mutex::new(Layered {
            base: None,
            base_bytes: 0,
            appended: Vec::new(),
        }));
        self.files().insert(name.to_owned(), Some(file.clone()));
        Ok(Box::new(LayeredFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(LayeredFile(self.find(name)?)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.base.list()?;
        let files = self.files();
        names.retain(|name| !files.contains_key(name));
        let present = files.iter().filter(|(_, file)| file.is_some());
        names.extend(present.map(|(name, _)| name.clone()));
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.find(from)?;
        let mut files = self.files();
        files.insert(from.to_owned(), None);
        files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.find(name)?;
        self.files().insert(name.to_owned(), None);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    /// That of the file below; a new file is like none of them.
    fn identity(&self, name: &str) -> io::Result<u128> {
        let file = self.find(name)?;
        let is_new = locked(&file).base.is_none();
        match is_new {
            true => Ok(0),
            false => self.base.identity(name).or(Ok(0)),
        }
    }

    /// Room is in memory.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

fn locked(file: &SharedFile) -> MutexGuard<'_, Layered> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

struct LayeredFile(SharedFile);

impl File for LayeredFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        locked(&self.0).appended.extend_from_slice(bytes);
        Ok(())
    }

    fn write_again(&mut self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = locked(&self.0);
        let mut done = 0;
        if let Some(base) = &file.base
            && offset < file.base_bytes
        {
            let rest = usize::try_from(file.base_bytes - offset).unwrap_or(usize::MAX);
            let wanted = buffer.len().min(rest);
            done = base.read_at(offset, &mut buffer[..wanted])?;
            if done < wanted {
                return Ok(done);
            }
        }
        let from = (offset + done as u64).saturating_sub(file.base_bytes);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let from = from.min(file.appended.len());
        let count = (buffer.len() - done).min(file.appended.len() - from);
        buffer[done..done + count].copy_from_slice(&file.appended[from..from + count]);
        Ok(done + count)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let file = locked(&self.0);
        Ok(file.base_bytes + file.appended.len() as u64)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut file = locked(&self.0);
        let appended = length.saturating_sub(file.base_bytes);
        file.base_bytes = file.base_bytes.min(length);
        let appended = usize::try_from(appended).unwrap_or(usize::MAX);
        file.appended.truncate(appended);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{Level, Options, Store};
    use std::fs;

    fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, fs::read(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_log_in_use_is_opened_read_and_left_as_it_is() {
        let scratch = tempfile::tempdir().unwrap();
        let options = || Options {
            reserve_bytes: 0,
            ..Options::default()
        };
        let disk = FileDisk::open(scratch.path()).unwrap();
        let (store, _) = Store::open(Box::new(disk), options(), 1).unwrap();
        let stream = store.stream("a", Level::Power, b"").unwrap();
        let batch = vec![(1, vec![1; 10]), (2, vec![2; 10])];
        stream.append(batch).unwrap().wait().unwrap();
        let before = contents(scratch.path());
        for seed in 2..4 {
            let disk = ReadOnlyDisk::open(scratch.path()).unwrap();
            let (read, _) = Store::open(Box::new(disk), options(), seed).unwrap();
            let found = read.existing("a").unwrap();
            assert_eq!(found.read(1, 10).unwrap().len(), 2);
            found
                .append(vec![(3, vec![3; 10])])
                .unwrap()
                .wait()
                .unwrap();
            assert_eq!(found.last(), 3);
            drop(found);
            read.close().unwrap();
            assert_eq!(contents(scratch.path()), before);
        }
        assert_eq!(stream.last(), 2);
    }

    #[test]
    fn bytes_below_and_above_are_one_file() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("a"), b"below").unwrap();
        let disk = ReadOnlyDisk::open(scratch.path()).unwrap();
        let mut file = disk.open("a").unwrap();
        file.append(b"above").unwrap();
        let mut read = [0; 6];
        assert_eq!(file.read_at(3, &mut read).unwrap(), 6);
        assert_eq!(&read, b"owabov");
        file.truncate(7).unwrap();
        file.truncate(4).unwrap();
        file.append(b"!").unwrap();
        assert_eq!(file.len().unwrap(), 5);
        assert_eq!(file.read_at(0, &mut read).unwrap(), 5);
        assert_eq!(&read[..5], b"belo!");
        disk.rename("a", "b").unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        disk.remove("b").unwrap();
        assert!(disk.list().unwrap().is_empty() && disk.open("a").is_err());
        assert_eq!(fs::read(scratch.path().join("a")).unwrap(), b"below");
    }
}
