//! The share of each account in the audit stream.
//!
//! The audit stream loses its oldest records when it has no room for more, so an account that changes something
//! again and again could displace the records of all others. Records leave the stream by age after a span. In any
//! such span the records of one account take at most its share of the room: a change beyond that is refused before
//! it is made. Half of the share is free at once, and each used byte is free again after its part of the span.
//!
//! The state of an account is one time: when all of the half will be free again (a virtual scheduling algorithm,
//! ITU-T I.371, annex A). It is saved whenever it has grown by a part, so a restart gives back at most that.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chappe_stream::Timestamp;

use crate::clock;
use crate::config::Config;
use crate::links::StateFile;

/// The file of what accounts have used, in the data directory.
pub(crate) const CHANGES: &str = "changes.json";
/// The longest span; reason: with a longer one, an account of a small log could change something only a few times
/// a day.
const SPAN_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Bytes of a record in the log without its texts, at most.
pub(super) const RECORD_BYTES: u64 = 128;
/// The part of the span by which an account's state grows until it is saved; reason: each change waits for the
/// disk anyway, and few wait twice.
const SAVED_PARTS: u32 = 64;
/// Accounts whose state is kept; reason: those of forgotten accounts are not removed one by one.
const ACCOUNTS_MAX: usize = 2_000;

/// The room of the audit stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    bytes: u64,
    /// What a record counts for at least, because the stream keeps a number of elements, too.
    record_bytes: u64,
    /// How long records stay in any case.
    span: Duration,
}

impl Room {
    /// The room of a configuration, with the bytes of the stream; `None`: it has no limit.
    fn of(config: &Config, bytes: Option<u64>) -> Option<Self> {
        let log = &config.log;
        let elements = Some(log.keep_elements).filter(|most| *most > 0);
        let age = Some(Duration::from_secs(log.keep_age_s)).filter(|age| !age.is_zero());
        let bytes = match (bytes, elements) {
            (Some(bytes), _) => bytes,
            (None, Some(elements)) => elements.saturating_mul(RECORD_BYTES),
            (None, None) => return None,
        };
        Some(Self {
            bytes,
            record_bytes: elements.map_or(0, |most| bytes / most),
            // Retention keeps up to a sixteenth more.
            span: age.map_or(SPAN_MAX, |age| (age + age / 16).min(SPAN_MAX)),
        })
    }

    /// The part of the span for which a record with these bytes of text takes its place in half of a share. A share
    /// is at least one record.
    fn time_of(&self, text_bytes: usize, percent: u8) -> Duration {
        let text = u64::try_from(text_bytes).unwrap_or(u64::MAX);
        let bytes = text.saturating_add(RECORD_BYTES).max(self.record_bytes);
        let half = u128::from(self.bytes) * u128::from(percent) / 200;
        let nanos = u128::from(bytes).saturating_mul(self.span.as_nanos());
        let time = u64::try_from(nanos.div_ceil(half.max(1))).unwrap_or(u64::MAX);
        Duration::from_nanos(time).min(self.span)
    }
}

/// What one record takes of its account's share.
#[derive(Debug, Clone)]
pub(crate) struct AuditCharge {
    account: String,
    percent: u8,
    text_bytes: usize,
    time: Duration,
}

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    /// When all will be free again.
    until: Duration,
    /// `until` as it is in the file.
    saved: Duration,
}

/// What the accounts have used of their shares. Times are those since the start.
pub(super) struct AuditShares {
    room: Option<Room>,
    used: Mutex<HashMap<String, Used>>,
    file: StateFile<(String, Timestamp)>,
    /// Held while the file is written.
    writing: Mutex<()>,
    started: Instant,
}

