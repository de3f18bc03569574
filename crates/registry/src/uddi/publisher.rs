//! The calls of a publisher, each one batch of changes.

use chappe_identity::Principal;

use super::assertion::{self, AssertionStatus, CompletionStatus};
use super::draft::Draft;
use super::encode::Stamp;
use super::error::{Error, ErrorCode};
use super::find::{BusinessInfo, TModelInfo, business_info};
use super::graph::Graph;
use super::key::{BindingKey, BusinessKey, ServiceKey, TModelKey};
use super::select::names_of;
use super::taxonomy::Taxonomies;
use super::value::{BindingTemplate, BusinessEntity, BusinessService, PublisherAssertion, TModel};
use super::{Owned, save};
use crate::access::Access;
use crate::entity::{Entity, EntityKind};
use crate::limits::{Interrupt, Room};
use crate::record::Step;
use crate::registry::{Publication, Registry};
use crate::time::timestamp;
use crate::uddi_keys::UddiClass;
use crate::vocabulary::uddi;

/// Maximum number of values or keys in one request.
pub const MAX_VALUES: usize = 1_000;

/// What a request did. Its changes are visible and durable once `publication` resolves; there is
/// none if nothing changed.
#[derive(Debug)]
#[must_use = "the changes are acknowledged only when the publication resolves"]
pub struct Saved<T> {
    /// The answer.
    pub value: T,
    /// The changes in flight.
    pub publication: Option<Publication>,
}

impl<T> Saved<T> {
    /// Blocks the calling thread until the changes are durable and visible.
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

/// Everything that a publisher controls (registeredInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredInfo {
    /// Businesses.
    pub businesses: Vec<BusinessInfo>,
    /// tModels, also hidden ones.
    pub tmodels: Vec<TModelInfo>,
}

/// A publisher at the time of a request.
pub struct Publisher<'a> {
    registry: &'a Registry,
    name: &'a str,
    principal: Principal,
    access: Access,
    unix_ms: i64,
    random: &'a mut dyn FnMut() -> u128,
    room: Room,
    taxonomies: Option<&'a Taxonomies>,
    lease_s: Option<u32>,
    leased: Vec<String>,
}

impl<'a> Publisher<'a> {
    /// A request of the publisher `name` at `unix_ms`. What it saves may be read by whom `access`
    /// admits; new keys are made of the bits of `random`.
    pub fn new(
        registry: &'a Registry,
        name: &'a str,
        access: Access,
        unix_ms: i64,
        random: &'a mut dyn FnMut() -> u128,
    ) -> Self {
        Self {
            registry,
            name,
            principal: Principal::Named(name.to_owned()),
            access,
            unix_ms,
            random,
            room: Room::default(),
            taxonomies: None,
            lease_s: None,
            leased: Vec::new(),
        }
    }

    /// Limits what the registry holds after the request; without it there is no limit.
    #[must_use]
    pub fn within(mut self, room: Room) -> Self {
        self.room = room;
        self
    }

    /// Acts with the rights of this principal; without it, with those of an account of its name without groups
    /// and roles.
    #[must_use]
    pub fn acting_as(mut self, principal: Principal) -> Self {
        self.principal = principal;
        self
    }

    /// Checks the values of references; without it none are.
    #[must_use]
    pub fn checking(mut self, taxonomies: &'a Taxonomies) -> Self {
        self.taxonomies = Some(taxonomies);
        self
    }

    /// Gives the services, bindings and documents that it saves a lease of so many seconds. tModels have none:
    /// services of other publishers may refer to them.
    #[must_use]
    pub fn leased(mut self, lease_s: u32) -> Self {
        self.lease_s = Some(lease_s);
        self
    }

    /// The keys of the entities that the last request saved with a lease.
    #[must_use]
    pub fn leased_keys(self) -> Vec<String> {
        self.leased
    }

