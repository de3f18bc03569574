//! Optional fields of an entity in a record of version 3, each with a tag.
//!
//! | tag | field | body |
//! |---|---|---|
//! | 1 | [`Entity::rights`] | the lists of holders of each right |
//! | 2 | [`Entity::lease_s`] | the seconds |
//!
//! Fields are in the order of their tags, each at most once, and only if they say something. A later
//! field takes the next tag and needs no new version. A field with an unknown tag is refused, not
//! skipped: it may hide the entity or end it, and a program that does not enforce it must not serve
//! the entity. An unknown tag is what a newer program wrote; that one still reads the journal.

use chappe_identity::Role;
use serde::{Deserialize, Serialize};

use crate::entity::Entity;
use crate::record::RecordError;
use crate::rights::{Holder, Rights};

const RIGHTS: u32 = 1;
const LEASE: u32 = 2;
/// The greatest tag that this program knows.
const LAST: u32 = LEASE;

/// An optional field.
#[derive(Serialize, Deserialize)]
pub(crate) struct Field {
    tag: u32,
    body: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct StoredRights {
    read: Vec<StoredHolder>,
    annotate: Option<Vec<StoredHolder>>,
    write: Vec<StoredHolder>,
    administer: Vec<StoredHolder>,
}

#[derive(Serialize, Deserialize)]
enum StoredHolder {
    Everybody,
    AnyAccount,
    Account(String),
    Group(String),
    Role(String),
}

/// The fields of an entity; none if it has only what version 1 describes.
pub(crate) fn write_fields(entity: &Entity) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    if !entity.rights.is_empty() {
        fields.push(field(RIGHTS, &store_rights(&entity.rights))?);
    }
    if let Some(lease_s) = entity.lease_s {
        fields.push(field(LEASE, &lease_s)?);
    }
    Ok(fields)
}

fn field(tag: u32, value: &impl Serialize) -> Result<Field, String> {
    let body = postcard::to_allocvec(value).map_err(|error| error.to_string())?;
    Ok(Field { tag, body })
}

/// Sets the fields of an entity.
pub(crate) fn read_fields(entity: &mut Entity, fields: Vec<Field>) -> Result<(), RecordError> {
    let mut before = 0;
    for Field { tag, body } in fields {
        if tag <= before {
            return Err(format!("field {tag} of {} is out of order", entity.key).into());
        }
        before = tag;
        let failed = |error: postcard::Error| format!("field {tag} of {}: {error}", entity.key);
        match tag {
            RIGHTS => {
                let stored = postcard::from_bytes(&body).map_err(failed)?;
                entity.rights = restore_rights(stored)?;
            }
            LEASE => entity.lease_s = Some(postcard::from_bytes(&body).map_err(failed)?),
            _ => {
                return Err(RecordError::Newer {
                    what: format!("a field of {}", entity.key),
                    found: tag,
                    known: LAST,
                });
            }
        }
    }
    Ok(())
}

fn store_rights(rights: &Rights) -> StoredRights {
    let list = |holders: &[Holder]| holders.iter().map(store_holder).collect();
    StoredRights {
        read: list(&rights.read),
        annotate: rights.annotate.as_deref().map(list),
        write: list(&rights.write),
        administer: list(&rights.administer),
    }
}

fn store_holder(holder: &Holder) -> StoredHolder {
    match holder {
        Holder::Everybody => StoredHolder::Everybody,
        Holder::AnyAccount => StoredHolder::AnyAccount,
        Holder::Account(name) => StoredHolder::Account(name.clone()),
        Holder::Group(name) => StoredHolder::Group(name.clone()),
        Holder::Role(role) => StoredHolder::Role(role.to_string()),
    }
}

fn restore_rights(stored: StoredRights) -> Result<Rights, String> {
    let list = |holders: Vec<StoredHolder>| {
        let holders = holders.into_iter().map(restore_holder);
        holders.collect::<Result<Vec<Holder>, String>>()
    };
    Ok(Rights {
        read: list(stored.read)?,
        annotate: stored.annotate.map(list).transpose()?,
        write: list(stored.write)?,
        administer: list(stored.administer)?,
    })
}

