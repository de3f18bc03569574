//! The two logs of a node: its streams and its registry.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_log::{CorruptRange, Disk, Health, Level, Options, QueueFull, Recovery, Store};
use chappe_registry::{LogJournal, MemoryJournal, Registry};
use chappe_transport::FileDisk;

use crate::clock;
use crate::config::{Config, RegistryStore};
use crate::data::{log_directory, registry_directory};
use crate::error::StartError;
use crate::notices::{NoticeKind, Notices};
use crate::size_limit::SizeLimit;

/// Records in one batch of a follower; reason: each client of live data holds one batch in memory.
const FOLLOW_RECORDS: usize = 256;
/// Bytes queued for the log; more are refused, and their sender waits.
const QUEUE_BYTES: usize = 4 << 20;

/// Both open logs, and their disk.
pub(crate) struct Storage {
    /// The log of the streams.
    pub(crate) log: Store,
    /// The journal of the registry.
    pub(crate) registry_log: Store,
    /// The data directory, for its free space.
    disk: FileDisk,
}

/// The recovery reports of both logs.
pub(crate) struct Recoveries {
    log: Recovery,
    registry: Recovery,
}

impl Storage {
    /// Opens both logs below the data directory.
    ///
    /// # Errors
    /// The directory is in use or cannot be written, or a log cannot be read.
    pub(crate) fn open(
        config: &Config,
        size_limit: SizeLimit,
    ) -> Result<(Self, Recoveries), StartError> {
        let directory = &config.data_directory;
        let pause = Duration::from_millis(u64::from(config.log.commit_pause_ms));
        let options = Options {
            retain_bytes: size_limit.bytes,
            waits_for_shares: true,
            commit_pause: pause,
            cursor_of: Some(chappe_stream::origin_cursor),
            ..log_options(config)
        };
        let (log, log_recovery) = open_log(&log_directory(directory), options)?;
        let (registry_log, registry_recovery) =
            open_log(&registry_directory(directory), log_options(config))?;
        let disk = FileDisk::open_unlocked(directory);
        let disk = disk.map_err(|source| StartError::Directory {
            path: directory.clone(),
            source,
        })?;
        let storage = Self {
            log,
            registry_log,
            disk,
        };
        let recoveries = Recoveries {
            log: log_recovery,
            registry: registry_recovery,
        };
        Ok((storage, recoveries))
    }

    /// Both logs, with the names shown to operators.
    pub(crate) fn logs(&self) -> [(&'static str, &Store); 2] {
        [("log", &self.log), ("registry", &self.registry_log)]
    }

    /// Free bytes on the disk of the data directory.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.disk.free_bytes().unwrap_or(0)
    }

    /// The reasons why the logs do not accept data; empty when they do.
    pub(crate) fn reasons_not_ready(&self) -> Vec<String> {
        let reasons = self.logs().map(|(name, log)| match log.health() {
            Health::Ok => None,
            Health::Full => Some(format!("{name}: the disk is full")),
            Health::Failed(reason) => Some(format!("{name}: {reason}")),
        });
        reasons.into_iter().flatten().collect()
    }

    /// A summary of damaged records for each log that has some.
    pub(crate) fn damage(&self) -> Vec<String> {
        let damages = self.logs().map(|(name, log)| {
            let lost = log.lost();
            let damaged = lost.iter().filter(|it| it.missing > 0);
            let records: u64 = damaged.clone().map(|it| it.missing).sum();
            let streams = damaged.count();
            (records > 0)
                .then(|| format!("{name}: {records} records of {streams} streams are damaged"))
        });
        damages.into_iter().flatten().collect()
    }

    /// Writes all queued records and closes both logs.
    ///
    /// # Errors
    /// A log cannot be closed; its acknowledged records are durable nevertheless.
    pub(crate) async fn close(&self) -> Result<(), chappe_log::Error> {
        for (_, log) in self.logs() {
            let log = log.clone();
            let closed = tokio::task::spawn_blocking(move || log.close()).await;
            closed.unwrap_or(Err(chappe_log::Error::Closed))?;
        }
        Ok(())
    }
}

impl Recoveries {
    /// The report of the log of streams.
    pub(crate) fn of_streams(&self) -> &Recovery {
        &self.log
    }

    /// Reports findings of the recovery as notices.
    pub(crate) fn notify(&self, notices: &Notices) {
        notify_recovery(notices, "log", &self.log);
        notify_recovery(notices, "registry", &self.registry);
    }
}

/// The options that the log and the registry's journal share.
fn log_options(config: &Config) -> Options {
    Options {
        segment_bytes: config.log.segment_bytes,
        queue_bytes: QUEUE_BYTES,
        queue_full: QueueFull::Refuse,
        batch_bytes: QUEUE_BYTES,
        reserve_bytes: config.log.min_free_bytes,
        follow_records: FOLLOW_RECORDS,
        ..Options::default()
    }
}

