//! Attaches, updates and deletes pieces. Neither the entity nor its other pieces are rewritten.

use chappe_identity::Principal;

use super::error::Error;
use super::piece::{Piece, Value, iri};
use super::wsdl_part;
use crate::access::Access;
use crate::limits::Room;
use crate::record::Step;
use crate::registry::{Publication, Registry};
use crate::state::State;
use crate::uddi::{random_uuid, uuid_iri};

/// A piece to attach, or the new state of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The key of a piece to update; `None`: a new one.
    pub key: Option<String>,
    /// The key of the entity that it is about, or the IRI of a part of a WSDL document.
    pub subject: String,
    /// What it states, an IRI.
    pub piece_type: String,
    /// The value.
    pub value: Value,
    /// Who may read it. `None`: for a new piece, who may read the subject; for a known one, as before.
    pub access: Option<Access>,
}

/// A change that is visible and durable once `publication` resolves.
#[derive(Debug)]
#[must_use = "the change is acknowledged only when the publication resolves"]
pub struct Changed<T> {
    /// The result.
    pub value: T,
    /// The change in flight; `None` if there was nothing to change.
    pub publication: Option<Publication>,
}

impl<T> Changed<T> {
    /// Blocks the calling thread until the change is durable and visible.
    ///
    /// # Errors
    /// The journal's error; then nothing changed.
    pub fn wait(self) -> Result<T, Error> {
        if let Some(publication) = self.publication {
            publication.wait()?;
        }
        Ok(self.value)
    }
}

/// An author at the time of a request.
pub struct Annotator<'a> {
    registry: &'a Registry,
    name: &'a str,
    reader: Principal,
    may_delete_all: bool,
    unix_ms: i64,
    random: &'a mut dyn FnMut() -> u128,
    room: Room,
}

impl<'a> Annotator<'a> {
    /// A request of the account `name`, which sees what `reader` sees, at `unix_ms`. New keys are
    /// made of the bits of `random`.
    pub fn new(
        registry: &'a Registry,
        name: &'a str,
        reader: Principal,
        unix_ms: i64,
        random: &'a mut dyn FnMut() -> u128,
    ) -> Self {
        Self {
            registry,
            name,
            reader,
            may_delete_all: false,
            unix_ms,
            random,
            room: Room::default(),
        }
    }

    /// Limits what the registry holds after the request; without it there is no limit.
    #[must_use]
    pub fn within(mut self, room: Room) -> Self {
        self.room = room;
        self
    }

    /// The account administers the registry: it may delete pieces of others. It may not update
    /// them, because their author would then seem to have written its words.
    #[must_use]
    pub fn administering(mut self, may_delete_all: bool) -> Self {
        self.may_delete_all = may_delete_all;
        self
    }

    /// Attaches a piece (addMetadataToEntity), or updates the one with the key of the draft.
    ///
    /// # Errors
    /// [`Error::UnknownSubject`], [`Error::UnknownPiece`], [`Error::NotAuthor`], [`Error::Invalid`],
    /// or the registry's own.
    pub fn attach(&mut self, draft: &Draft) -> Result<Changed<Piece>, Error> {
        iri("subject", &draft.subject)?;
        let new_key = uuid_iri(random_uuid((self.random)()));
        let (publication, piece) = self.registry.transact(&self.room, |state| {
            let known = match &draft.key {
                None => None,
                Some(key) => Some(self.own_piece(state, key)?),
            };
            if let Some(known) = &known
                && known.subject != draft.subject
            {
                let reason = format!("is not that of the piece, {}", known.subject);
                return Err(Error::invalid("subject", reason));
            }
            let access = self.access(state, draft, known.as_ref())?;
            let piece = Piece {
                key: draft.key.clone().unwrap_or_else(|| new_key.clone()),
                subject: draft.subject.clone(),
                piece_type: draft.piece_type.clone(),
                value: draft.value.clone(),
                author: self.name.to_owned(),
                date_ms: self.unix_ms,
                access,
            };
            Ok::<_, Error>((vec![Step::Publish(piece.to_entity()?)], piece))
        })?;
        Ok(Changed {
            value: piece,
            publication,
        })
    }

    /// Deletes a piece (deleteMetadata). Pieces about it become unreachable, as those of any
    /// subject that does not exist.
    ///
    /// # Errors
    /// [`Error::UnknownPiece`], [`Error::NotAuthor`], or the registry's own.
    pub fn delete(&mut self, key: &str) -> Result<Changed<Piece>, Error> {
        let (publication, piece) = self.registry.transact(&self.room, |state| {
            let piece = visible_piece(state, key, &self.reader)?;
            if piece.author != self.name && !self.may_delete_all {
                return Err(not_author(piece));
            }
            Ok::<_, Error>((vec![Step::Remove(key.to_owned())], piece))
        })?;
        Ok(Changed {
            value: piece,
            publication,
        })
    }

