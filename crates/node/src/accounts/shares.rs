//! Shares of accounts: what one account may take of the log, of the streams and of the concurrent requests.
//!
//! The bytes and the number of a stream that clients write, themselves or by messages to a wrapper, count for one
//! account: at first for the account that defined it, or, if that was an administrator or a wrapper's file, for the
//! first other account that writes to it. If another account
//! writes clearly more to it than that one, it counts for the other from then on, so that nobody can make others
//! pay. `charged.json` holds this over a restart.
//!
//! The log itself keeps the accounts within their bytes ([`chappe_log::Share`]). Administrators have no
//! share, and neither have streams that devices, links, virtual sensors and other wrappers write.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_log::{MAX_DEFINITIONS_BYTES, Share, Store};
use chappe_stream::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audit_share::AuditShares;
use super::{Account, Accounts};
use crate::catalogue::{AUDIT, Catalogue, Entry};
use crate::config::{AccountRules, Config};
use crate::links::StateFile;
use crate::wrappers::wrapper_name;
use crate::written::SOURCE;

/// The file of the accounts for which streams count, in the data directory.
pub(crate) const CHARGED: &str = "charged.json";
/// Bytes that another account must have written more; reason: a stream with two writers does not change back and
/// forth.
const CHANGE_BYTES: u64 = 1 << 20;
/// Writers of a stream whose bytes are counted; reason: bounded memory. The one that wrote least is forgotten.
const WRITERS_MAX: usize = 8;
/// The room for the definitions of all streams, as a part of `log.max_bytes`; reason: each segment begins with
/// all of them, twice.
const DEFINITIONS_OF_LOG: u64 = 32;
/// The room that they have at least; reason: a small log has as many streams as a large one.
const DEFINITIONS_BYTES_LEAST: usize = 32 << 20;
/// The number of the audit stream's share in the log; accounts follow.
const AUDIT_SHARE: u32 = 1;

/// The shares of one account that differ from the configured ones, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = AccountShare)]
pub(crate) struct OwnShare {
    /// Percent of `log.max_bytes` that its streams keep while others need the room. Default:
    /// `accounts.bytes_percent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_percent: Option<u8>,
    /// Percent of `log.max_streams` that it may define. Default: `accounts.streams_percent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) streams_percent: Option<u8>,
    /// Percent of the concurrent requests of each kind. Default: `accounts.requests_percent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests_percent: Option<u8>,
}

impl OwnShare {
    /// Whether every part is from 1 to 100.
    pub(crate) fn is_valid(&self) -> bool {
        let parts = [
            self.bytes_percent,
            self.streams_percent,
            self.requests_percent,
        ];
        parts.iter().flatten().all(|part| (1..=100).contains(part))
    }
}

impl std::fmt::Display for OwnShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            ("bytes", self.bytes_percent),
            ("streams", self.streams_percent),
            ("requests", self.requests_percent),
        ];
        let set = parts
            .iter()
            .filter_map(|(name, part)| Some((name, (*part)?)));
        let texts: Vec<String> = set.map(|(name, part)| format!("{name}={part}")).collect();
        match texts.is_empty() {
            true => f.write_str("default"),
            false => f.write_str(&texts.join(",")),
        }
    }
}

/// The shares of an account, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = EffectiveShare)]
pub(crate) struct Percents {
    /// Of `log.max_bytes`.
    pub(crate) bytes_percent: u8,
    /// Of `log.max_streams`.
    pub(crate) streams_percent: u8,
    /// Of the concurrent requests of each kind.
    pub(crate) requests_percent: u8,
}

/// Streams and the bytes of their definitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Definitions {
    pub(crate) streams: usize,
    pub(crate) bytes: usize,
}

impl Definitions {
    fn add(&mut self, entry: &Entry) {
        self.streams += 1;
        self.bytes += entry.log.log().definition_bytes();
    }
}

/// The account for which a stream counts.
#[derive(Debug, Default)]
struct Charge {
    /// Empty: none, because only administrators wrote it.
    account: String,
    /// Bytes that each account wrote since the start; administrators have the empty name.
    written: BTreeMap<String, u64>,
}

/// The shares of all accounts.
pub(crate) struct Shares {
    rules: AccountRules,
    streams_max: usize,
    bytes_max: Option<u64>,
    log: Store,
    file: StateFile<(String, String)>,
    /// By the names under which the streams were defined.
    charges: Mutex<BTreeMap<String, Charge>>,
    /// Held while the file is written.
    writing: Mutex<()>,
    /// The number of each account's share in the log.
    numbers: Mutex<HashMap<String, u32>>,
    audit: AuditShares,
}

