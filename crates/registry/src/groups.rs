//! The access rules in use, and the indexes over what each principal may see.
//!
//! Hidden entities are neither read nor counted, nor part of the statistics that order a join: an answer is computed
//! from indexes that hold nothing else than what its reader may see.
//!
//! | indexes | hold | are read by |
//! |---|---|---|
//! | public | what everybody may see | everybody |
//! | hidden | everything else | the operator |
//! | of a holder | what this account, group, role, or any account may see and not everybody | those whom it covers |
//!
//! An owner is a holder for its own entities. So a question reads the public indexes and those of the account, of its
//! groups and of its roles, however many rules there are. An entity that is not public is in the indexes of each
//! holder, and one principal may find it in several of them: readers drop repetitions.
//!
//! What an entity states of its rights is in the indexes of those who may administer it, apart from the entity.
//!
//! Everything is in ordered sets, so a change under a reader's snapshot copies little, however many rules there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use chappe_identity::{Principal, Role};

use crate::access::Access;
use crate::entity::Entity;
use crate::error::Error;
use crate::ordered::OrderedSet;
use crate::partition::Partition;
use crate::rights::{Holder, Rights, administrators, readers};

/// Maximum number of accounts, groups and roles with indexes of their own, some kilobytes when small.
pub(crate) const MAX_HOLDERS: usize = 16_384;
/// Maximum number of triples of an entity times those who may see it; reason: other changes wait while the indexes
/// of all of them change.
pub(crate) const MAX_COPIED_TRIPLES: usize = 100_000;

/// An access rule with its owner; public entities without stated rights share one rule, whoever owns them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    owner: String,
    pub(crate) access: Access,
    pub(crate) rights: Rights,
}

impl Rule {
    fn of(entity: &Entity) -> Self {
        let owner = match (&entity.access, entity.rights.is_empty()) {
            (Access::Public, true) => "",
            _ => &entity.owner,
        };
        Self {
            owner: owner.to_owned(),
            access: entity.access.clone(),
            rights: entity.rights.clone(),
        }
    }

    fn readers(&self) -> BTreeSet<Holder> {
        match self.access {
            Access::Public => BTreeSet::from([Holder::Everybody]),
            Access::Owner | Access::Readers(_) => readers(&self.owner, &self.access, &self.rights),
        }
    }
}

/// A rule with its number, ordered by rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    rule: Arc<Rule>,
    number: u32,
}

/// A rule, ordered by number.
#[derive(Clone)]
struct Group {
    number: u32,
    rule: Arc<Rule>,
    /// How many entities it covers.
    entities: usize,
}

/// A holder, in order.
#[derive(Clone)]
struct Held {
    holder: Arc<Holder>,
    /// Of the entities that it owns, if it is an account.
    entities: usize,
    bytes: usize,
    /// The indexes of what it may see, if there is anything.
    partition: Option<Arc<Partition>>,
}

/// Part of an entity, with its own readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The entity, for those who may read it.
    Entity,
    /// What it states of its rights, for those who may administer it.
    Rights,
}

/// All rules and indexes.
#[derive(Clone)]
pub(crate) struct Groups {
    public: Arc<Partition>,
    hidden: Arc<Partition>,
    holders: OrderedSet<Held>,
    /// How many of the holders have indexes.
    partitions: usize,
    groups: OrderedSet<Group>,
    rules: OrderedSet<Numbered>,
    free: OrderedSet<u32>,
    given: u32,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            public: Arc::new(Partition::only()),
            hidden: Arc::new(Partition::only()),
            holders: OrderedSet::default(),
            partitions: 0,
            groups: OrderedSet::default(),
            rules: OrderedSet::default(),
            free: OrderedSet::default(),
            given: 0,
        }
    }
}

