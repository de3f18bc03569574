//! The seam to the disk: what the log needs of a directory and of a file, and nothing more.
//!
//! `transport::FileDisk` is the real one, `sim::SimDisk` loses and tears whatever was not synced.
//! The traits speak `std::io`, because that is where the errors come from; the log turns them into
//! its own. Nothing here buffers: a call that returned `Ok` has reached the operating system, and
//! only [`File::sync`] (for a file's bytes and length) and [`Disk::sync_directory`] (for names) say
//! that something survives a power loss.

use std::io;

/// One flat directory that belongs to one store.
pub trait Disk: Send + Sync + 'static {
    /// Makes a new, empty file, open for appending and reading; an existing one is replaced.
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;
    /// Opens an existing file for appending and reading.
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;
    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames a file; one of the new name is replaced in the same step.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Handles that are open on it may go on reading.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all creations, renames and removals so far survive a power loss.
    fn sync_directory(&self) -> io::Result<()>;
    /// A number that stays with a file through renames and changes when it is a copy (for real
    /// files: inode and time of birth). By it a restored backup is noticed.
    fn identity(&self, name: &str) -> io::Result<u128>;
    /// Bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
    /// The store writes nothing more: another one may use the directory, though handles of this one may
    /// still read.
    fn unlock(&self) {}
}

/// One open file.
pub trait File: Send {
    /// Writes all bytes at the end. On an error any part of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Writes bytes over the same bytes that are there, so that the next sync saves them even if an
    /// earlier one failed and forgot them. Needs no more room; interrupted, it leaves what was there.
    fn write_again(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads into `buffer` from `offset` on; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Makes the bytes and the length survive a power loss (`fdatasync`).
    fn sync(&mut self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// What the system holds of the file in memory is not needed: the next read should come from the
    /// disk itself. A wish.
    fn forget(&self) {}
    /// Sets room aside on the disk for the file up to `end` bytes, with its length as it is, so that
    /// appending has none to look for. A wish; whether it was granted.
    fn reserve(&mut self, _end: u64) -> bool {
        false
    }
    /// Gives back what was set aside behind the end. A wish.
    fn release(&mut self) {}
    /// Cuts the file to `length` bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}