impl Shares {
    /// The shares of a node. Nothing is removed from its log before [`Shares::start`].
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn open(
        config: &Config,
        bytes_max: Option<u64>,
        log: Store,
        file: StateFile<(String, String)>,
        changes: StateFile<(String, Timestamp)>,
    ) -> Result<Self, String> {
        let charge = |account| Charge {
            account,
            ..Charge::default()
        };
        let items = file.read()?.into_iter();
        let charges = items.map(|(stream, account)| (stream, charge(account)));
        let rules = config.accounts.clone();
        let audit_bytes = bytes_max.map(|all| part_of(all, rules.audit_percent));
        Ok(Self {
            rules,
            streams_max: config.log.max_streams as usize,
            bytes_max,
            log,
            charges: Mutex::new(charges.collect()),
            writing: Mutex::default(),
            numbers: Mutex::default(),
            audit: AuditShares::open(config, audit_bytes, changes)?,
            file,
        })
    }

    /// Applies the shares to the streams that the log has.
    pub(crate) fn start(&self, accounts: &Accounts, catalogue: &Catalogue) {
        let mut charges = self.charges();
        charges.retain(|name, _| written_entry(catalogue, name).is_some());
        for (name, charge) in charges.iter() {
            if let Some(entry) = catalogue.defined_as(name) {
                entry.log.log().set_share(self.number(&charge.account));
            }
        }
        drop(charges);
        for account in accounts.all().iter() {
            self.apply(&account.name, Some(account));
        }
        if let Some(entry) = catalogue.get(AUDIT) {
            self.protect(&entry);
        }
        // The log removes nothing before the first share is set, so this one comes last.
        self.log.set_share(
            AUDIT_SHARE,
            Some(Share {
                bytes: self.bytes(self.rules.audit_percent),
                is_protected: true,
            }),
        );
    }

    /// Keeps the audit stream from being displaced.
    pub(crate) fn protect(&self, audit: &Entry) {
        audit.log.log().set_share(AUDIT_SHARE);
    }

