//! Accounts of people and programs: who they are, what they may do, and a record of their changes.
//!
//! An account is recognized by a token, of which only the hash is stored, or by the subject or the fingerprint of
//! its client certificate. The first administrator, `operator`, is recognized by the file `token` of the data
//! directory; all other accounts are in `accounts.json`. A revoked account stays listed, so that its name, which
//! owns entities and appears in the audit stream, is not given to another by accident.

mod audit;
mod audit_share;
mod caller;
mod owners;
mod publishers;
mod record;
mod shares;
mod stated_rights;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use chappe_identity::{
    Attempts, CertificateName, ClientCertificate, CurvePublic, GROUPS_MAX, Host, Reach, Rights,
    Role, Token, TokenHash, check_account_name, check_group_name,
};
use chappe_machine::{TokenBucket, TokenRate};
use chappe_stream::Timestamp;
use tokio::sync::watch;

pub(crate) use audit::{Audit, Change, Unchanged};
#[cfg(test)]
use audit_share::RECORD_BYTES;
pub(crate) use audit_share::{AuditCharge, CHANGES};
pub(crate) use caller::{Caller, View};
pub(crate) use owners::{OWNERS, Owners};
pub(crate) use record::{Record, rights};
pub(crate) use shares::{CHARGED, Definitions, OwnShare, Percents, Shares};
pub(crate) use stated_rights::{RIGHTS, StatedRights};

use crate::clock;
use crate::links::StateFile;

/// The file of the accounts in the data directory.
pub(crate) const ACCOUNTS: &str = "accounts.json";
/// Accounts of a node, revoked ones included; reason: a credential is compared with that of each account.
const ACCOUNTS_MAX: usize = 1_000;
/// The name of the first administrator.
pub(crate) const OPERATOR: &str = "operator";
/// Names that accounts cannot have, in any case.
const RESERVED: [&str; 3] = [OPERATOR, "node", "anonymous"];

/// An account.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) rights: Rights,
    pub(crate) token: Option<TokenHash>,
    pub(crate) certificate: Option<CertificateName>,
    /// The groups that it is in, in order.
    pub(crate) groups: Vec<String>,
    /// The public key of a node that reads over ZeroMQ.
    pub(crate) key: Option<CurvePublic>,
    pub(crate) created_at: Timestamp,
    /// The account that created it.
    pub(crate) created_by: String,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) revoked_at: Option<Timestamp>,
    /// The shares that differ from the configured ones.
    pub(crate) share: OwnShare,
}

impl Account {
    /// Whether it may manage accounts; such an account has no shares.
    pub(crate) fn administers(&self) -> bool {
        self.rights.reach(Role::Administer) == Reach::All
    }

    /// Why its credentials are not accepted at this time.
    fn refusal(&self, now: Timestamp) -> Option<Refusal> {
        if self.revoked_at.is_some() {
            return Some(Refusal::Unknown);
        }
        let is_expired = self.expires_at.is_some_and(|end| end <= now);
        is_expired.then_some(Refusal::Expired)
    }
}

/// A credential is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No account has it.
    Unknown,
    /// Its account has expired.
    Expired,
}

/// A change of accounts is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccountError {
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] chappe_identity::Error),
    /// The name means something else.
    #[error("{0:?} is not available as the name of an account")]
    Reserved(String),
    /// It exists already.
    #[error("the account {0:?} already exists")]
    Exists(String),
    /// It was revoked.
    #[error("the account {0:?} was revoked")]
    Revoked(String),
    /// Another account has the certificate.
    #[error("the certificate belongs to the account {0:?}")]
    Certificate(String),
    /// Another account has the key.
    #[error("the key belongs to the account {0:?}")]
    Key(String),
    /// A share is not a percentage.
    #[error("a share is 1 to 100 percent")]
    Share,
    /// The end is in the past.
    #[error("the account would expire before it starts")]
    Expired,
    /// There is none.
    #[error("there is no account {0:?}")]
    Unknown(String),
    /// The first administrator cannot be changed over the network.
    #[error("the first administrator cannot be changed over the network")]
    Operator,
    /// There are too many.
    #[error("the node already has {ACCOUNTS_MAX} accounts")]
    TooMany,
    /// The change cannot be saved.
    #[error("the change cannot be saved: {0}")]
    NotSaved(#[from] std::io::Error),
}

