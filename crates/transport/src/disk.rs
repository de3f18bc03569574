//! The log's disk on real files: one directory, locked for one process.
//!
//! Source: the contract of `chappe_log::Disk`. Files are opened close-on-exec by the standard library, belong to
//! the user alone, and are appended to; `sync` is `fdatasync`, and a new name is durable once the directory is
//! synced. Reserved space (`fallocate`) does not change the length of a file. Out of scope: buffering, direct I/O.

use chappe_log::{Disk, File};
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The file whose lock marks the directory as in use.
const LOCK: &str = "lock";

/// The directory of one log. It is locked until the log is closed or this is dropped.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    directory: fs::File,
    lock: Option<fs::File>,
}

impl FileDisk {
    /// Opens and locks a directory, and creates it if it is missing. Fails with `ErrorKind::WouldBlock` if another
    /// process has it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileDisk> {
        let path = path.as_ref().to_path_buf();
        if !path.is_dir() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)?;
            if let Some(parent) = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
            {
                fs::File::open(parent)?.sync_all()?;
            }
        }
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let lock = options.open(path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = format!("{} is in use by another process", path.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        FileDisk::new(path, Some(lock))
    }

    /// Opens an existing directory to read it (for a check), without a lock: records being written meanwhile
    /// look like an incomplete end.
    pub fn open_unlocked(path: impl AsRef<Path>) -> io::Result<FileDisk> {
        let path = path.as_ref().to_path_buf();
        FileDisk::new(path, None)
    }

    fn new(path: PathBuf, lock: Option<fs::File>) -> io::Result<FileDisk> {
        let directory = fs::File::open(&path)?;
        Ok(FileDisk {
            path,
            directory,
            lock,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn handle(&self, name: &str, options: &mut OpenOptions) -> io::Result<Box<dyn File>> {
        let path = self.path.join(name);
        let file = options.read(true).append(true).mode(0o600).open(&path)?;
        Ok(Box::new(OpenFile { file, path }))
    }
}

impl Disk for FileDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        // Not truncated in place: readers keep the old file, and the new one has a new inode.
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.handle(name, OpenOptions::new().create_new(true))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.handle(name, &mut OpenOptions::new())
            .or_else(|error| match error.kind() {
                // A check may run with read permission only.
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    let path = self.path.join(name);
                    let file = fs::File::open(&path)?;
                    Ok(Box::new(OpenFile { file, path }) as Box<dyn File>)
                }
                _ => Err(error),
            })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    /// Inode and creation time; or the device number, if the file system has no creation time (the device
    /// number alone may change at a reboot).
    fn identity(&self, name: &str) -> io::Result<u128> {
        let metadata = fs::metadata(self.path.join(name))?;
        let born = metadata
            .created()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let second = born.map_or_else(|| u128::from(metadata.dev()), |time| time.as_nanos());
        Ok(u128::from(metadata.ino()) << 64 | second & u128::from(u64::MAX))
    }

    fn unlock(&self) {
        if let Some(lock) = &self.lock {
            // Closing the file unlocks it, too.
            let _ = lock.unlock();
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let free = nix::sys::statvfs::fstatvfs(&self.directory)?;
        // The types differ between platforms.
        #[allow(clippy::useless_conversion)]
        let (blocks, size) = (
            u64::from(free.blocks_available()),
            u64::from(free.fragment_size()),
        );
        Ok(blocks.saturating_mul(size))
    }
}

struct OpenFile {
    file: fs::File,
    /// Its path when it was opened.
    path: PathBuf,
}

impl File for OpenFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(&mut self.file, bytes)
    }

    fn write_again(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // A file opened for appending ignores the offset of a write.
        let file = OpenOptions::new().write(true).open(&self.path)?;
        let (here, there) = (self.file.metadata()?, file.metadata()?);
        if (here.dev(), here.ino()) != (there.dev(), there.ino()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        file.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn forget(&self) {
        use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
        // Without it the scrub reads the page cache, as readers do.
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    }

    #[cfg(target_os = "linux")]
    fn reserve(&mut self, end: u64) -> bool {
        use nix::fcntl::{FallocateFlags, fallocate};
        let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        i64::try_from(end).is_ok_and(|end| fallocate(&self.file, keep, 0, end).is_ok())
    }

    fn release(&mut self) {
        // Truncation to the length frees the space reserved after it.
        let _ = self.len().and_then(|length| self.file.set_len(length));
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{Level, MIN_SEGMENT_BYTES, Options, Store, check};

    /// Bytes on the disk taken by the segments of a directory, and their length.
    fn taken(path: &std::path::Path) -> (u64, u64) {
        let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
        let segments =
            entries.filter(|it| it.file_name().as_encoded_bytes().ends_with(b".segment"));
        let files = segments.map(|it| it.metadata().unwrap());
        files.fold((0, 0), |sum, it| {
            (sum.0 + it.blocks() * 512, sum.1 + it.len())
        })
    }

    #[test]
    fn room_is_set_aside_for_the_segment_that_is_written_and_for_no_other() {
        let scratch = tempfile::tempdir().unwrap();
        let mut probe = FileDisk::open(scratch.path().join("probe"))
            .and_then(|disk| disk.create("file"))
            .unwrap();
        // Some file systems cannot.
        let can = probe.reserve(MIN_SEGMENT_BYTES);
        let options = Options {
            segment_bytes: 1 << 20,
            reserve_bytes: 0,
            ..Options::default()
        };
        let path = scratch.path().join("log");
        for round in 0..3 {
            let disk = FileDisk::open(&path).unwrap();
            let (store, recovery) = Store::open(Box::new(disk), options.clone(), round).unwrap();
            assert!(recovery.torn_tail.is_none() && recovery.corrupt.is_empty());
            let stream = store.stream("a", Level::Power, b"").unwrap();
            for _ in 0..5 {
                let batch = vec![(1, vec![7; 300_000])];
                stream.append(batch).unwrap().wait().unwrap();
            }
            let (room, bytes) = taken(&path);
            let spare = room.saturating_sub(bytes);
            assert!(spare < 1100 << 10, "{spare} of {room}");
            assert!(!can || spare > 100 << 10, "{spare} of {room}");
            drop(stream);
            // Closed in order the last time, killed before that.
            if round < 2 {
                store.abandon();
            } else {
                store.close().unwrap();
            }
        }
        let (room, bytes) = taken(&path);
        assert!(room < bytes + (1 << 17), "{room} for {bytes}");
        let report = check(&FileDisk::open_unlocked(&path).unwrap()).unwrap();
        assert_eq!((report.records, report.clean), (15, true));
    }

    #[test]
    fn a_store_lives_in_a_directory_of_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("made/here");
        for round in 0..2 {
            let disk = FileDisk::open(&path).unwrap();
            assert_eq!(
                FileDisk::open(&path).unwrap_err().kind(),
                io::ErrorKind::WouldBlock
            );
            let options = Options {
                reserve_bytes: 0,
                ..Options::default()
            };
            let (store, recovery) = Store::open(Box::new(disk), options, round).unwrap();
            assert_eq!((recovery.created, recovery.copied), (round == 0, false));
            let stream = store.stream("a", Level::Power, b"").unwrap();
            stream
                .append(vec![(1, b"one".to_vec())])
                .unwrap()
                .wait()
                .unwrap();
            assert_eq!(stream.last(), round + 1);
            store.close().unwrap();
            // Remaining handles do not keep the directory locked.
            assert_eq!(stream.last(), round + 1);
            drop(FileDisk::open(&path).unwrap());
        }
        let report = check(&FileDisk::open_unlocked(&path).unwrap()).unwrap();
        assert_eq!(
            (report.records, report.clean, report.copied),
            (2, true, false)
        );
        // A copy of the directory differs from the original.
        let copy = scratch.path().join("copy");
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        assert!(
            check(&FileDisk::open_unlocked(&copy).unwrap())
                .unwrap()
                .copied
        );
    }

    /// A disk in a new directory, with one file `f`.
    fn with_file(bytes: &[u8]) -> (tempfile::TempDir, FileDisk, Box<dyn chappe_log::File>) {
        let scratch = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(scratch.path()).unwrap();
        let mut file = disk.create("f").unwrap();
        file.append(bytes).unwrap();
        (scratch, disk, file)
    }

    fn read_at(disk: &FileDisk, name: &str, at: u64) -> Vec<u8> {
        let mut buffer = [0; 16];
        let read = disk.open(name).unwrap().read_at(at, &mut buffer).unwrap();
        buffer[..read].to_vec()
    }

    #[test]
    fn appended_bytes_are_read_from_any_offset() {
        let (_scratch, disk, mut file) = with_file(b"hello");
        file.append(b" world").unwrap();
        assert_eq!(read_at(&disk, "f", 0), b"hello world");
        assert_eq!(read_at(&disk, "f", 6), b"world");
        assert_eq!(read_at(&disk, "f", 11), b"");
    }

    #[test]
    fn appending_continues_after_a_cut() {
        let (_scratch, disk, mut file) = with_file(b"hello world");
        file.truncate(5).unwrap();
        assert_eq!(file.len().unwrap(), 5);
        file.append(b"!").unwrap();
        assert_eq!(read_at(&disk, "f", 0), b"hello!");
    }

    #[test]
    fn writing_again_moves_no_end() {
        let (_scratch, disk, mut file) = with_file(b"hexxo");
        file.write_again(2, b"ll").unwrap();
        file.append(b"?").unwrap();
        assert_eq!(read_at(&disk, "f", 0), b"hello?");
    }

    #[test]
    fn a_renamed_file_keeps_its_identity() {
        let (_scratch, disk, mut file) = with_file(b"a");
        let identity = disk.identity("f").unwrap();
        disk.rename("f", "g").unwrap();
        assert_eq!(disk.identity("g").unwrap(), identity);
        file.append(b"b").unwrap();
        assert_eq!(read_at(&disk, "g", 0), b"ab");
        disk.create("f").unwrap();
        assert_ne!(disk.identity("f").unwrap(), identity);
    }

    #[test]
    fn a_renamed_file_is_listed_once() {
        let (_scratch, disk, _file) = with_file(b"a");
        disk.rename("f", "g").unwrap();
        assert_eq!(disk.list().unwrap(), vec!["g".to_owned()]);
    }

    #[test]
    fn a_missing_file_is_not_found() {
        let (_scratch, disk, _file) = with_file(b"a");
        disk.rename("f", "g").unwrap();
        let opened = disk.open("f").map(drop);
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn file_and_directory_are_synced() {
        let (_scratch, disk, mut file) = with_file(b"a");
        file.sync().unwrap();
        disk.sync_directory().unwrap();
    }

    #[test]
    fn free_room_is_that_of_the_file_system() {
        let (scratch, disk, _file) = with_file(b"a");
        let total = nix::sys::statvfs::statvfs(scratch.path()).unwrap();
        let total = total.blocks() as u64 * total.fragment_size() as u64;
        let free = disk.free_bytes().unwrap();
        assert!((1..=total).contains(&free), "{free} of {total}");
    }
}