fn restore_holder(stored: StoredHolder) -> Result<Holder, String> {
    Ok(match stored {
        StoredHolder::Everybody => Holder::Everybody,
        StoredHolder::AnyAccount => Holder::AnyAccount,
        StoredHolder::Account(name) => Holder::Account(name),
        StoredHolder::Group(name) => Holder::Group(name),
        StoredHolder::Role(role) => {
            let role: Result<Role, _> = role.parse();
            Holder::Role(role.map_err(|error| error.to_string())?)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::EntityKind;
    use crate::journal::JournalError;
    use crate::record::{Record, Step};

    fn entity(rights: Rights) -> Entity {
        let mut entity = Entity::new("urn:e", EntityKind::Other, "e");
        entity.rights = rights;
        entity
    }

    fn holder() -> impl Strategy<Value = Holder> {
        prop_oneof![
            Just(Holder::Everybody),
            Just(Holder::AnyAccount),
            "[a-z]{1,3}".prop_map(Holder::Account),
            "[a-z]{1,3}".prop_map(Holder::Group),
            prop::sample::select(Role::ALL.to_vec()).prop_map(Holder::Role),
        ]
    }

    fn rights() -> impl Strategy<Value = Rights> {
        let list = || prop::collection::vec(holder(), 0..4);
        (list(), prop::option::of(list()), list(), list()).prop_map(
            |(read, annotate, write, administer)| Rights {
                read,
                annotate,
                write,
                administer,
            },
        )
    }

    fn with_fields() -> impl Strategy<Value = Entity> {
        let lease = prop::option::of(1..=crate::MAX_LEASE_S);
        (rights(), lease).prop_map(|(rights, lease_s)| {
            let mut entity = entity(rights);
            entity.lease_s = lease_s;
            entity
        })
    }

    fn record() -> impl Strategy<Value = Record> {
        let key = || "urn:[a-z]{1,3}";
        prop_oneof![
            with_fields().prop_map(Record::Publish),
            with_fields().prop_map(Record::Keep),
            prop::collection::vec(with_fields(), 0..4).prop_map(|all| {
                let publish = all.into_iter().map(Step::Publish);
                let remove = Step::Remove("urn:f".to_owned());
                Record::Batch(publish.chain([remove]).collect())
            }),
            prop::collection::vec(key(), 0..3).prop_map(Record::Renew),
            (key(), any::<u64>()).prop_map(|(key, granted)| Record::Expire { key, granted }),
            (key(), any::<u64>(), any::<u64>()).prop_map(|(key, granted, aged_ms)| {
                Record::Leased {
                    key,
                    granted,
                    aged_ms,
                }
            }),
            any::<[u64; 2]>().prop_map(|[since, ms]| Record::Tick { since, ms }),
        ]
    }

    proptest! {
        #[test]
        fn records_with_fields_come_back(record in record()) {
            let mut bytes = record.encode().unwrap();
            prop_assert_eq!(Record::decode(&bytes).unwrap(), record.clone());
            let has_fields = |entity: &Entity| !entity.rights.is_empty() || entity.lease_s.is_some();
            let is_older = matches!(record, Record::Publish(_) | Record::Keep(_) | Record::Batch(_));
            let is_new = record.published().any(has_fields) || !is_older;
            prop_assert_eq!(bytes[0] == 3, is_new);
            if !is_older {
                // Version 2 has no changes of leases.
                bytes[0] = 2;
                prop_assert!(Record::decode(&bytes).is_err());
            }
        }

        /// Damaged records of version 3 are refused, or read as another record; they never panic.
        #[test]
        fn damaged_records_are_harmless(
            record in record(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            end in any::<prop::sample::Index>(),
        ) {
            let mut bytes = record.encode().unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Record::decode(&bytes);
            bytes.truncate(end.index(bytes.len() + 1));
            let _ = Record::decode(&bytes);
        }
    }

    #[test]
    fn fields_of_later_programs_are_refused_by_their_tag() {
        let mut known = entity(Rights::default());
        let later = |tag| {
            vec![Field {
                tag,
                body: vec![1, 2, 3],
            }]
        };
        let mut read = |tag| read_fields(&mut known, later(tag)).unwrap_err().at(5);
        let error = read(7);
        let JournalError::NewerFormat { found, known, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*found, *known), (7, LAST));
        assert!(error.to_string().contains("a field of urn:e"), "{error}");
        let error = Record::decode(&[9]).unwrap_err().at(5).to_string();
        assert!(
            error.contains("record 5") && error.contains("version 9") && error.contains("up to 3"),
            "{error}"
        );
        let error = read(0).to_string();
        assert!(error.contains("out of order"), "{error}");
        let error = read(RIGHTS).to_string();
        assert!(error.contains("field 1 of urn:e"), "{error}");
    }
}