/// The accounts of a node.
pub(crate) struct Accounts {
    operator: TokenHash,
    file: StateFile<Record>,
    accounts: RwLock<Arc<Vec<Account>>>,
    /// Locked while the file is written.
    writing: Mutex<()>,
    changes: watch::Sender<u64>,
    attempts: Mutex<Attempts>,
    /// The tokens of publishers of UDDI.
    publishers: Mutex<publishers::PublisherTokens>,
    /// Limits records of refused changes, by account.
    refusals: Mutex<HashMap<String, TokenBucket>>,
    clock: Instant,
}

/// Refused changes of one account that are recorded; reason: each one waits for the disk, and says little. They
/// count for the account's share of the audit stream as well ([`audit_share`]).
const REFUSALS: TokenRate = TokenRate {
    per_s: 1,
    burst: 500,
};

impl Accounts {
    /// The accounts of a file, and the first administrator.
    ///
    /// # Errors
    /// The file cannot be read. The node does not start without the accounts that it had.
    pub(crate) fn open(operator: TokenHash, file: StateFile<Record>) -> Result<Self, String> {
        let records = file.read()?;
        let accounts: Result<Vec<Account>, String> =
            records.into_iter().map(Account::try_from).collect();
        Ok(Self {
            operator,
            file,
            accounts: RwLock::new(Arc::new(accounts?)),
            writing: Mutex::default(),
            changes: watch::Sender::new(0),
            attempts: Mutex::default(),
            publishers: Mutex::default(),
            refusals: Mutex::default(),
            clock: Instant::now(),
        })
    }

