//! The messages that were accepted, in memory and in a file.
//!
//! One thread writes at a time, without the lock: messages that are accepted meanwhile wait as the next batch and
//! share one sync.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use chappe_soap::security::{Checked, Policy, RECORD_BYTES, REPLAYS_MAX, ReplayCache, Verified};

use super::NotAdmitted;
use crate::{SHARED, replace_file};

/// Records that are forgotten before the file is written anew.
const SLACK: usize = 4_096;

/// The accepted messages.
#[derive(Debug)]
pub(super) struct Replays {
    state: Mutex<State>,
    /// A batch is stored, or has failed.
    stored: Condvar,
    /// Whether they are remembered in a file too.
    is_durable: bool,
}

#[derive(Debug)]
struct State {
    cache: ReplayCache,
    /// The records to be written next; those of messages that are in the cache.
    waiting: Vec<u8>,
    batch: Arc<Batch>,
    /// Absent while a thread writes, or if there is none.
    file: Option<ReplayFile>,
}

/// Records that are written together.
#[derive(Debug, Default)]
struct Batch {
    outcome: OnceLock<Result<(), (io::ErrorKind, String)>>,
}

/// The file of accepted messages.
#[derive(Debug)]
struct ReplayFile {
    path: PathBuf,
    file: File,
    /// The records of the file.
    records: usize,
    /// A record may be in the file in part, or the open file may not be the one at `path`: it is replaced before
    /// another record is written.
    is_torn: bool,
    #[cfg(test)]
    before_sync: BeforeSync,
}

impl Replays {
    pub(super) fn in_memory() -> Self {
        Self::new(ReplayCache::empty(), None)
    }