impl Groups {
    /// The number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let of_holders = self.holders.iter().filter_map(|held| held.partition);
        let partitions = of_holders.chain([self.public.clone(), self.hidden.clone()]);
        self.holders.memory_bytes()
            + self.groups.memory_bytes()
            + self.rules.memory_bytes()
            + self.free.memory_bytes()
            + partitions.map(|it| it.memory_bytes()).sum::<usize>()
    }

    /// Checks that there is room for the indexes of an entity.
    pub(crate) fn admits(&self, entity: &Entity) -> Result<(), Error> {
        let readers = Rule::of(entity).readers();
        let copied = readers.len().saturating_mul(entity.triples.len());
        if copied > MAX_COPIED_TRIPLES {
            return Err(Error::InvalidEntity {
                field: "rights",
                reason: format!(
                    "let {} read {} triples: {copied} copies, more than {MAX_COPIED_TRIPLES} (hint: put the \
                     accounts into a group)",
                    readers.len(),
                    entity.triples.len()
                ),
            });
        }
        let is_new = |holder: &&Holder| {
            let held = self.held(holder);
            **holder != Holder::Everybody && held.is_none_or(|held| held.partition.is_none())
        };
        let administrators = administrators(&entity.owner, &entity.rights);
        let new = readers.union(&administrators).filter(is_new).count();
        match self.partitions + new > MAX_HOLDERS {
            true if new > 0 => Err(Error::Full {
                limit: "accounts, groups and roles that may see what not everybody sees",
                value: MAX_HOLDERS,
            }),
            _ => Ok(()),
        }
    }

    fn number(&self, rule: &Rule) -> Option<u32> {
        let found = self.rules.first_from(|key| *key.rule < *rule)?;
        (*found.rule == *rule).then_some(found.number)
    }

    fn group(&self, number: u32) -> Option<&Group> {
        let found = self.groups.first_from(|group| group.number < number)?;
        (found.number == number).then_some(found)
    }

    fn update_group(&mut self, number: u32, change: impl FnOnce(&mut Group)) {
        let before = |group: &Group| group.number < number;
        let wanted = |group: &Group| group.number == number;
        self.groups.update_at(before, wanted, change);
    }

    /// The rule of this number.
    pub(crate) fn rule(&self, number: u32) -> Option<&Rule> {
        self.group(number).map(|group| &*group.rule)
    }

    /// Counts an entity under its rule; returns the rule's number.
    pub(crate) fn enter(&mut self, entity: &Entity) -> u32 {
        let rule = Rule::of(entity);
        if let Some(number) = self.number(&rule) {
            self.update_group(number, |group| group.entities += 1);
            return number;
        }
        let rule = Arc::new(rule);
        let number = self.free.remove_at(|_| false, |_| true);
        let number = number.unwrap_or_else(|| {
            self.given += 1;
            self.given - 1
        });
        self.rules.insert(Numbered {
            rule: rule.clone(),
            number,
        });
        let group = Group {
            number,
            rule,
            entities: 1,
        };
        let before = |other: &Group| other.number < number;
        self.groups.insert_at(before, group);
        number
    }

    /// An entity under this rule was removed from all indexes.
    pub(crate) fn leave(&mut self, number: u32) {
        let mut is_last = false;
        self.update_group(number, |group| {
            group.entities -= 1;
            is_last = group.entities == 0;
        });
        if !is_last {
            return;
        }
        let before = |group: &Group| group.number < number;
        let removed = self
            .groups
            .remove_at(before, |group| group.number == number);
        let Some(Group { rule, .. }) = removed else {
            return;
        };
        self.rules.remove(&Numbered { rule, number });
        self.free.insert(number);
    }

    /// Changes all indexes that hold this part of an entity of this rule and owner.
    pub(crate) fn change(
        &mut self,
        number: u32,
        owner: &str,
        part: Part,
        mut change: impl FnMut(&mut Partition),
    ) {
        let rule = self.group(number).map(|group| Arc::clone(&group.rule));
        let readers = match (rule, part) {
            (None, _) => return,
            (Some(rule), Part::Entity) => rule.readers(),
            (Some(rule), Part::Rights) => administrators(owner, &rule.rights),
        };
        if readers.contains(&Holder::Everybody) {
            return change(Arc::make_mut(&mut self.public));
        }
        change(Arc::make_mut(&mut self.hidden));
        for holder in readers {
            let (mut before, mut after) = (false, false);
            self.update_held(&holder, |held| {
                before = held.partition.is_some();
                change(Arc::make_mut(held.partition.get_or_insert_default()));
                let is_empty = |partition: &mut Arc<Partition>| partition.is_empty();
                held.partition.take_if(is_empty);
                after = held.partition.is_some();
            });
            self.partitions += usize::from(after);
            self.partitions -= usize::from(before);
        }
    }

    /// Orders what was loaded into the indexes.
    pub(crate) fn order(&mut self) {
        Arc::make_mut(&mut self.public).order();
        Arc::make_mut(&mut self.hidden).order();
        let holders: Vec<Arc<Holder>> = self.holders.iter().map(|held| held.holder).collect();
        for holder in holders {
            self.update_held(&holder, |held| {
                if let Some(partition) = &mut held.partition {
                    Arc::make_mut(partition).order();
                }
            });
        }
    }

    /// Changes a holder, which need not be known, and forgets it if there is nothing left of it.
    fn update_held(&mut self, holder: &Holder, change: impl FnOnce(&mut Held)) {
        let before = |held: &Held| *held.holder < *holder;
        let wanted = |held: &Held| *held.holder == *holder;
        if self.held(holder).is_none() {
            let held = Held {
                holder: Arc::new(holder.clone()),
                entities: 0,
                bytes: 0,
                partition: None,
            };
            self.holders.insert_at(before, held);
        }
        let mut is_unused = false;
        self.holders.update_at(before, wanted, |held| {
            change(held);
            is_unused = held.entities == 0 && held.partition.is_none();
        });
        if is_unused {
            self.holders.remove_at(before, wanted);
        }
    }

    fn held(&self, holder: &Holder) -> Option<&Held> {
        let found = self.holders.first_from(|held| *held.holder < *holder)?;
        (*found.holder == *holder).then_some(found)
    }

    /// The number of an account's entities, and their bytes.
    pub(crate) fn owned_by(&self, owner: &str) -> (usize, usize) {
        let held = self.held(&Holder::Account(owner.to_owned()));
        held.map_or((0, 0), |held| (held.entities, held.bytes))
    }

    /// Counts an owner's entity.
    pub(crate) fn add_owned(&mut self, owner: &str, bytes: usize) {
        self.update_held(&Holder::Account(owner.to_owned()), |held| {
            held.entities += 1;
            held.bytes += bytes;
        });
    }

    /// An owner's entity no longer counts.
    pub(crate) fn remove_owned(&mut self, owner: &str, bytes: usize) {
        self.update_held(&Holder::Account(owner.to_owned()), |held| {
            held.entities -= 1;
            held.bytes -= bytes;
        });
    }

    /// The indexes that together hold what `principal` may see; none is empty. Several may hold the same entity.
    pub(crate) fn visible(&self, principal: &Principal) -> Vec<Arc<Partition>> {
        let mut visible = vec![self.public.clone()];
        match principal {
            Principal::Anonymous => {}
            Principal::Operator => visible.push(self.hidden.clone()),
            Principal::Named(_) | Principal::Member(_) => {
                let name = principal.name().map(str::to_owned);
                let groups = principal.groups().iter().cloned().map(Holder::Group);
                let roles = Role::ALL.into_iter().filter(|role| {
                    let mut has = principal.roles().iter();
                    has.any(|has| has.includes(*role))
                });
                let holders = std::iter::once(Holder::AnyAccount)
                    .chain(name.map(Holder::Account))
                    .chain(groups)
                    .chain(roles.map(Holder::Role));
                let held = holders.filter_map(|holder| self.held(&holder)?.partition.clone());
                visible.extend(held);
            }
        }
        visible.retain(|partition| !partition.is_empty());
        visible
    }
}
