//! The access rules in use, and the indexes over what each principal may see.
//!
//! Hidden entities are neither read nor counted, nor part of the statistics that order a join: an answer is computed
//! from indexes that hold nothing else than what its reader may see.
//!
//! | indexes | hold | are read by |
//! |---|---|---|
//! | public | what everyone may see | everyone |
//! | hidden | everything else | the operator |
//! | of an owner | what is the owner's and not public | the owner |
//! | of a rule with readers | what that rule covers | each reader other than the owner |
//!
//! So the operator and an owner read two sets of indexes however many rules there are; a reader reads those of each
//! rule that names it, besides. An entity that is not public is in two or three of them.
//!
//! Everything is in ordered sets, so a change under a reader's snapshot copies little, however many rules there are.

use std::sync::Arc;

use chappe_identity::Principal;

use crate::access::Access;
use crate::dictionary::Id;
use crate::error::Error;
use crate::ordered::OrderedSet;
use crate::partition::Partition;
use crate::rights::Rights;

/// Maximum number of distinct access rules. One with readers has its own indexes, some kilobytes when small.
pub(crate) const MAX_ACCESS_GROUPS: usize = 16_384;
/// Maximum number of rules that name one reader: a search reads the indexes of each of them.
pub(crate) const MAX_GROUPS_OF_READER: usize = 256;

/// An access rule with its owner; public entities share one rule, whoever owns them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    owner: String,
    pub(crate) access: Access,
    pub(crate) rights: Rights,
}

impl Rule {
    fn of(owner: &str, access: &Access, rights: &Rights) -> Self {
        let owner = match access {
            Access::Public => "",
            _ => owner,
        };
        Self {
            owner: owner.to_owned(),
            access: access.clone(),
            rights: rights.clone(),
        }
    }

    /// Its readers other than the owner.
    fn readers(&self) -> impl Iterator<Item = &str> {
        let readers = match &self.access {
            Access::Readers(readers) => readers.as_slice(),
            Access::Public | Access::Owner => &[],
        };
        let others = readers.iter().filter(|reader| **reader != self.owner);
        others.map(String::as_str)
    }
}

/// A rule with its number, ordered by rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    rule: Arc<Rule>,
    number: u32,
}

/// A reader with the number of a rule that names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reader {
    name: Arc<str>,
    number: u32,
}

/// The entities that one rule covers, ordered by number.
#[derive(Clone)]
struct Group {
    number: u32,
    rule: Arc<Rule>,
    /// How many.
    entities: usize,
    /// Their indexes, if the rule has readers.
    partition: Option<Arc<Partition>>,
}

/// The entities of one owner, ordered by the owner's number.
#[derive(Clone)]
struct Owned {
    owner: Id,
    bytes: usize,
    /// The indexes of those that are not public, if there are any.
    partition: Option<Arc<Partition>>,
}

/// All rules and indexes.
#[derive(Clone, Default)]
pub(crate) struct Groups {
    public: Arc<Partition>,
    hidden: Arc<Partition>,
    owners: OrderedSet<Owned>,
    groups: OrderedSet<Group>,
    rules: OrderedSet<Numbered>,
    readers: OrderedSet<Reader>,
    free: OrderedSet<u32>,
    given: u32,
}

