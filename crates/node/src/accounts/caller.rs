//! The caller of a request, and its view of the node.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use chappe_identity::{Principal, Reach, Rights, Role};
use chappe_registry::is_in_scope;
use chappe_stream::Timestamp;

use super::{
    Account, Accounts, AuditCharge, Definitions, OPERATOR, OwnShare, Shares, operator_rights,
};
use crate::catalogue::{AUDIT, Entry};
use crate::devices::Device;
use crate::permits::Tenant;
use crate::shared::Shared;

/// Who sends a request, and what they may do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    principal: Principal,
    rights: Rights,
    /// When the account was created: a later account of the same name is another one.
    since: Timestamp,
    share: OwnShare,
}

impl Caller {
    /// The first administrator.
    pub(crate) fn operator() -> Self {
        Self {
            principal: Principal::Operator,
            rights: operator_rights(),
            since: Timestamp(0),
            share: OwnShare::default(),
        }
    }

    /// An account.
    pub(super) fn of(account: &Account) -> Self {
        Self {
            principal: principal(account),
            rights: account.rights.clone(),
            since: account.created_at,
            share: account.share,
        }
    }

    /// Lets everyone read who has no role for reading.
    pub(crate) fn with_open_reading(mut self) -> Self {
        if self.rights.reach(Role::Read) == Reach::None {
            let mut grants = self.rights.grants().to_vec();
            grants.extend_from_slice(Rights::all(Role::Read).grants());
            self.rights = Rights::new(grants).unwrap_or(self.rights);
        }
        self
    }

    /// The name in the registry and in the audit stream.
    pub(crate) fn name(&self) -> &str {
        self.principal.name().unwrap_or("anonymous")
    }

    /// The account in the file of accounts; `None` for the first administrator and for nobody.
    pub(super) fn account(&self) -> Option<&str> {
        self.principal.name().filter(|name| *name != OPERATOR)
    }

    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// The shares that differ from the configured ones.
    pub(crate) fn share(&self) -> OwnShare {
        self.share
    }

    /// The account with the time of its creation, for [`super::Accounts::of_session`]; `None` for the first
    /// administrator and for nobody.
    pub(crate) fn session(&self) -> Option<String> {
        let name = self.account()?;
        Some(format!("{name} {}", self.since.0))
    }

    /// The groups that the account is in, in order.
    pub(crate) fn groups(&self) -> &[String] {
        self.principal.groups()
    }

    /// Whether the request carried no credential.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.principal == Principal::Anonymous
    }

    /// The roles as text.
    pub(crate) fn roles(&self) -> Vec<String> {
        let grants = self.rights.grants().iter();
        grants.map(ToString::to_string).collect()
    }

    /// How far a role reaches.
    pub(crate) fn reach(&self, role: Role) -> Reach {
        self.rights.reach(role)
    }

    /// Whether the caller may manage accounts and read the audit stream.
    pub(crate) fn administers(&self) -> bool {
        self.reach(Role::Administer) == Reach::All
    }

    /// The principal in whose name the registry is read.
    pub(crate) fn reader(&self) -> Principal {
        match self.administers() {
            true => Principal::Operator,
            false => self.principal.clone(),
        }
    }
}

/// The account in the terms of rights to entities: a role that is restricted to streams does not count.
fn principal(account: &Account) -> Principal {
    let roles = Role::ALL.into_iter();
    let roles = roles.filter(|role| account.rights.reach(*role) == Reach::All);
    Principal::account(account.name.clone(), account.groups.iter().cloned(), roles)
}

/// The streams, devices and entities that a caller has a role for.
pub(crate) struct View<'a> {
    app: &'a Shared,
    caller: &'a Caller,
    role: Role,
    /// Answers about sources and scopes: many streams share a device.
    in_scope: RefCell<HashMap<(String, String), bool>>,
}

impl<'a> View<'a> {
    /// What `caller` may read.
    pub(crate) fn of_reader(app: &'a Shared, caller: &'a Caller) -> Self {
        Self::new(app, caller, Role::Read)
    }

    /// What `caller` has this role for.
    pub(crate) fn new(app: &'a Shared, caller: &'a Caller, role: Role) -> Self {
        Self {
            app,
            caller,
            role,
            in_scope: RefCell::default(),
        }
    }

    /// Whether it is everything except the audit stream.
    pub(crate) fn is_whole(&self) -> bool {
        self.caller.reach(self.role) == Reach::All
    }

    /// Whether it contains a stream, which need not exist. Of a stream that was renamed, the current name decides.
    pub(crate) fn has_stream(&self, name: &str) -> bool {
        match self.app.catalogue.get(name) {
            Some(entry) => self.has(&entry),
            None => self.allows(name, ""),
        }
    }

