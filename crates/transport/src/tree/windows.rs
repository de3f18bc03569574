//! Stores the windows of sources, so that no event is delivered twice across restarts.

use std::fs;
use std::io;
use std::path::PathBuf;

use chappe_machine::ReplayWindow;
use chappe_notification_tree::Window;

use crate::{SHARED, replace_file};

/// Bytes of a window on disk: boot, newest, seen, since; big-endian.
const WINDOW_BYTES: usize = 4 + 8 + 8 + 8;

/// A store of windows. [`run_tree`](super::run_tree) waits for it before it delivers the event.
pub trait Windows: Send + 'static {
    /// The last stored window of a topic; the default if there is none.
    ///
    /// # Errors
    /// It cannot be read: not subscribing is better than receiving events again.
    fn last(&self, topic: u64) -> io::Result<Window>;

    /// Stores the window of a topic.
    ///
    /// # Errors
    /// It is not stored: the event is not delivered.
    fn store(&mut self, topic: u64, window: &Window) -> io::Result<()>;
}

/// Stores nothing: after a restart events may be delivered again.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryWindows;

impl Windows for MemoryWindows {
    fn last(&self, _: u64) -> io::Result<Window> {
        Ok(Window::default())
    }

    fn store(&mut self, _: u64, _: &Window) -> io::Result<()> {
        Ok(())
    }
}

/// A file for each topic in a folder, synced before the event is used, which costs a disk sync for each event.
#[derive(Debug, Clone)]
pub struct WindowFiles {
    folder: PathBuf,
}

impl WindowFiles {
    /// Uses this folder, and creates it if it is missing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    fn path(&self, topic: u64) -> PathBuf {
        self.folder.join(format!("{topic:016x}.window"))
    }
}

impl Windows for WindowFiles {
    fn last(&self, topic: u64) -> io::Result<Window> {
        let bytes = match fs::read(self.path(topic)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Window::default()),
            Err(error) => return Err(error),
        };
        let Ok(bytes) = <[u8; WINDOW_BYTES]>::try_from(bytes) else {
            let what = format!("{} is not a window", self.path(topic).display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(eight)
        };
        Ok(Window {
            boot: u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            numbers: ReplayWindow {
                newest: number(4),
                seen: number(12),
            },
            since: number(20),
        })
    }

    fn store(&mut self, topic: u64, window: &Window) -> io::Result<()> {
        let mut bytes = [0; WINDOW_BYTES];
        bytes[..4].copy_from_slice(&window.boot.to_be_bytes());
        let ReplayWindow { newest, seen } = window.numbers;
        for (at, number) in [(4, newest), (12, seen), (20, window.since)] {
            bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        replace_file(&self.path(topic), SHARED, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_window_is_read_and_a_broken_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = WindowFiles::new(folder.path().join("windows")).unwrap();
        assert_eq!(files.last(7).unwrap(), Window::default());
        let window = Window {
            boot: 3,
            numbers: ReplayWindow {
                newest: 1 << 40,
                seen: u64::MAX - 5,
            },
            since: 9,
        };
        files.store(7, &window).unwrap();
        assert_eq!(files.last(7).unwrap(), window);
        assert_eq!(files.last(8).unwrap(), Window::default());
        fs::write(files.path(7), [0; 27]).unwrap();
        assert_eq!(
            files.last(7).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
