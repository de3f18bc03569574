//! The seam to the disk: the operations on a directory and on files that the log needs.
//!
//! `transport::FileDisk` is the real one; `sim::SimDisk` loses and tears whatever was not synced.
//! The traits use `std::io` errors, which the log converts to its own. Nothing is buffered: a call
//! that returned `Ok` has reached the operating system. Only [`File::sync`] (for a file's bytes and
//! length) and [`Disk::sync_directory`] (for names) guarantee that data survives a power loss.

use std::io;

/// One flat directory that belongs to one store.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file, open for appending and reading; replaces an existing one.
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;
    /// Opens an existing file for appending and reading.
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;
    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames a file; atomically replaces one of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Open handles can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all previous creations, renames and removals survive a power loss.
    fn sync_directory(&self) -> io::Result<()>;
    /// A number that is stable through renames and changes but differs in a copy (for real files:
    /// inode and time of birth). It reveals a restored backup.
    fn identity(&self, name: &str) -> io::Result<u128>;
    /// Free space in bytes.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Called when the store writes nothing more: another one may use the directory, though handles
    /// of this one may still read.
    fn unlock(&self) {}
}

/// One open file.
pub trait File: Send {
    /// Appends all bytes. After an error any part of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Overwrites bytes with the same content, so that the next sync saves them even if an earlier
    /// one failed and discarded them. Needs no more space; if interrupted, the content is
    /// unchanged.
    fn write_again(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads into `buffer` from `offset`; fewer bytes than requested only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Makes the bytes and the length survive a power loss (`fdatasync`).
    fn sync(&mut self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// A hint that the system's cached copy of the file is not needed: the next read should come
    /// from the disk itself.
    fn forget(&self) {}
    /// Asks to reserve space for the file up to `end` bytes without changing its length, so that
    /// appending need not allocate. Returns whether that succeeded.
    fn reserve(&mut self, _end: u64) -> bool {
        false
    }
    /// A hint that the space reserved after the end is no longer needed.
    fn release(&mut self) {}
    /// Truncates the file to `length` bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}