    /// The publisher's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Runs a request: all its changes, or none.
    pub(crate) fn run<T>(
        &mut self,
        count: usize,
        mut step: impl FnMut(&mut Draft<'_>, &mut save::Random<'_>) -> Result<T, Error>,
    ) -> Result<Saved<T>, Error> {
        if count > MAX_VALUES {
            let detail = format!("{count} values; the limit is {MAX_VALUES}");
            return Err(Error::new(ErrorCode::MessageTooLarge, detail));
        }
        let stamp = Stamp {
            owner: self.name.to_owned(),
            access: self.access.clone(),
            modified: timestamp(self.unix_ms),
        };
        let random = &mut *self.random;
        let (lease_s, leased) = (self.lease_s, &mut self.leased);
        let (publication, value) = self.registry.transact(&self.room, |state| {
            let mut draft = Draft::new(state, &self.principal, stamp.clone(), self.taxonomies);
            let value = step(&mut draft, random)?;
            let mut steps = draft.into_steps();
            leased.clear();
            if lease_s.is_some() {
                let published = steps.iter_mut().filter_map(|step| match step {
                    Step::Publish(entity) => Some(entity),
                    Step::Remove(_) => None,
                });
                for entity in published.filter(|entity| may_be_leased(entity)) {
                    entity.lease_s = lease_s;
                    leased.push(entity.key.clone());
                }
            }
            Ok::<_, Error>((steps, value))
        })?;
        Ok(Saved { value, publication })
    }

    /// save_business.
    ///
    /// # Errors
    /// `E_accountLimitExceeded`, `E_invalidKeyPassed`, `E_invalidProjection`,
    /// `E_invalidValue`, `E_languageError`, `E_nameTooLong`, `E_userMismatch`, `E_valueNotAllowed`, or the
    /// registry's own: `E_busy`, `E_fatalError`, `E_messageTooLarge`.
    pub fn save_business(
        &mut self,
        businesses: &[BusinessEntity],
    ) -> Result<Saved<Vec<Owned<BusinessEntity>>>, Error> {
        self.run(businesses.len(), |draft, random| {
            let keys = businesses
                .iter()
                .map(|one| save::business(draft, random, one));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            Ok(keys
                .into_iter()
                .filter_map(|key| {
                    let (value, authorized_name) = (draft.business(key)?, draft.owner(key));
                    Some(Owned {
                        value,
                        authorized_name,
                    })
                })
                .collect())
        })
    }

    /// save_service.
    ///
    /// # Errors
    /// As [`Publisher::save_business`], without `E_invalidProjection`.
    pub fn save_service(
        &mut self,
        services: &[BusinessService],
    ) -> Result<Saved<Vec<BusinessService>>, Error> {
        self.run(services.len(), |draft, random| {
            let keys = services.iter().map(|one| save::service(draft, random, one));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            Ok(keys
                .into_iter()
                .filter_map(|key| draft.service(key))
                .collect())
        })
    }

    /// save_binding.
    ///
    /// # Errors
    /// As [`Publisher::save_service`].
    pub fn save_binding(
        &mut self,
        bindings: &[BindingTemplate],
    ) -> Result<Saved<Vec<BindingTemplate>>, Error> {
        self.run(bindings.len(), |draft, random| {
            let keys = bindings.iter().map(|one| save::binding(draft, random, one));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            Ok(keys
                .into_iter()
                .filter_map(|key| draft.binding(key))
                .collect())
        })
    }

    /// save_tModel.
    ///
    /// # Errors
    /// As [`Publisher::save_service`].
    pub fn save_tmodel(&mut self, tmodels: &[TModel]) -> Result<Saved<Vec<Owned<TModel>>>, Error> {
        self.run(tmodels.len(), |draft, random| {
            let keys = tmodels.iter().map(|one| save::tmodel(draft, random, one));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            let saved = keys.into_iter().map(|key| {
                let (value, _) = draft.own_tmodel(key)?;
                let authorized_name = draft.owner(key);
                Ok(Owned {
                    value,
                    authorized_name,
                })
            });
            saved.collect()
        })
    }

    /// delete_business: with its services, bindings and all assertions about it.
    ///
    /// # Errors
    /// `E_invalidKeyPassed`, `E_userMismatch`, or the registry's own.
    pub fn delete_business(&mut self, keys: &[BusinessKey]) -> Result<Saved<()>, Error> {
        self.run(keys.len(), |draft, _| {
            keys.iter().try_for_each(|key| {
                draft.own_business(*key)?;
                draft.remove_business(*key);
                Ok(())
            })
        })
    }

    /// delete_service: with its bindings. Projections of it end.
    ///
    /// # Errors
    /// As [`Publisher::delete_business`].
    pub fn delete_service(&mut self, keys: &[ServiceKey]) -> Result<Saved<()>, Error> {
        self.run(keys.len(), |draft, _| {
            keys.iter().try_for_each(|key| {
                draft.own_service(*key)?;
                draft.remove_service(*key);
                Ok(())
            })
        })
    }