    /// A missing file has none: it is written before the first message is accepted.
    pub(super) fn open(path: &Path, unix_s: u64, policy: &Policy) -> io::Result<Self> {
        let mut records = Vec::new();
        match File::open(path) {
            Ok(file) => {
                let most = RECORD_BYTES * (2 * REPLAYS_MAX + SLACK);
                file.take(most as u64).read_to_end(&mut records)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let restored = ReplayCache::restore(&records, unix_s, policy.clock_skew);
        if restored.damaged > 0 {
            let (count, path) = (restored.damaged, path.display());
            tracing::warn!(
                "{count} records of {path} are damaged: messages signed before this start are refused"
            );
        }
        let (file, records) = replace(path, &restored.cache.to_bytes())?;
        let file = ReplayFile {
            path: path.to_owned(),
            file,
            records,
            is_torn: false,
            #[cfg(test)]
            before_sync: BeforeSync::default(),
        };
        Ok(Self::new(restored.cache, Some(file)))
    }

    fn new(cache: ReplayCache, file: Option<ReplayFile>) -> Self {
        Self {
            is_durable: file.is_some(),
            state: Mutex::new(State {
                cache,
                waiting: Vec::new(),
                batch: Arc::default(),
                file,
            }),
            stored: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a message that was not accepted before. It is stored then.
    pub(super) fn accept(&self, checked: Checked) -> Result<Verified, NotAdmitted> {
        let mut state = self.lock();
        let verified = checked.accept(&mut state.cache)?;
        if !self.is_durable {
            return Ok(verified);
        }
        state.waiting.extend(verified.record.as_bytes());
        let batch = Arc::clone(&state.batch);
        loop {
            if let Some(outcome) = batch.outcome.get() {
                let stored = outcome.clone();
                return match stored {
                    Ok(()) => Ok(verified),
                    Err((kind, reason)) => Err(io::Error::new(kind, reason).into()),
                };
            }
            state = match state.file.take() {
                Some(file) => self.write(state, file),
                None => {
                    let waited = self.stored.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Writes the waiting batch.
    fn write<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut file: ReplayFile,
    ) -> MutexGuard<'a, State> {
        let batch = std::mem::take(&mut state.batch);
        let records = std::mem::take(&mut state.waiting);
        // What waits is in the cache, and so in a new file.
        let is_old = file.is_torn || file.records > 2 * state.cache.len() + SLACK;
        let all = is_old.then(|| state.cache.to_bytes());
        drop(state);
        // After a panic the others of the batch would wait for ever, and the file would be lost.
        let store = AssertUnwindSafe(|| match all {
            Some(all) => file.replace(&all),
            None => file.append(&records),
        });
        let outcome = catch_unwind(store)
            .unwrap_or_else(|_| Err(io::Error::other("storing the accepted message panicked")))
            .map_err(|error| (error.kind(), error.to_string()));
        // The batch is new and written by this thread alone, so it has no outcome yet.
        let _ = batch.outcome.set(outcome);
        let mut state = self.lock();
        state.file = Some(file);
        self.stored.notify_all();
        state
    }
}

impl ReplayFile {
    /// Stores records durably.
    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        self.is_torn = true;
        self.file.write_all(records)?;
        #[cfg(test)]
        self.before_sync.run();
        self.file.sync_data()?;
        self.is_torn = false;
        self.records += records.len() / RECORD_BYTES;
        Ok(())
    }

    /// Replaces all records durably.
    fn replace(&mut self, records: &[u8]) -> io::Result<()> {
        // The open file may be replaced already when a later step fails.
        self.is_torn = true;
        (self.file, self.records) = replace(&self.path, records)?;
        self.is_torn = false;
        Ok(())
    }
}

/// Replaces the file durably.
fn replace(path: &Path, records: &[u8]) -> io::Result<(File, usize)> {
    replace_file(path, SHARED, records)?;
    let file = OpenOptions::new().append(true).open(path)?;
    Ok((file, records.len() / RECORD_BYTES))
}

/// What a test does before each sync.
#[cfg(test)]
#[derive(Default)]
struct BeforeSync(Option<Box<dyn FnMut() + Send>>);

#[cfg(test)]
impl BeforeSync {
    fn run(&mut self) {
        if let Some(run) = &mut self.0 {
            run();
        }
    }
}

#[cfg(test)]
impl std::fmt::Debug for BeforeSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeSync")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use chappe_identity::certificate::{Certificate, SigningKey, TrustStore};
    use chappe_soap::security::{Mode, Signer, check};
    use chappe_soap::{Addressing, AddressingVersion, Envelope};
    use chappe_xml::{Element, Name};
    use ring::rand::SystemRandom;

    use super::*;

    /// The file of these tests.
    const FILE: &str = "soap-replays";
    const UNIX_S: u64 = 1_767_225_600;
    /// Reason: far longer than a signature and a sync take on a loaded machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn file(name: &str) -> String {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../identity/tests/certificates/"
        );
        std::fs::read_to_string(format!("{folder}{name}")).unwrap()
    }

    fn signed(number: u32) -> String {
        let random = SystemRandom::new();
        let key = SigningKey::from_pem(&file("p256.key"), &random).unwrap();
        let signer = Signer::new(key, Certificate::from_pem(&file("p256.pem")).unwrap()).unwrap();
        let addressing = Addressing::new(AddressingVersion::V200508, "urn:x/Set");
        let body = Element::new(Name::new("urn:x", "Set")).with_text(number.to_string());
        let envelope = Envelope::new(addressing).with_body(body);
        signer
            .sign(&envelope.to_element(), UNIX_S, &random)
            .unwrap()
    }

    fn open(path: &Path) -> Replays {
        Replays::open(path, UNIX_S + 1, &Policy::default()).unwrap()
    }

    fn accept(replays: &Replays, message: &str) -> Result<(), String> {
        let (trust, policy) = (
            TrustStore::from_pem(&file("root.pem")).unwrap(),
            Policy::default(),
        );
        let checked = check(
            message.as_bytes(),
            Mode::Required,
            &policy,
            &trust,
            UNIX_S + 1,
        );
        let checked = checked.map_err(|error| error.to_string())?.unwrap();
        let accepted = replays.accept(checked);
        accepted.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_is_accepted_once_through_restarts_and_torn_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let [first, second] = [1, 2].map(signed);
        let replays = open(&path);
        accept(&replays, &first).unwrap();
        assert!(accept(&replays, &first).is_err());
        drop(replays);
        // A part of a record, as a power cut may leave it.
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(&[7; RECORD_BYTES / 2]).unwrap();
        let replays = open(&path);
        assert!(accept(&replays, &first).is_err());
        accept(&replays, &second).unwrap();
        let replays = open(&path);
        for message in [&first, &second] {
            assert!(accept(&replays, message).is_err());
        }
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            2 * RECORD_BYTES as u64
        );
    }

    #[test]
    fn a_failed_write_leaves_no_record_that_hides_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let replays = open(&path);
        let [first, second] = [1, 2].map(signed);
        // A file that cannot be written stands for a full disk.
        replays.lock().file.as_mut().unwrap().file = File::open(&path).unwrap();
        assert!(accept(&replays, &first).is_err());
        accept(&replays, &second).unwrap();
        let replays = open(&path);
        for message in [&first, &second] {
            assert!(accept(&replays, message).is_err());
        }
    }

