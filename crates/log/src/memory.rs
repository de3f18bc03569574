//! A disk in memory: for tests, for fuzzing, and for a node without persistent data.

use crate::{Disk, File};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Bytes = Arc<Mutex<Vec<u8>>>;

fn locked(bytes: &Bytes) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files in memory. Clones are the same disk; dropping the last one discards it. `sync` does
/// nothing, so even level `Power` ends with the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    files: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Adds a file.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.files()
            .insert(name.to_owned(), Arc::new(Mutex::new(bytes.to_vec())));
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> io::Result<Bytes> {
        Ok(Arc::clone(
            self.files().get(name).ok_or(io::ErrorKind::NotFound)?,
        ))
    }
}

struct MemoryFile(Bytes);

impl Disk for MemoryDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let bytes = Bytes::default();
        self.files().insert(name.to_owned(), Arc::clone(&bytes));
        Ok(Box::new(MemoryFile(bytes)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(MemoryFile(self.find(name)?)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let bytes = self.files().remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files().insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files()
            .remove(name)
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    /// The same for all files: nothing here can be restored from a copy.
    fn identity(&self, _name: &str) -> io::Result<u128> {
        Ok(0)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl File for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        locked(&self.0).extend_from_slice(bytes);
        Ok(())
    }

    fn write_again(&mut self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = locked(&self.0);
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let length = buffer.len().min(bytes.len() - from);
        buffer[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(locked(&self.0).len() as u64)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        locked(&self.0).truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }
}