    /// Whether it contains a stream of this name, whatever stream has or had it.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        name != AUDIT && (self.is_whole() || self.allows(name, ""))
    }

    /// Whether it contains a stream.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        match self.is_whole() && entry.name != AUDIT {
            true => true,
            false => self.allows(&entry.current_name(), &entry.source()),
        }
    }

    /// Whether it would contain a stream that had this name.
    pub(crate) fn has_under_name(&self, entry: &Entry, name: &str) -> bool {
        self.is_whole() && name != AUDIT || self.allows(name, &entry.source())
    }

    fn allows(&self, name: &str, source: &str) -> bool {
        if name == AUDIT {
            return self.caller.administers();
        }
        let in_scope = |scope: &str| {
            let mut known = self.in_scope.borrow_mut();
            let key = (source.to_owned(), scope.to_owned());
            let ask = || {
                self.app
                    .devices
                    .has_scope(source, |it| is_in_scope(scope, it))
            };
            *known.entry(key).or_insert_with(ask)
        };
        self.caller.rights.allow(self.role, name, in_scope)
    }

    /// Whether it contains a device: one that has no streams yet must be in a scope.
    pub(crate) fn has_device(&self, device: &Device) -> bool {
        let by_scope = |scope: &str| device.scopes.iter().any(|it| is_in_scope(scope, it));
        // No stream has an empty name, so that only scopes and whole roles decide.
        self.is_whole()
            || self.caller.rights.allow(self.role, "", by_scope)
            || device
                .streams
                .iter()
                .any(|name| self.allows(&self.app.catalogue.names().current(name), &device.key))
    }

    /// Whether it contains an entity of the registry.
    pub(crate) fn has_entity(&self, entity: &chappe_registry::Entity) -> bool {
        use chappe_registry::EntityKind;
        if self.is_whole() || Some(entity.owner.as_str()) == self.caller.account() {
            return true;
        }
        match entity.kind {
            EntityKind::Node => true,
            EntityKind::Stream => {
                let name = crate::catalogue::stream_name(&entity.key);
                name.is_some_and(|name| self.has_stream(name))
            }
            EntityKind::Device => {
                let device = self.app.devices.get(&entity.key);
                device.is_some_and(|device| self.has_device(&device))
            }
            EntityKind::VirtualSensor => {
                let sensor = self.app.sensors.get(&entity.name);
                sensor.is_some_and(|sensor| self.has_stream(&sensor.stream))
            }
            EntityKind::Service
            | EntityKind::Other
            | EntityKind::Metadata
            | EntityKind::Thing
            | EntityKind::Document => {
                let by_scope = |scope: &str| entity.scopes.iter().any(|it| is_in_scope(scope, it));
                self.caller.rights.allow(self.role, "", by_scope)
            }
        }
    }
}

impl Shares {
    /// The account for which the requests of a caller count; `None` if it has no share: an administrator, and
    /// nobody where there are no accounts.
    pub(crate) fn tenant(&self, accounts: &Accounts, caller: &Caller) -> Option<Tenant> {
        if caller.administers() || caller.is_anonymous() && accounts.all().is_empty() {
            return None;
        }
        let percent = caller.share().requests_percent;
        Some(Tenant {
            name: caller.name().into(),
            percent: percent.unwrap_or(self.rules().requests_percent),
        })
    }

    /// The name for which what a caller writes counts; empty for an administrator.
    pub(crate) fn payer(caller: &Caller) -> String {
        match caller.administers() {
            true => String::new(),
            false => caller.name().to_owned(),
        }
    }

    /// What the streams that a caller defines may be; `None`: no share.
    pub(crate) fn definitions_max_of(&self, caller: &Caller) -> Option<Definitions> {
        let percent = caller.share().streams_percent;
        let percent = percent.unwrap_or(self.rules().streams_percent);
        (!caller.administers()).then(|| Definitions {
            streams: self.streams_max(percent),
            bytes: self.definitions_bytes_max(percent),
        })
    }

    /// Takes the room for the record of a change from its account's share of the audit stream; `None` for an
    /// administrator, which has no share.
    ///
    /// # Errors
    /// The account has used its share; the time until there is room.
    pub(crate) fn begin_change(
        &self,
        caller: &Caller,
        text_bytes: usize,
    ) -> Result<Option<AuditCharge>, Duration> {
        if caller.administers() {
            return Ok(None);
        }
        let percent = caller.share().bytes_percent;
        let percent = percent.unwrap_or(self.rules().bytes_percent);
        let charge = self.audit().take(caller.name(), percent, text_bytes)?;
        Ok(Some(charge))
    }

    /// The part of the room for entities, in bytes or in entities, that a caller has; `None`: no share.
    pub(crate) fn registry_part_of(&self, caller: &Caller, all: usize) -> Option<usize> {
        let percent = caller.share().bytes_percent;
        let percent = percent.unwrap_or(self.rules().bytes_percent);
        (!caller.administers()).then(|| Self::registry_part(percent, all))
    }
}