    /// All accounts except the first administrator, by name.
    pub(crate) fn all(&self) -> Arc<Vec<Account>> {
        let accounts = self.accounts.read();
        accounts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The account of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Account> {
        self.all().iter().find(|one| one.name == name).cloned()
    }

    /// Follows changes of accounts.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The caller with this token. Takes the same time whether an account has it or not.
    pub(crate) fn by_token(&self, token: &Token) -> Result<Caller, Refusal> {
        self.by_hash(&token.hash())
    }

    fn by_hash(&self, hash: &TokenHash) -> Result<Caller, Refusal> {
        let is_operator = self.operator.is_same(hash);
        let accounts = self.all();
        let mut found = None;
        for account in accounts.iter() {
            let stored = account.token.as_ref();
            if stored.is_some_and(|stored| stored.is_same(hash)) {
                found = Some(account);
            }
        }
        if is_operator {
            return Ok(Caller::operator());
        }
        admitted(found)
    }

    /// The caller with a certificate that was verified: that of a TLS client, or of the signer of a message. A
    /// fingerprint takes precedence over a subject with its issuer, and that over a subject alone.
    pub(crate) fn by_certificate(
        &self,
        certificate: &ClientCertificate,
    ) -> Result<Caller, Refusal> {
        let accounts = self.all();
        let name = |one: &&Account| {
            let name = one.certificate.as_ref();
            name.filter(|name| name.is_of(certificate)).cloned()
        };
        // A revoked account may have had the same certificate.
        let active = accounts.iter().filter(|one| one.revoked_at.is_none());
        let having = active.filter(|one| name(one).is_some());
        let precision = |one: &&Account| name(one).as_ref().map(CertificateName::precision);
        admitted(having.max_by_key(precision))
    }

    /// The caller to whom a CURVE key is bound; `None` if it is bound to no account.
    pub(crate) fn by_key(&self, key: &[u8; 32]) -> Option<Result<Caller, Refusal>> {
        let accounts = self.all();
        let has_it = |one: &&Account| one.key.as_ref().is_some_and(|own| own.as_bytes() == key);
        let having = accounts.iter().filter(has_it);
        // A revoked account may have had the same key.
        let found = having.min_by_key(|one| one.revoked_at.is_some())?;
        Some(admitted(Some(found)))
    }

    fn publishers(&self) -> MutexGuard<'_, publishers::PublisherTokens> {
        let publishers = self.publishers.lock();
        publishers.unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an account a token for publishing over UDDI.
    pub(crate) fn admit_publisher(&self, account: &str, credential: &Token, token: &Token) {
        let (credential, token) = (credential.hash(), token.hash());
        let now = self.clock.elapsed();
        self.publishers().add(account, credential, token, now);
    }

    /// The caller with a token that [`Accounts::admit_publisher`] gave.
    pub(crate) fn publisher(&self, token: &Token) -> Result<Caller, Refusal> {
        let publishers = self.publishers();
        let credential = publishers.credential(token, self.clock.elapsed())?.clone();
        drop(publishers);
        self.by_hash(&credential)
    }

    /// Ends such a token.
    pub(crate) fn dismiss_publisher(&self, token: &Token) {
        self.publishers().remove(token);
    }

    /// The account of [`Caller::session`], if it still exists.
    pub(crate) fn of_session(&self, session: &str) -> Result<Caller, Refusal> {
        let (name, since) = session.rsplit_once(' ').ok_or(Refusal::Unknown)?;
        let account = self.get(name);
        let account = account.filter(|one| Ok(one.created_at.0) == since.parse());
        admitted(account.as_ref())
    }

    /// Counts a failed credential of a host.
    ///
    /// # Errors
    /// The host has failed too often; the time until it may fail again.
    pub(crate) fn fail(&self, host: Host) -> Result<(), Duration> {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.fail(host, self.clock.elapsed())
    }

    /// Whether one more refused change of an account is recorded.
    pub(crate) fn records_refusal(&self, account: &str) -> bool {
        let now = chappe_machine::Instant::ZERO + self.clock.elapsed();
        let refusals = self.refusals.lock();
        let mut refusals = refusals.unwrap_or_else(PoisonError::into_inner);
        // Those of forgotten accounts are not removed one by one.
        if refusals.len() > ACCOUNTS_MAX {
            refusals.clear();
        }
        let of = refusals.entry(account.to_owned());
        let of = of.or_insert_with(|| TokenBucket::full(now, REFUSALS));
        of.take(now, 1, REFUSALS).is_ok()
    }

    /// Adds an account.
    pub(crate) fn add(&self, account: Account) -> Result<(), AccountError> {
        let name = account.name.clone();
        check_account_name(&name)?;
        if RESERVED.iter().any(|one| one.eq_ignore_ascii_case(&name)) {
            return Err(AccountError::Reserved(name));
        }
        if account.expires_at.is_some_and(|end| end <= clock::now()) {
            return Err(AccountError::Expired);
        }
        if !account.share.is_valid() {
            return Err(AccountError::Share);
        }
        let account = Account {
            groups: groups(account.groups)?,
            ..account
        };
        self.change(|accounts| {
            let same = |one: &&Account| one.name.eq_ignore_ascii_case(&name);
            if let Some(one) = accounts.iter().find(same) {
                return Err(match one.revoked_at {
                    Some(_) => AccountError::Revoked(one.name.clone()),
                    None => AccountError::Exists(one.name.clone()),
                });
            }
            let certificate = account.certificate.as_ref();
            let has_it = |one: &&Account| one.certificate.as_ref() == certificate;
            let mut active = accounts.iter().filter(|one| one.revoked_at.is_none());
            if certificate.is_some()
                && let Some(one) = active.find(has_it)
            {
                return Err(AccountError::Certificate(one.name.clone()));
            }
            let key = account.key.as_ref();
            let has_key = |one: &&Account| one.key.as_ref() == key && one.revoked_at.is_none();
            if let Some(one) = accounts.iter().find(has_key).filter(|_| key.is_some()) {
                return Err(AccountError::Key(one.name.clone()));
            }
            if accounts.len() >= ACCOUNTS_MAX {
                return Err(AccountError::TooMany);
            }
            let at = accounts.partition_point(|one| one.name < account.name);
            accounts.insert(at, account.clone());
            Ok(())
        })
    }

    /// Gives an account a new token; the old one is no longer valid.
    pub(crate) fn renew(&self, name: &str, token: &TokenHash) -> Result<(), AccountError> {
        self.change_one(name, |account| match account.revoked_at {
            Some(_) => Err(AccountError::Revoked(account.name.clone())),
            None => {
                account.token = Some(token.clone());
                Ok(())
            }
        })
    }

    /// Sets the shares of an account; parts that are absent are the configured ones.
    pub(crate) fn set_share(&self, name: &str, share: OwnShare) -> Result<(), AccountError> {
        if !share.is_valid() {
            return Err(AccountError::Share);
        }
        self.change_one(name, |account| match account.revoked_at {
            Some(_) => Err(AccountError::Revoked(account.name.clone())),
            None => {
                account.share = share;
                Ok(())
            }
        })
    }

    /// Sets the groups that an account is in. Its open connections end if it leaves or enters one.
    pub(crate) fn set_groups(&self, name: &str, set: Vec<String>) -> Result<(), AccountError> {
        let set = groups(set)?;
        self.change_one(name, |account| match account.revoked_at {
            Some(_) => Err(AccountError::Revoked(account.name.clone())),
            None => {
                account.groups.clone_from(&set);
                Ok(())
            }
        })
    }

    /// Whether an account is in this group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        let is_in = |one: &Account| one.groups.iter().any(|name| name == group);
        self.all().iter().any(is_in)
    }