    fn own_piece(&self, state: &State, key: &str) -> Result<Piece, Error> {
        let piece = visible_piece(state, key, &self.reader)?;
        match piece.author == self.name {
            true => Ok(piece),
            false => Err(not_author(piece)),
        }
    }

    /// Who may read the piece: nobody who may not read its subject.
    fn access(&self, state: &State, draft: &Draft, known: Option<&Piece>) -> Result<Access, Error> {
        let asked = draft
            .access
            .clone()
            .or(known.map(|piece| piece.access.clone()));
        if wsdl_part::is_part(&draft.subject) {
            return Ok(asked.unwrap_or_default());
        }
        let rule = state.rule_of(&draft.subject);
        let rule = rule.filter(|(owner, access, _)| access.allows(owner, &self.reader));
        let (owner, access, _) =
            rule.ok_or_else(|| Error::UnknownSubject(draft.subject.clone()))?;
        let of_subject = match access {
            Access::Public => Access::Public,
            Access::Owner if owner == self.name => Access::Owner,
            Access::Owner => Access::Readers(vec![owner]),
            Access::Readers(mut readers) => {
                readers.push(owner);
                Access::Readers(readers)
            }
        };
        match asked {
            Some(Access::Public) if of_subject != Access::Public => {
                let reason = "may not be public: the subject is not";
                Err(Error::invalid("access", reason))
            }
            Some(asked) => Ok(asked),
            None => Ok(of_subject),
        }
    }
}

fn not_author(piece: Piece) -> Error {
    Error::NotAuthor {
        key: piece.key,
        author: piece.author,
    }
}

/// The piece with this key that `reader` may see, whether or not its subject exists.
pub(crate) fn visible_piece(state: &State, key: &str, reader: &Principal) -> Result<Piece, Error> {
    let unknown = || Error::UnknownPiece(key.chars().take(200).collect());
    let entity = state.get(key).ok_or_else(unknown)?;
    if !entity.access.allows(&entity.owner, reader) {
        return Err(unknown());
    }
    Piece::from_entity(entity).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::MemoryJournal;
    use crate::metadata::Criterion;
    use crate::ordered::steps;
    use crate::{Entity, EntityKind};

    /// The keys compared by attaching, updating and deleting a piece and by finding its subject, with
    /// `others` pieces of the same type and value on the same subject.
    fn cost_beside(others: u128) -> [usize; 4] {
        let registry = Registry::open(MemoryJournal::new()).unwrap();
        let subject = "urn:device:7";
        let device = Entity::new(subject, EntityKind::Device, "Pump");
        registry.publish(device).unwrap().wait().unwrap();
        let mut draft = Draft {
            key: None,
            subject: subject.to_owned(),
            piece_type: "urn:trust".to_owned(),
            value: Value::Text("high".to_owned()),
            access: None,
        };
        let mut bits = 0;
        let mut random = || {
            bits += 1;
            bits
        };
        let mut strangers = Annotator::new(&registry, "x", Principal::Operator, 0, &mut random);
        for _ in 0..others {
            strangers.attach(&draft).unwrap().wait().unwrap();
        }
        let mut ada = Annotator::new(&registry, "ada", Principal::Operator, 0, &mut random);
        let mut costs = [0; 4];
        steps::take();
        let piece = ada.attach(&draft).unwrap().wait().unwrap();
        costs[0] = steps::take();
        draft.key = Some(piece.key.clone());
        draft.value = Value::Text("low".to_owned());
        ada.attach(&draft).unwrap().wait().unwrap();
        costs[1] = steps::take();
        let asked = Criterion {
            piece_type: Some("urn:trust".to_owned()),
            authors: vec!["ada".to_owned()],
            ..Criterion::default()
        };
        let metadata = registry.metadata(&Principal::Anonymous);
        let found = metadata.entities(&[asked], None, 10).unwrap();
        assert_eq!(
            (&*found.items, found.entries_read),
            (&[subject.to_owned()][..], 1)
        );
        costs[2] = steps::take();
        ada.delete(&piece.key).unwrap().wait().unwrap();
        costs[3] = steps::take();
        costs
    }

    #[test]
    fn the_cost_does_not_grow_with_the_pieces_of_the_subject() {
        let (few, many) = (cost_beside(10), cost_beside(10_000));
        for (few, many) in few.into_iter().zip(many) {
            // Each search in an ordered set takes some steps more: the logarithm.
            assert!(few > 0 && many <= 4 * few, "{few} and {many} comparisons");
        }
    }
}