fn open_log(directory: &Path, options: Options) -> Result<(Store, Recovery), StartError> {
    let disk = FileDisk::open(directory).map_err(|source| StartError::Directory {
        path: directory.to_owned(),
        source,
    })?;
    let seed = chappe_transport::seed_number().map_err(StartError::Random)?;
    Store::open(Box::new(disk), options, seed).map_err(|source| StartError::Log {
        path: directory.to_owned(),
        source,
    })
}

/// Tells why the store of the registry does not accept changes; `None` while it does.
pub(crate) type Outage = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Opens the registry from its store.
///
/// # Errors
/// The store cannot be reached or read.
pub(crate) fn open_registry(
    config: &Config,
    log: &Store,
) -> Result<(Registry, Outage), StartError> {
    let never: Outage = Arc::new(|| None);
    match config.registry.store {
        RegistryStore::Log => {
            let directory = registry_directory(&config.data_directory);
            Ok((open_log_registry(&directory, log)?, never))
        }
        RegistryStore::Memory => {
            let opened = Registry::open(MemoryJournal::new());
            let failed = |error: chappe_registry::Error| StartError::Store {
                reason: error.to_string(),
            };
            Ok((opened.map_err(failed)?, never))
        }
        RegistryStore::Postgres => open_postgres(config),
    }
}

#[cfg(feature = "postgres")]
fn open_postgres(config: &Config) -> Result<(Registry, Outage), StartError> {
    use chappe_registry::{Error, JournalError};
    use chappe_registry_postgres::{OpenError, Options, PostgresJournal};
    let rules = &config.registry.postgres;
    let failed = |reason: String| StartError::Store { reason };
    let read = |path: &Path| match path.as_os_str().is_empty() {
        true => Ok(None),
        false => std::fs::read(path)
            .map(Some)
            .map_err(|error| failed(format!("cannot read {}: {error}", path.display()))),
    };
    let password = read(&rules.password_file)?;
    let password = password.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned());
    let options = Options {
        url: rules.url.clone(),
        password,
        authorities: read(&rules.authorities)?,
    };
    let failure = |is_newer: bool, reason: String| match is_newer {
        true => StartError::NewerStore { reason },
        false => StartError::Store { reason },
    };
    let journal = PostgresJournal::open(&options).map_err(|error| {
        let is_newer = matches!(error, OpenError::Version { found, known } if found > known);
        failure(is_newer, error.to_string())
    })?;
    let status = journal.status();
    let registry = Registry::open(journal).map_err(|error| {
        let is_newer = matches!(error, Error::Journal(JournalError::NewerFormat { .. }));
        failure(is_newer, error.to_string())
    })?;
    Ok((registry, Arc::new(move || status.outage())))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_: &Config) -> Result<(Registry, Outage), StartError> {
    let reason = "this program was built without PostgreSQL".to_owned();
    Err(StartError::Store { reason })
}

fn open_log_registry(directory: &Path, store: &Store) -> Result<Registry, StartError> {
    let path = || directory.to_owned();
    let existing = store.streams();
    let metadata = existing.iter().find(|info| info.name == "registry");
    let metadata = metadata.map_or(&[][..], |info| &info.metadata);
    let stream = store.stream("registry", Level::Power, metadata);
    let stream = stream.map_err(|source| StartError::Log {
        path: path(),
        source,
    })?;
    let journal = LogJournal::new(stream, || clock::now().0);
    Registry::open(journal).map_err(|source| StartError::Registry {
        path: path(),
        source,
    })
}

/// Describes damage: its position, and the missing records.
pub(crate) fn describe_damage(range: &CorruptRange) -> String {
    /// Streams to name; the others are counted.
    const NAMED: usize = 4;
    let mut text = format!(
        "{} bytes of {} are damaged: {}",
        range.bytes, range.segment, range.what
    );
    for (stream, first, last) in range.gaps.iter().take(NAMED) {
        text.push_str(&format!("; {stream} lacks {first} to {last}"));
    }
    if range.gaps.len() > NAMED {
        text.push_str(&format!("; so do {} more", range.gaps.len() - NAMED));
    }
    text
}

/// Reports the findings of a log's recovery that concern operators.
fn notify_recovery(notices: &Notices, name: &str, recovery: &Recovery) {
    let notify = |text: String| notices.notify(NoticeKind::Health, name, text);
    if recovery.copied {
        notify("the files are a copy: every stream continues in a new epoch".to_owned());
    }
    if let Some(tail) = &recovery.torn_tail {
        notify(format!(
            "{} bytes at the end of {} were incomplete and were cut off",
            tail.bytes, tail.segment
        ));
    }
    for range in recovery.corrupt.iter().filter(|range| !range.settled) {
        notify(describe_damage(range));
    }
    for epoch in recovery.new_epochs.iter().take(20) {
        notify(format!(
            "stream {} continues in a new epoch: {}",
            epoch.stream,
            epoch.reason.text()
        ));
    }
}