    fn charges(&self) -> MutexGuard<'_, BTreeMap<String, Charge>> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of an account's share in the log; 0 for the empty name.
    fn number(&self, account: &str) -> u32 {
        if account.is_empty() {
            return 0;
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = AUDIT_SHARE + 1 + u32::try_from(numbers.len()).unwrap_or(u32::MAX - 2);
        let number = *numbers.entry(account.to_owned()).or_insert(next);
        drop(numbers);
        if number == next {
            // A forgotten account may still have streams.
            self.log
                .set_share(number, Some(self.share(self.rules.bytes_percent)));
        }
        number
    }

    fn share(&self, percent: u8) -> Share {
        Share {
            bytes: self.bytes(percent),
            is_protected: false,
        }
    }

    fn bytes(&self, percent: u8) -> u64 {
        part_of(self.bytes_max.unwrap_or(u64::MAX), percent)
    }

    /// Applies an account's share in the log; without an account, the configured one.
    pub(crate) fn apply(&self, name: &str, account: Option<&Account>) {
        let number = self.number(name);
        let share = match account {
            Some(account) => self.of(account).map(|it| self.share(it.bytes_percent)),
            None => Some(self.share(self.rules.bytes_percent)),
        };
        self.log.set_share(number, share);
    }

    /// The shares of an account; `None` for an administrator.
    pub(crate) fn of(&self, account: &Account) -> Option<Percents> {
        let own = &account.share;
        (!account.administers()).then(|| Percents {
            bytes_percent: own.bytes_percent.unwrap_or(self.rules.bytes_percent),
            streams_percent: own.streams_percent.unwrap_or(self.rules.streams_percent),
            requests_percent: own.requests_percent.unwrap_or(self.rules.requests_percent),
        })
    }

    /// The streams that count for each account.
    pub(crate) fn all_definitions(&self, catalogue: &Catalogue) -> HashMap<String, Definitions> {
        let mut counts = HashMap::<String, Definitions>::new();
        for (name, charge) in self.charges().iter() {
            if let Some(entry) = written_entry(catalogue, name) {
                counts
                    .entry(charge.account.clone())
                    .or_default()
                    .add(&entry);
            }
        }
        counts
    }

    /// The streams that count for an account.
    pub(crate) fn definitions(&self, account: &str, catalogue: &Catalogue) -> Definitions {
        let charges = self.charges();
        let own = charges
            .iter()
            .filter(|(_, charge)| charge.account == account);
        let entries = own.filter_map(|(name, _)| written_entry(catalogue, name));
        let mut counted = Definitions::default();
        for entry in entries {
            counted.add(&entry);
        }
        counted
    }

    /// The bytes that the definitions of an account's streams may have.
    pub(crate) fn definitions_bytes_max(&self, percent: u8) -> usize {
        let log = self.bytes_max.unwrap_or(u64::MAX) / DEFINITIONS_OF_LOG;
        let all = usize::try_from(log).unwrap_or(usize::MAX);
        let all = all.clamp(DEFINITIONS_BYTES_LEAST, MAX_DEFINITIONS_BYTES);
        (all / 100).saturating_mul(usize::from(percent))
    }

    /// The streams that an account may define.
    pub(crate) fn streams_max(&self, percent: u8) -> usize {
        (self.streams_max * usize::from(percent)).div_ceil(100)
    }

    /// The part of the room for entities, in bytes or in entities, that an account has.
    pub(crate) fn registry_part(percent: u8, all: usize) -> usize {
        (all / 100).saturating_mul(usize::from(percent))
    }

    /// What accounts have used of their shares of the audit stream.
    pub(super) fn audit(&self) -> &AuditShares {
        &self.audit
    }

    /// The configured shares.
    pub(super) fn rules(&self) -> &AccountRules {
        &self.rules
    }

    /// The bytes that each account keeps in the log, by name.
    pub(crate) fn used_bytes(&self) -> HashMap<String, u64> {
        let used = self.log.share_bytes();
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let used = numbers.iter().filter_map(|(name, number)| {
            let bytes = used.get(number)?;
            Some((name.clone(), *bytes))
        });
        used.collect()
    }

    /// The bytes that an account with this share keeps while others need the room; `None`: the log has no limit.
    pub(crate) fn bytes_max(&self, percent: u8) -> Option<u64> {
        self.bytes_max.map(|_| self.bytes(percent))
    }

    /// A caller has defined a stream, which counts for it. Waits for the disk.
    pub(crate) fn define(&self, entry: &Entry, payer: &str) {
        let charge = Charge {
            account: payer.to_owned(),
            ..Charge::default()
        };
        self.charges().insert(entry.name.clone(), charge);
        entry.log.log().set_share(self.number(payer));
        self.save();
    }

    /// Counts written bytes; returns whether the stream counts for another account now, which
    /// [`Shares::save`] saves.
    pub(crate) fn count(&self, entry: &Entry, payer: &str, bytes: u64) -> bool {
        let mut charges = self.charges();
        let charge = charges.entry(entry.name.clone()).or_default();
        let own = charge.written.entry(payer.to_owned()).or_default();
        *own = own.saturating_add(bytes);
        if charge.account == payer {
            return false;
        }
        let own = *own;
        let other = charge
            .written
            .get(&charge.account)
            .copied()
            .unwrap_or_default();
        if charge.written.len() > WRITERS_MAX {
            let others = charge
                .written
                .iter()
                .filter(|(name, _)| *name != &charge.account);
            let least = others
                .min_by_key(|(_, bytes)| **bytes)
                .map(|(name, _)| name.clone());
            least.map(|name| charge.written.remove(&name));
        }
        if !charge.account.is_empty() && own <= other.saturating_add(CHANGE_BYTES) {
            return false;
        }
        payer.clone_into(&mut charge.account);
        drop(charges);
        entry.log.log().set_share(self.number(payer));
        true
    }

    /// A stream was removed: it counts for nobody. Waits for the disk.
    pub(crate) fn remove(&self, stream: &str) {
        if self.charges().remove(stream).is_some() {
            self.save();
        }
    }

    /// Saves which streams count for which accounts. Waits for the disk; a failure is logged.
    pub(crate) fn save(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let items: Vec<(String, String)> = {
            let charges = self.charges();
            let charged = charges
                .iter()
                .filter(|(_, charge)| !charge.account.is_empty());
            charged
                .map(|(name, charge)| (name.clone(), charge.account.clone()))
                .collect()
        };
        if let Err(error) = self.file.write(&items) {
            tracing::warn!(%error, "cannot save for which accounts streams count");
        }
    }
}

fn part_of(all: u64, percent: u8) -> u64 {
    u64::try_from(u128::from(all) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// The stream that was defined under this name, if clients write it, themselves or by messages to a wrapper.
fn written_entry(catalogue: &Catalogue, name: &str) -> Option<Arc<Entry>> {
    catalogue.defined_as(name).filter(|entry| {
        let source = entry.source();
        source == SOURCE || wrapper_name(&source).is_some()
    })
}