impl AuditShares {
    /// The shares in a stream with room for so many bytes, and what was used before the start.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(
        config: &Config,
        bytes: Option<u64>,
        file: StateFile<(String, Timestamp)>,
    ) -> Result<Self, String> {
        let room = Room::of(config, bytes);
        let span = room.map_or(Duration::ZERO, |room| room.span);
        let now = clock::now().0;
        let items = file.read()?.into_iter().map(|(account, until)| {
            let left = u64::try_from(until.0.saturating_sub(now)).unwrap_or(0);
            let until = Duration::from_nanos(left).min(span);
            let saved = until;
            (account, Used { until, saved })
        });
        Ok(Self {
            room,
            used: Mutex::new(items.collect()),
            file,
            writing: Mutex::default(),
            started: Instant::now(),
        })
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, Used>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the room for a record with these bytes of text from an account's share.
    ///
    /// # Errors
    /// The account has used it; the time until there is room.
    pub(super) fn take(
        &self,
        account: &str,
        percent: u8,
        text_bytes: usize,
    ) -> Result<AuditCharge, Duration> {
        self.take_at(self.started.elapsed(), account, percent, text_bytes)
    }

    fn take_at(
        &self,
        now: Duration,
        account: &str,
        percent: u8,
        text_bytes: usize,
    ) -> Result<AuditCharge, Duration> {
        let mut charge = AuditCharge {
            account: account.to_owned(),
            percent,
            text_bytes,
            time: Duration::ZERO,
        };
        let Some(room) = self.room else {
            return Ok(charge);
        };
        charge.time = room.time_of(text_bytes, percent);
        let mut all = self.used();
        if all.len() > ACCOUNTS_MAX {
            all.retain(|_, used| used.until > now);
        }
        let used = all.entry(account.to_owned()).or_default();
        let until = used.until.max(now) + charge.time;
        match (until - now).checked_sub(room.span) {
            None | Some(Duration::ZERO) => {
                used.until = until;
                Ok(charge)
            }
            Some(wait) => Err(wait),
        }
    }

    /// Returns what a change took that is not recorded.
    pub(super) fn give_back(&self, charge: &AuditCharge) {
        if let Some(used) = self.used().get_mut(&charge.account) {
            used.until = used.until.saturating_sub(charge.time);
        }
    }

    /// Whether the account has used less than half of what is free at once: refused attempts take no more, so that
    /// they do not prevent changes.
    pub(super) fn has_half(&self, charge: &AuditCharge) -> bool {
        let Some(room) = self.room else {
            return true;
        };
        let until = self.used().get(&charge.account).map(|used| used.until);
        let taken = until.unwrap_or_default();
        taken.saturating_sub(self.started.elapsed()) <= (room.span / 2).max(charge.time)
    }

    /// Counts text that was not known before the change. Returns whether what the account used grew by a part, so that
    /// it has to be saved.
    pub(super) fn settle(&self, charge: &AuditCharge, more_text_bytes: usize) -> bool {
        let Some(room) = self.room else {
            return false;
        };
        let text_bytes = charge.text_bytes.saturating_add(more_text_bytes);
        let more = room.time_of(text_bytes, charge.percent) - charge.time;
        let mut all = self.used();
        let Some(used) = all.get_mut(&charge.account) else {
            return false;
        };
        used.until += more;
        used.until >= used.saved + room.span / SAVED_PARTS
    }

    /// Saves what the accounts used. Waits for the disk; a failure is logged.
    pub(super) fn save(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, time) = (self.started.elapsed(), clock::now().0);
        let items: Vec<(String, Timestamp)> = {
            let mut all = self.used();
            let items = all.iter_mut().filter(|(_, used)| used.until > now);
            let items = items.map(|(account, used)| {
                used.saved = used.until;
                let left = i64::try_from((used.until - now).as_nanos()).unwrap_or(i64::MAX);
                (account.clone(), Timestamp(time.saturating_add(left)))
            });
            items.collect()
        };
        if let Err(error) = self.file.write(&items) {
            tracing::warn!(%error, "cannot save the accounts' use of the audit stream");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(1_000);

    fn shares(directory: &tempfile::TempDir, bytes: u64, elements: u64) -> AuditShares {
        let mut config = Config::default();
        (config.log.keep_elements, config.log.keep_age_s) = (elements, SPAN.as_secs());
        let file = StateFile::new(directory.path(), CHANGES);
        AuditShares::open(&config, Some(bytes), file).unwrap()
    }

    #[test]
    fn in_any_span_an_account_uses_at_most_its_share() {
        let directory = tempfile::tempdir().unwrap();
        for (seed, percent) in [(1_u64, 25_u8), (2, 1), (3, 100), (4, 60)] {
            let shares = shares(&directory, 1_000_000, 0);
            let mut random = seed;
            let mut next = |most: u64| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 33) % most
            };
            let mut now = Duration::ZERO;
            let mut taken: Vec<(Duration, u64)> = Vec::new();
            for _ in 0..20_000 {
                // At times nothing, at times many at once.
                now += Duration::from_millis(if next(50) == 0 { next(20_000) } else { 0 });
                let text = next(700);
                let Ok(charge) = shares.take_at(now, "ann", percent, text as usize) else {
                    continue;
                };
                match next(10) {
                    0 => shares.give_back(&charge),
                    _ => taken.push((now, text + RECORD_BYTES)),
                }
            }
            let most = 1_000_000 * u64::from(percent) / 100;
            let mut first = 0;
            let mut used = 0;
            let mut largest = 0;
            for (at, bytes) in &taken {
                used += bytes;
                while taken[first].0 + SPAN < *at {
                    used -= taken[first].1;
                    first += 1;
                }
                largest = largest.max(used);
            }
            assert!(largest <= most, "seed {seed}: {largest} of {most}");
            assert!(largest > most * 8 / 10, "seed {seed}: {largest} of {most}");
        }
    }

    #[test]
    fn after_the_named_time_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let shares = shares(&directory, 100_000, 0);
        let mut now = Duration::ZERO;
        let mut waits = 0;
        for _ in 0..500 {
            if let Err(wait) = shares.take_at(now, "ann", 25, 100) {
                now += wait;
                shares.take_at(now, "ann", 25, 100).unwrap();
                waits += 1;
            }
            shares.take_at(now, "bob", 25, 0).ok();
        }
        assert!(waits > 100, "{waits}");
    }

    #[test]
    fn the_number_of_elements_is_a_room_too_and_each_account_has_one_record() {
        let directory = tempfile::tempdir().unwrap();
        let few = shares(&directory, 1 << 30, 400);
        let taken = (0..400).take_while(|_| few.take("ann", 25, 10).is_ok());
        assert_eq!(taken.count(), 50, "half of a quarter");
        let smallest = shares(&directory, 1_000, 0);
        assert!(smallest.take_at(SPAN, "ann", 1, 500).is_ok());
        assert!(smallest.take_at(SPAN, "ann", 1, 500).is_err());
        assert!(smallest.take_at(3 * SPAN, "ann", 1, 500).is_ok());
    }

    #[test]
    fn a_restart_gives_back_at_most_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let before = shares(&directory, 1_000_000, 0);
        let mut count = 0;
        while let Ok(charge) = before.take("ann", 25, 100) {
            if before.settle(&charge, 0) {
                before.save();
            }
            count += 1;
        }
        drop(before);
        let after = shares(&directory, 1_000_000, 0);
        let again = (0..count).take_while(|_| after.take("ann", 25, 100).is_ok());
        let again = again.count();
        assert!(again <= count / 50, "{again} of {count}");
        assert!(after.take("bob", 25, 100).is_ok());
    }

    #[test]
    fn a_log_without_limits_needs_no_shares() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.log.keep_elements = 0;
        let file = StateFile::new(directory.path(), CHANGES);
        let shares = AuditShares::open(&config, None, file).unwrap();
        for _ in 0..10_000 {
            let charge = shares.take("ann", 1, 1_000).unwrap();
            assert!(shares.has_half(&charge));
            assert!(!shares.settle(&charge, 10));
        }
    }
}