    #[test]
    fn a_panic_while_writing_refuses_the_message_and_no_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let replays = open(&path);
        let [first, second] = [1, 2].map(signed);
        let panics = || panic!("a defect while writing");
        replays.lock().file.as_mut().unwrap().before_sync = BeforeSync(Some(Box::new(panics)));
        let error = accept(&replays, &first).unwrap_err();
        assert!(error.contains("panicked"), "{error}");
        // A lost file fails this test where it would make the next message wait for ever.
        assert!(replays.lock().file.is_some());
        accept(&replays, &second).unwrap();
        let replays = open(&path);
        for message in [&first, &second] {
            assert!(accept(&replays, message).is_err());
        }
    }

    /// A replacement that failed after the new file took the name: records appended to the old one would be lost.
    #[test]
    fn after_a_failed_replacement_the_file_is_replaced_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let replays = open(&path);
        let mut state = replays.lock();
        let file = state.file.as_mut().unwrap();
        file.path = folder.path().join("missing").join(FILE);
        assert!(file.replace(&[]).is_err());
        assert!(file.is_torn);
    }

    /// While one message is stored, others are verified, and they share the next sync. A copy that comes at the
    /// same time is refused.
    #[test]
    fn messages_overlap_and_share_a_sync() {
        let folder = tempfile::tempdir().unwrap();
        let replays = open(&folder.path().join(FILE));
        let ((at_sync, syncs), (go_on, may_sync)) = (mpsc::channel(), mpsc::channel());
        replays.lock().file.as_mut().unwrap().before_sync = BeforeSync(Some(Box::new(move || {
            at_sync.send(()).unwrap();
            may_sync.recv_timeout(PATIENCE).unwrap();
        })));
        let messages = [1, 2, 3].map(signed);
        thread::scope(|scope| {
            let replays = &replays;
            let spawn = |message| scope.spawn(move || accept(replays, message));
            let first = spawn(&messages[0]);
            syncs.recv_timeout(PATIENCE).unwrap();
            let others = [spawn(&messages[1]), spawn(&messages[2])];
            let start = Instant::now();
            while replays.lock().waiting.len() < 2 * RECORD_BYTES {
                assert!(start.elapsed() < PATIENCE, "the messages are not verified");
                thread::yield_now();
            }
            assert!(accept(replays, &messages[0]).is_err());
            assert!(accept(replays, &messages[1]).is_err());
            go_on.send(()).unwrap();
            first.join().unwrap().unwrap();
            syncs.recv_timeout(PATIENCE).unwrap();
            go_on.send(()).unwrap();
            for other in others {
                other.join().unwrap().unwrap();
            }
        });
        assert!(syncs.try_recv().is_err(), "two syncs for three messages");
    }
}
