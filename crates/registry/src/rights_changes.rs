//! Changes in the name of a principal, as far as its rights to the entities allow them.
//!
//! An entity that the principal may not see is treated as if it did not exist. Only a new entity
//! with the key of a hidden one must be refused, with a reason that does not name its owner.

use chappe_identity::Principal;
use oxrdf::Term;

use crate::access::Access;
use crate::entity::{Entity, EntityKind};
use crate::error::Error;
use crate::limits::Room;
use crate::record::Step;
use crate::registry::{Publication, Registry};
use crate::rights::{Right, Rights};
use crate::state::State;
use crate::{uddi, vocabulary};

/// The entity `key`, if the principal has `right` to it.
pub(crate) fn require(
    state: &State,
    key: &str,
    principal: &Principal,
    right: Right,
) -> Result<Entity, Error> {
    let entity = state.get(key);
    let visible = entity.filter(|entity| entity.permits(principal, Right::Read));
    let entity = visible.ok_or_else(|| Error::Unknown(key.to_owned()))?;
    match entity.permits(principal, right) {
        true => Ok(entity),
        false => Err(Error::NoRight {
            key: entity.key,
            owner: entity.owner,
            right,
        }),
    }
}

/// Whether entities of this kind are changed by requests of their own: with a document its tModels and
/// services come and go.
fn has_own_changes(kind: EntityKind) -> bool {
    match kind {
        EntityKind::Document | EntityKind::Thing | EntityKind::Metadata => true,
        EntityKind::Node
        | EntityKind::Device
        | EntityKind::Service
        | EntityKind::Stream
        | EntityKind::VirtualSensor
        | EntityKind::Other => false,
    }
}

impl Registry {
    /// The entity `key`, if `principal` has `right` to it.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none that it may see, [`Error::NoRight`] if it may see it and does
    /// not have the right.
    pub fn require(&self, key: &str, principal: &Principal, right: Right) -> Result<Entity, Error> {
        require(&self.snapshot(), key, principal, right)
    }

    /// Publishes `entity` as [`Registry::publish_within`] does, in the name of `principal`. It replaces an entity
    /// that the principal may write. Of that, owner, access rule and rights remain; those of `entity` are for a
    /// new one. If nothing differs, only the lease is renewed, if there is one.
    ///
    /// # Errors
    /// [`Error::NoRight`], [`Error::KeyTaken`] if an entity that the principal may not see has the key,
    /// [`Error::OtherKind`] if it is that of a document, a thing or a piece of metadata; those of
    /// [`Registry::publish_within`].
    pub fn publish_as(
        &self,
        principal: &Principal,
        entity: &Entity,
        room: &Room,
    ) -> Result<Option<Publication>, Error> {
        entity.validate()?;
        let (publication, renews) = self.transact(room, |state| {
            let mut entity = entity.clone();
            match require(state, &entity.key, principal, Right::Write) {
                Ok(known) => {
                    if known.kind != entity.kind && has_own_changes(known.kind) {
                        let (key, kind) = (known.key, known.kind);
                        return Err(Error::OtherKind { key, kind });
                    }
                    (entity.owner, entity.access, entity.rights) = (
                        known.owner.clone(),
                        known.access.clone(),
                        known.rights.clone(),
                    );
                    if entity == known {
                        return Ok((Vec::new(), entity.lease_s.is_some()));
                    }
                }
                Err(Error::Unknown(key)) if state.rule_of(&key).is_some() => {
                    return Err(Error::KeyTaken(key));
                }
                Err(Error::Unknown(_)) => {}
                Err(error) => return Err(error),
            }
            Ok((vec![Step::Publish(entity)], false))
        })?;
        match renews {
            true => self.renew(&entity.key).map(Some),
            false => Ok(publication),
        }
    }

    /// Publishes new entities in the name of `principal`, all of them or none.
    ///
    /// # Errors
    /// [`Error::KeyTaken`] if there is an entity with one of the keys; those of [`Registry::publish_within`].
    pub fn publish_new_as(
        &self,
        principal: &Principal,
        entities: &[Entity],
        room: &Room,
    ) -> Result<Option<Publication>, Error> {
        for entity in entities {
            entity.validate()?;
        }
        let (publication, ()) = self.transact(room, |state| {
            for entity in entities {
                match require(state, &entity.key, principal, Right::Write) {
                    Err(Error::Unknown(_)) if state.rule_of(&entity.key).is_none() => {}
                    _ => return Err(Error::KeyTaken(entity.key.clone())),
                }
            }
            let steps = entities.iter().cloned().map(Step::Publish).collect();
            Ok::<_, Error>((steps, ()))
        })?;
        Ok(publication)
    }

    /// Removes entities in the name of `principal`, all of them or none; those that do not exist are skipped.
    ///
    /// # Errors
    /// [`Error::NoRight`]; those of [`Registry::remove`].
    pub fn remove_all_as(
        &self,
        principal: &Principal,
        keys: &[String],
    ) -> Result<Option<Publication>, Error> {
        let (publication, ()) = self.transact(&Room::default(), |state| {
            let mut steps = Vec::new();
            for key in keys {
                match require(state, key, principal, Right::Write) {
                    Ok(_) => steps.push(Step::Remove(key.clone())),
                    Err(Error::Unknown(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok::<_, Error>((steps, ()))
        })?;
        Ok(publication)
    }

    /// Removes the entity `key` in the name of `principal`.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoRight`]; those of [`Registry::remove`].
    pub fn remove_as(
        &self,
        principal: &Principal,
        key: &str,
    ) -> Result<Option<Publication>, Error> {
        let (publication, ()) = self.transact(&Room::default(), |state| {
            let entity = require(state, key, principal, Right::Write)?;
            let steps = uddi::draft::removal(state, principal, &entity);
            let steps = steps.unwrap_or_else(|| vec![Step::Remove(key.to_owned())]);
            Ok::<_, Error>((steps, ()))
        })?;
        Ok(publication)
    }

    /// States the rights to the entity `key` in the name of `principal`. Who may read it is then what they
    /// state, whatever its access rule was. `None` of the publication: these are its rights already.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoRight`] without the right to administer it; those of
    /// [`Registry::publish_within`].
    pub fn set_rights(
        &self,
        principal: &Principal,
        key: &str,
        rights: &Rights,
        room: &Room,
    ) -> Result<(Option<Publication>, Entity), Error> {
        let rights = rights.clone().normalized();
        self.transact(room, |state| {
            let known = require(state, key, principal, Right::Administer)?;
            let mut entity = known.clone();
            (entity.access, entity.rights) = (Access::Owner, rights.clone());
            if entity.is_public() && is_about_hidden(state, &entity) {
                return Err(Error::InvalidEntity {
                    field: "rights",
                    reason: "may not be everybody's: the subject is not public".to_owned(),
                });
            }
            let steps = match entity == known {
                true => Vec::new(),
                false => vec![Step::Publish(entity.clone())],
            };
            Ok::<_, Error>((steps, entity))
        })
    }
}

/// Whether it is a piece of metadata about an entity that not everybody may read.
fn is_about_hidden(state: &State, piece: &Entity) -> bool {
    let mut about = piece.triples.iter().filter(|triple| {
        piece.kind == EntityKind::Metadata && triple.predicate == vocabulary::ABOUT
    });
    about.any(|triple| match &triple.object {
        Term::NamedNode(subject) => {
            let rule = state.rule_of(subject.as_str());
            rule.is_some_and(|(rule, _)| !rule.permits(&Principal::Anonymous, Right::Read))
        }
        _ => false,
    })
}
