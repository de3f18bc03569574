//! Attaches, updates and deletes pieces. Neither the entity nor its other pieces are rewritten.

use chappe_identity::Principal;

use super::error::Error;
use super::piece::{Piece, Value, iri};
use super::wsdl_part;
use crate::access::Access;
use crate::limits::Room;
use crate::record::Step;
use crate::registry::{Publication, Registry};
use crate::rights::{OwnedRule, Right, Rights};
use crate::state::State;
use crate::uddi::{random_uuid, uuid_iri};

/// A piece to attach, or the new state of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The key of a piece to update; `None`: a new one.
    pub key: Option<String>,
    /// The key of the entity that it is about, or the IRI of a part of a WSDL document.
    pub subject: String,
    /// The type of its statement, an IRI.
    pub piece_type: String,
    /// The value.
    pub value: Value,
    /// Who may read and change it. `None`: for a new piece, those who may read the subject read it;
    /// for a known one, as before.
    pub rule: Option<(Access, Rights)>,
    /// Seconds after which it is removed unless its lease is renewed. `None`: a new piece stays, and a known one
    /// keeps the lease that it has. An update renews it.
    pub lease_s: Option<u32>,
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

    /// Attaches a piece (addMetadataToEntity), or updates the one with the key of the draft. A piece
    /// remains its author's when another updates it, who has the right to from its author.
    ///
    /// # Errors
    /// [`Error::UnknownSubject`], [`Error::UnknownPiece`], [`Error::Refused`] without the right to
    /// annotate the subject or to change the piece, [`Error::Invalid`], or the registry's own.
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
            let (access, rights) = self.rule(state, draft, known.as_ref())?;
            let lease_s = draft
                .lease_s
                .or(known.as_ref().and_then(|piece| piece.lease_s));
            let author = known.map_or_else(|| self.name.to_owned(), |piece| piece.author);
            let piece = Piece {
                key: draft.key.clone().unwrap_or_else(|| new_key.clone()),
                subject: draft.subject.clone(),
                piece_type: draft.piece_type.clone(),
                value: draft.value.clone(),
                author,
                date_ms: self.unix_ms,
                access,
                rights,
                lease_s,
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
    /// [`Error::UnknownPiece`], [`Error::Refused`], or the registry's own.
    pub fn delete(&mut self, key: &str) -> Result<Changed<Piece>, Error> {
        let (publication, piece) = self.registry.transact(&self.room, |state| {
            let piece = self.own_piece(state, key)?;
            Ok::<_, Error>((vec![Step::Remove(key.to_owned())], piece))
        })?;
        Ok(Changed {
            value: piece,
            publication,
        })
    }

    /// A piece that the caller may change.
    fn own_piece(&self, state: &State, key: &str) -> Result<Piece, Error> {
        let piece = visible_piece(state, key, &self.reader)?;
        let rule = state.rule_of(key);
        let may = rule.is_some_and(|(rule, _)| rule.permits(&self.reader, Right::Write));
        match may {
            true => Ok(piece),
            false => Err(Error::Refused {
                key: piece.key,
                owner: piece.author,
                right: Right::Write,
            }),
        }
    }

    /// Who may read the piece: by default, those who may read its subject.
    fn rule(
        &self,
        state: &State,
        draft: &Draft,
        known: Option<&Piece>,
    ) -> Result<(Access, Rights), Error> {
        let before = known.map(|piece| (piece.access.clone(), piece.rights.clone()));
        let asked = draft.rule.clone().or(before);
        if wsdl_part::is_part(&draft.subject) {
            return Ok(asked.unwrap_or_default());
        }
        let unknown = || Error::UnknownSubject(draft.subject.clone());
        let (of, _) = state.rule_of(&draft.subject).ok_or_else(unknown)?;
        if !of.permits(&self.reader, Right::Read) {
            return Err(unknown());
        }
        // An update adds nothing to the subject.
        if known.is_none() && !of.permits(&self.reader, Right::Annotate) {
            return Err(Error::Refused {
                key: draft.subject.clone(),
                owner: of.owner,
                right: Right::Annotate,
            });
        }
        let is_public = of.permits(&Principal::Anonymous, Right::Read);
        match asked {
            Some((access, rights)) => {
                let rule = OwnedRule {
                    owner: known.map_or(self.name, |piece| &piece.author).to_owned(),
                    access: access.clone(),
                    rights: rights.clone(),
                };
                // Who may change it may read it.
                if rule.permits(&Principal::Anonymous, Right::Read) && !is_public {
                    let reason = "may not be public: the subject is not";
                    return Err(Error::invalid("access", reason));
                }
                Ok((access, rights))
            }
            None if is_public => Ok((Access::Public, Rights::default())),
            None => Ok(readers_of(of, self.name)),
        }
    }
}

/// The rule of a piece that `author` attaches to what not everybody may read.
fn readers_of(subject: OwnedRule, author: &str) -> (Access, Rights) {
    let mut readers = match subject.access {
        Access::Readers(readers) => readers,
        Access::Public | Access::Owner => Vec::new(),
    };
    readers.push(subject.owner);
    readers.retain(|reader| reader != author);
    let access = match readers.is_empty() {
        true => Access::Owner,
        false => Access::Readers(readers),
    };
    // A greater right includes that to read.
    let read = subject.rights.iter().map(|(_, holder)| holder.clone());
    let rights = Rights {
        read: read.collect(),
        ..Rights::default()
    };
    (access, rights.normalized())
}

/// The piece with this key that `reader` may see, whether or not its subject exists.
pub(crate) fn visible_piece(state: &State, key: &str, reader: &Principal) -> Result<Piece, Error> {
    let unknown = || Error::UnknownPiece(key.chars().take(200).collect());
    let entity = state.get(key).ok_or_else(unknown)?;
    if !entity.permits(reader, Right::Read) {
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
            rule: None,
            lease_s: None,
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