    /// delete_binding.
    ///
    /// # Errors
    /// As [`Publisher::delete_business`].
    pub fn delete_binding(&mut self, keys: &[BindingKey]) -> Result<Saved<()>, Error> {
        self.run(keys.len(), |draft, _| {
            keys.iter().try_for_each(|key| {
                draft.own_binding(*key)?;
                draft.remove_binding(*key);
                Ok(())
            })
        })
    }

    /// delete_tModel: hides it from find_tModel. Deleting it twice has no effect.
    ///
    /// # Errors
    /// As [`Publisher::delete_business`].
    pub fn delete_tmodel(&mut self, keys: &[TModelKey]) -> Result<Saved<()>, Error> {
        self.run(keys.len(), |draft, _| {
            keys.iter().try_for_each(|key| {
                let (tmodel, is_hidden) = draft.own_tmodel(*key)?;
                if !is_hidden {
                    draft.put_tmodel(*key, &tmodel, true)?;
                }
                Ok(())
            })
        })
    }

    /// add_publisherAssertions. An assertion that the publisher has already made is left alone.
    ///
    /// # Errors
    /// `E_invalidKeyPassed`, `E_userMismatch`, `E_valueNotAllowed`, or the
    /// registry's own.
    pub fn add_publisher_assertions(
        &mut self,
        assertions: &[PublisherAssertion],
    ) -> Result<Saved<()>, Error> {
        self.run(assertions.len(), |draft, random| {
            assertion::add(draft, random, assertions)
        })
    }

    /// delete_publisherAssertions.
    ///
    /// # Errors
    /// `E_assertionNotFound`, or the registry's own.
    pub fn delete_publisher_assertions(
        &mut self,
        assertions: &[PublisherAssertion],
    ) -> Result<Saved<()>, Error> {
        self.run(assertions.len(), |draft, _| {
            assertion::delete(draft, assertions)
        })
    }

    /// set_publisherAssertions.
    ///
    /// # Errors
    /// As [`Publisher::add_publisher_assertions`].
    pub fn set_publisher_assertions(
        &mut self,
        assertions: &[PublisherAssertion],
    ) -> Result<Saved<Vec<PublisherAssertion>>, Error> {
        self.run(assertions.len(), |draft, random| {
            assertion::set(draft, random, assertions)?;
            Ok(assertions.to_vec())
        })
    }

    /// get_publisherAssertions.
    #[must_use]
    pub fn publisher_assertions(&self) -> Vec<PublisherAssertion> {
        let state = self.registry.snapshot();
        let graph = Graph::new(&state, &self.principal);
        assertion::of_publisher(&graph, self.name)
    }

    /// get_assertionStatusReport: the assertions about businesses of this publisher.
    #[must_use]
    pub fn assertion_status_report(&self, asked: Option<CompletionStatus>) -> Vec<AssertionStatus> {
        let state = self.registry.snapshot();
        let graph = Graph::new(&state, &self.principal);
        assertion::status_report(&graph, self.name, asked)
    }

    /// get_registeredInfo.
    ///
    /// # Errors
    /// `E_messageTooLarge`.
    pub fn registered_info(&self) -> Result<RegisteredInfo, Error> {
        let state = self.registry.snapshot();
        let graph = Graph::limited(&state, &self.principal, &Interrupt::never());
        let businesses = assertion::businesses_of(&graph, self.name).into_iter();
        let tmodels = assertion::owned(&graph, self.name, UddiClass::TModel).into_iter();
        let tmodels = tmodels.filter_map(|id| {
            Some(TModelInfo {
                tmodel_key: graph.key(id)?,
                name: names_of(&graph, id, uddi::NAME).into_iter().next()?,
            })
        });
        let info = RegisteredInfo {
            tmodels: tmodels.collect(),
            businesses: businesses
                .filter_map(|id| business_info(&graph, id, |_| true))
                .collect(),
        };
        graph.check_limits()?;
        Ok(info)
    }
}

/// Whether nothing of another publisher refers to it.
fn may_be_leased(entity: &Entity) -> bool {
    let types = [uddi::SERVICE_TYPE, uddi::BINDING_TYPE];
    entity.kind == EntityKind::Document
        || entity
            .types
            .iter()
            .any(|name| types.contains(&name.as_str()))
}