impl Groups {
    /// The number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let of_owners = self.owners.iter().filter_map(|owned| owned.partition);
        let of_rules = self.groups.iter().filter_map(|group| group.partition);
        let partitions = of_owners.chain(of_rules);
        let partitions = partitions.chain([self.public.clone(), self.hidden.clone()]);
        self.owners.memory_bytes()
            + self.groups.memory_bytes()
            + self.rules.memory_bytes()
            + self.readers.memory_bytes()
            + self.free.memory_bytes()
            + partitions.map(|it| it.memory_bytes()).sum::<usize>()
    }

    /// Checks that there is room for an entity with this rule.
    pub(crate) fn admits(
        &self,
        owner: &str,
        access: &Access,
        rights: &Rights,
    ) -> Result<(), Error> {
        let rule = Rule::of(owner, access, rights);
        if self.number(&rule).is_some() {
            return Ok(());
        }
        if self.len() >= MAX_ACCESS_GROUPS {
            return Err(Error::Full {
                limit: "access rules",
                value: MAX_ACCESS_GROUPS,
            });
        }
        let is_crowded = |reader: &str| {
            let past = |key: &Reader| *key.name <= *reader;
            let count = self.readers.rank(past) - self.readers.rank(|key| *key.name < *reader);
            count >= MAX_GROUPS_OF_READER
        };
        if rule.readers().any(is_crowded) {
            let limit = "access rules that name one reader";
            return Err(Error::Full {
                limit,
                value: MAX_GROUPS_OF_READER,
            });
        }
        Ok(())
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
    pub(crate) fn enter(&mut self, owner: &str, access: &Access, rights: &Rights) -> u32 {
        let rule = Rule::of(owner, access, rights);
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
        for reader in rule.readers() {
            let name = reader.into();
            self.readers.insert(Reader { name, number });
        }
        let has_readers = rule.readers().next().is_some();
        self.rules.insert(Numbered {
            rule: rule.clone(),
            number,
        });
        let group = Group {
            number,
            rule,
            entities: 1,
            partition: has_readers.then(Arc::default),
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
        for reader in rule.readers() {
            let name = reader.into();
            self.readers.remove(&Reader { name, number });
        }
        self.rules.remove(&Numbered { rule, number });
        self.free.insert(number);
    }

    /// Changes all indexes that hold an entity of this rule and owner.
    pub(crate) fn change(
        &mut self,
        number: u32,
        owner: Id,
        mut change: impl FnMut(&mut Partition),
    ) {
        let is_public = self
            .rule(number)
            .is_some_and(|rule| rule.access == Access::Public);
        if is_public {
            return change(Arc::make_mut(&mut self.public));
        }
        change(Arc::make_mut(&mut self.hidden));
        self.update_owned(owner, |owned| {
            change(Arc::make_mut(owned.partition.get_or_insert_default()));
        });
        self.update_group(number, |group| {
            if let Some(partition) = &mut group.partition {
                change(Arc::make_mut(partition));
            }
        });
    }

    fn update_owned(&mut self, owner: Id, change: impl FnOnce(&mut Owned)) {
        let before = |owned: &Owned| owned.owner < owner;
        let wanted = |owned: &Owned| owned.owner == owner;
        if self.owned(owner).is_none() {
            let owned = Owned {
                owner,
                bytes: 0,
                partition: None,
            };
            self.owners.insert_at(before, owned);
        }
        self.owners.update_at(before, wanted, change);
    }

    fn owned(&self, owner: Id) -> Option<&Owned> {
        let found = self.owners.first_from(|owned| owned.owner < owner)?;
        (found.owner == owner).then_some(found)
    }

    /// The bytes of an owner's entities.
    pub(crate) fn bytes_of(&self, owner: Id) -> usize {
        self.owned(owner).map_or(0, |owned| owned.bytes)
    }

    /// Counts the bytes of an owner's entity, before it enters the indexes.
    pub(crate) fn add_bytes(&mut self, owner: Id, bytes: usize) {
        self.update_owned(owner, |owned| owned.bytes += bytes);
    }

    /// The bytes of an owner's entity no longer count, after it left the indexes.
    pub(crate) fn remove_bytes(&mut self, owner: Id, bytes: usize) {
        let mut is_last = false;
        self.update_owned(owner, |owned| {
            owned.bytes -= bytes;
            is_last = owned.bytes == 0;
            let is_empty = |partition: &mut Arc<Partition>| partition.names.len() == 0;
            owned.partition.take_if(is_empty);
        });
        if is_last {
            let before = |owned: &Owned| owned.owner < owner;
            self.owners.remove_at(before, |owned| owned.owner == owner);
        }
    }

    /// The indexes that together hold what `principal` may see, each entity once; none is empty. `own` is the number
    /// of the principal's name, if any entity has it as a text.
    pub(crate) fn visible(&self, principal: &Principal, own: Option<Id>) -> Vec<Arc<Partition>> {
        let mut visible = vec![self.public.clone()];
        match principal {
            Principal::Anonymous => {}
            Principal::Operator => visible.push(self.hidden.clone()),
            Principal::Named(_) | Principal::Member(_) => {
                let name = principal.name().unwrap_or_default();
                let own = own.and_then(|own| self.owned(own));
                visible.extend(own.and_then(|owned| owned.partition.clone()));
                let read = self.readers.iter_from(|key| *key.name < *name);
                let read = read.take_while(|key| *key.name == *name);
                let groups = read.filter_map(|key| self.group(key.number));
                visible.extend(groups.filter_map(|group| group.partition.clone()));
            }
        }
        visible.retain(|partition| partition.names.len() > 0);
        visible
    }
}