    /// Revokes an account: its credentials are no longer valid, and its open connections end.
    pub(crate) fn revoke(&self, name: &str) -> Result<(), AccountError> {
        self.change_one(name, |account| {
            account.token = None;
            account.revoked_at = account.revoked_at.or(Some(clock::now()));
            Ok(())
        })
    }

    /// Removes an account altogether, so that its name is free.
    pub(crate) fn forget(&self, name: &str) -> Result<(), AccountError> {
        self.change_one(name, |_| Ok(()))?;
        self.change(|accounts| {
            accounts.retain(|one| one.name != name);
            Ok(())
        })
    }

    fn change_one(
        &self,
        name: &str,
        change: impl FnOnce(&mut Account) -> Result<(), AccountError>,
    ) -> Result<(), AccountError> {
        if name == OPERATOR {
            return Err(AccountError::Operator);
        }
        self.change(|accounts| {
            let account = accounts.iter_mut().find(|one| one.name == name);
            change(account.ok_or_else(|| AccountError::Unknown(name.to_owned()))?)
        })
    }

    /// Changes the accounts and their file. A change that cannot be saved does not happen.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Account>) -> Result<(), AccountError>,
    ) -> Result<(), AccountError> {
        let _writing: MutexGuard<'_, ()> =
            self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut accounts = Vec::clone(&self.all());
        change(&mut accounts)?;
        let records: Vec<Record> = accounts.iter().map(Record::from).collect();
        self.file.write(&records)?;
        *self
            .accounts
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(accounts);
        self.changes.send_modify(|number| *number += 1);
        Ok(())
    }

    /// Waits until a caller's account is revoked, expires or loses a right; forever if it has none.
    pub(crate) async fn ended(&self, caller: &Caller) {
        let Some(name) = caller.account() else {
            return std::future::pending().await;
        };
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let now = clock::now();
            let account = self.get(name).filter(|one| one.refusal(now).is_none());
            let is_same =
                |one: &Account| one.created_at == caller.since() && one.groups == caller.groups();
            let Some(account) = account.filter(is_same) else {
                return;
            };
            let left = account.expires_at.map(|end| end.0.saturating_sub(now.0));
            let left = left.and_then(|left| u64::try_from(left).ok());
            let expiry = async {
                match left {
                    Some(left) => tokio::time::sleep(Duration::from_nanos(left)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = expiry => {}
            }
        }
    }
}

/// The names of groups in order, each once.
fn groups(mut names: Vec<String>) -> Result<Vec<String>, chappe_identity::Error> {
    names.iter().try_for_each(|name| check_group_name(name))?;
    names.sort_unstable();
    names.dedup();
    match names.len() > GROUPS_MAX {
        true => Err(chappe_identity::Error::TooMany(
            "groups of an account",
            GROUPS_MAX,
        )),
        false => Ok(names),
    }
}

fn admitted(account: Option<&Account>) -> Result<Caller, Refusal> {
    let account = account.ok_or(Refusal::Unknown)?;
    match account.refusal(clock::now()) {
        Some(refusal) => Err(refusal),
        None => Ok(Caller::of(account)),
    }
}

/// The first administrator, for lists.
pub(crate) fn operator_rights() -> Rights {
    Rights::all(Role::Administer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(directory: &std::path::Path) -> Accounts {
        let operator = Token::from_seed([1; 32]).hash();
        Accounts::open(operator, StateFile::new(directory, ACCOUNTS)).unwrap()
    }

    fn account(name: &str, seed: u8) -> Account {
        Account {
            name: name.to_owned(),
            rights: Rights::new(vec!["read=ward.*".parse().unwrap()]).unwrap(),
            token: Some(Token::from_seed([seed; 32]).hash()),
            certificate: format!("CN={name}").parse().ok(),
            groups: Vec::new(),
            key: None,
            created_at: clock::now(),
            created_by: OPERATOR.to_owned(),
            expires_at: None,
            revoked_at: None,
            share: OwnShare::default(),
        }
    }

    /// A certificate in DER whose subject is `CN=` and the name, as far as accounts read it.
    fn client_certificate(name: &str) -> ClientCertificate {
        fn tagged(tag: u8, contents: &[u8]) -> Vec<u8> {
            [&[tag, u8::try_from(contents.len()).unwrap()], contents].concat()
        }
        let pair = [tagged(6, &[0x55, 4, 3]), tagged(0x0c, name.as_bytes())].concat();
        let subject = tagged(0x30, &tagged(0x31, &tagged(0x30, &pair)));
        // Serial number, algorithm, issuer, validity.
        let before = [tagged(2, &[1]), tagged(0x30, &[]).repeat(3)].concat();
        let body = tagged(0x30, &[before, subject].concat());
        ClientCertificate::of_der(&tagged(0x30, &body))
    }

    #[test]
    fn a_certificate_of_a_client_or_signer_is_that_of_the_account_which_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = accounts(directory.path());
        accounts.add(account("ada", 2)).unwrap();
        let certificate = client_certificate("ada");
        let of = |accounts: &Accounts| {
            let caller = accounts.by_certificate(&certificate);
            caller.map(|caller| caller.name().to_owned())
        };
        assert_eq!(of(&accounts).as_deref(), Ok("ada"));
        // The fingerprint of one certificate is more exact than the subject of many.
        let mut gateway = account("gateway", 3);
        gateway.certificate = Some(certificate.fingerprint());
        accounts.add(gateway).unwrap();
        assert_eq!(of(&accounts).as_deref(), Ok("gateway"));
        accounts.revoke("gateway").unwrap();
        assert_eq!(of(&accounts).as_deref(), Ok("ada"));
        assert!(accounts.by_certificate(&client_certificate("eve")).is_err());
    }

    #[tokio::test]
    async fn a_caller_ends_when_its_groups_change() {
        let directory = tempfile::tempdir().unwrap();
        let before = accounts(directory.path());
        before.add(account("ada", 2)).unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        before
            .set_groups("ada", names(&["ward", "lab", "ward"]))
            .unwrap();
        let accounts = accounts(directory.path());
        let caller = accounts.by_token(&Token::from_seed([2; 32])).unwrap();
        assert_eq!(caller.reader().groups(), ["lab", "ward"]);
        assert!(accounts.has_group("lab") && !accounts.has_group("icu"));
        accounts.set_groups("ada", names(&["ward"])).unwrap();
        accounts.ended(&caller).await;
        for wrong in [
            names(&["a b"]),
            names(&[""]),
            (0..17).map(|n| format!("g{n}")).collect(),
        ] {
            let error = accounts.set_groups("ada", wrong).unwrap_err();
            assert!(matches!(error, AccountError::Invalid(_)), "{error}");
        }
        accounts.set_groups("eve", names(&["lab"])).unwrap_err();
    }

    fn is_known(accounts: &Accounts, seed: u8) -> Result<String, Refusal> {
        let caller = accounts.by_token(&Token::from_seed([seed; 32]))?;
        Ok(caller.name().to_owned())
    }

    #[test]
    fn accounts_survive_a_restart_and_tokens_are_stored_as_hashes() {
        let directory = tempfile::tempdir().unwrap();
        let before = accounts(directory.path());
        before.add(account("bob", 3)).unwrap();
        before.add(account("ada", 2)).unwrap();
        let after = accounts(directory.path());
        assert_eq!(is_known(&after, 1).unwrap(), OPERATOR);
        assert_eq!(is_known(&after, 2).unwrap(), "ada");
        assert_eq!(is_known(&after, 4), Err(Refusal::Unknown));
        let certificate = client_certificate("bob");
        assert_eq!(after.by_certificate(&certificate).unwrap().name(), "bob");
        let text = std::fs::read_to_string(directory.path().join(ACCOUNTS)).unwrap();
        assert!(
            !text.contains(&Token::from_seed([2; 32]).reveal()),
            "{text}"
        );
        assert!(text.contains("read=ward.*"), "{text}");
    }

    #[test]
    fn revoked_and_expired_credentials_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = accounts(directory.path());
        accounts.add(account("ada", 2)).unwrap();
        accounts.revoke("ada").unwrap();
        assert_eq!(is_known(&accounts, 2), Err(Refusal::Unknown));
        let certificate = client_certificate("ada");
        assert!(accounts.by_certificate(&certificate).is_err());
        let again = accounts.add(account("Ada", 2)).unwrap_err();
        assert!(matches!(again, AccountError::Revoked(_)), "{again}");
        accounts.forget("ada").unwrap();
        accounts.add(account("ada", 5)).unwrap();
        let soon = Timestamp(clock::now().0 + 1);
        let mut short = account("short", 6);
        short.expires_at = Some(soon);
        let _ = accounts.add(short);
        let expired = is_known(&accounts, 6);
        assert!(
            matches!(expired, Err(Refusal::Expired | Refusal::Unknown)),
            "{expired:?}"
        );
        let mut past = account("past", 7);
        past.expires_at = Some(Timestamp(0));
        assert!(matches!(accounts.add(past), Err(AccountError::Expired)));
    }

    #[test]
    fn changes_that_make_no_sense_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = accounts(directory.path());
        for name in ["operator", "Node", "anonymous", "", "a b"] {
            accounts.add(account(name, 2)).unwrap_err();
        }
        accounts.add(account("ada", 2)).unwrap();
        let mut same = account("bob", 3);
        same.certificate = "CN=ada".parse().ok();
        let error = accounts.add(same).unwrap_err();
        assert!(matches!(error, AccountError::Certificate(_)), "{error}");
        for name in ["bob", OPERATOR] {
            accounts.revoke(name).unwrap_err();
            accounts.forget(name).unwrap_err();
        }
        let token = Token::from_seed([9; 32]).hash();
        accounts.renew("ada", &token).unwrap();
        assert_eq!(is_known(&accounts, 2), Err(Refusal::Unknown));
        assert_eq!(is_known(&accounts, 9).unwrap(), "ada");
    }

    #[tokio::test]
    async fn a_caller_ends_with_its_account() {
        let directory = tempfile::tempdir().unwrap();
        let accounts = accounts(directory.path());
        accounts.add(account("ada", 2)).unwrap();
        let caller = accounts.by_token(&Token::from_seed([2; 32])).unwrap();
        tokio::select! {
            () = accounts.ended(&caller) => panic!("it has not ended"),
            () = tokio::task::yield_now() => {}
        }
        accounts.revoke("ada").unwrap();
        accounts.ended(&caller).await;
    }
}
