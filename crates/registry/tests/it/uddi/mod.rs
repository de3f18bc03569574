//! UDDI v2: the clauses of the API specification and of the data structure reference.
//! docs/evidence/uddi-conformance.md lists them with these tests.

mod assertions;
mod batch;
mod canonical;
mod delete;
mod find_binding;
mod find_business;
mod find_service;
mod find_tmodel;
mod get;
mod memory;
mod message;
mod positions;
mod rights;
mod room;
mod round_trip;
mod save;
mod sparql;
mod taxonomies;

use chappe_registry::uddi::{
    BindingTemplate, BusinessEntity, BusinessKey, BusinessService, Endpoint, Error, ErrorCode,
    FindCall, FindQualifiers, Inquiry, KeyedReference, Publisher, ServiceKey, TModel,
    TModelInstanceInfo, TModelKey, Text, UrlType,
};
use chappe_registry::{Access, MemoryJournal, Principal, Registry};

pub(crate) use rights::without_hidden;

/// A registry whose publishers get keys and times in order.
pub(crate) struct Desk {
    pub(crate) registry: Registry,
    pub(crate) journal: MemoryJournal,
    bits: u128,
    /// The time of the next request.
    pub(crate) unix_ms: i64,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let journal = MemoryJournal::new();
        Self {
            registry: Registry::open(journal.clone()).unwrap(),
            journal,
            bits: 0,
            unix_ms: 1_774_000_000_000,
        }
    }

    /// One request of a publisher; a second passes after it.
    pub(crate) fn ask<T>(
        &mut self,
        name: &str,
        request: impl FnOnce(&mut Publisher<'_>) -> T,
    ) -> T {
        let bits = &mut self.bits;
        let mut random = || {
            *bits += 1;
            *bits << 64 | *bits
        };
        let registry = self.registry.clone();
        let (access, time) = (Access::Public, self.unix_ms);
        let mut publisher = Publisher::new(&registry, name, access, time, &mut random);
        self.unix_ms += 1_000;
        request(&mut publisher)
    }

    pub(crate) fn save_business(
        &mut self,
        name: &str,
        business: BusinessEntity,
    ) -> Result<BusinessEntity, Error> {
        let saved = self.ask(name, |publisher| publisher.save_business(&[business]))?;
        Ok(saved.wait()?.remove(0).value)
    }

    pub(crate) fn save_service(
        &mut self,
        name: &str,
        service: BusinessService,
    ) -> Result<BusinessService, Error> {
        let saved = self.ask(name, |publisher| publisher.save_service(&[service]))?;
        Ok(saved.wait()?.remove(0))
    }

    pub(crate) fn save_binding(
        &mut self,
        name: &str,
        binding: BindingTemplate,
    ) -> Result<BindingTemplate, Error> {
        let saved = self.ask(name, |publisher| publisher.save_binding(&[binding]))?;
        Ok(saved.wait()?.remove(0))
    }

    /// The key of a new tModel.
    pub(crate) fn tmodel(&mut self, owner: &str, name: &str) -> TModelKey {
        self.save_tmodel(owner, tmodel(name)).unwrap().key.unwrap()
    }

    pub(crate) fn save_tmodel(&mut self, owner: &str, tmodel: TModel) -> Result<TModel, Error> {
        let saved = self.ask(owner, |publisher| publisher.save_tmodel(&[tmodel]))?;
        Ok(saved.wait()?.remove(0).value)
    }

    /// The key of a new business.
    pub(crate) fn business(&mut self, owner: &str, name: &str) -> BusinessKey {
        let saved = self.save_business(owner, business(name));
        saved.unwrap().key.unwrap()
    }

    /// The key of a new service.
    pub(crate) fn service(&mut self, owner: &str, business: BusinessKey, name: &str) -> ServiceKey {
        let saved = self.save_service(owner, service(business, name));
        saved.unwrap().key.unwrap()
    }

    pub(crate) fn inquiry(&self) -> Inquiry {
        self.registry.uddi(&Principal::Anonymous)
    }
}

pub(crate) fn business(name: &str) -> BusinessEntity {
    BusinessEntity {
        names: vec![Text::plain(name)],
        ..BusinessEntity::default()
    }
}

pub(crate) fn service(business: BusinessKey, name: &str) -> BusinessService {
    BusinessService {
        business_key: Some(business),
        names: vec![Text::plain(name)],
        ..BusinessService::default()
    }
}

pub(crate) fn binding(service: Option<ServiceKey>, tmodels: &[TModelKey]) -> BindingTemplate {
    let info = |key: &TModelKey| TModelInstanceInfo {
        tmodel_key: *key,
        descriptions: Vec::new(),
        details: None,
    };
    BindingTemplate {
        key: None,
        service_key: service,
        descriptions: Vec::new(),
        endpoint: Endpoint::AccessPoint {
            url_type: UrlType::Http,
            address: "http://example.com/".to_owned(),
        },
        tmodels: tmodels.iter().map(info).collect(),
    }
}

pub(crate) fn tmodel(name: &str) -> TModel {
    TModel {
        key: None,
        name: Text::plain(name),
        descriptions: Vec::new(),
        overview_doc: None,
        identifier_bag: Vec::new(),
        category_bag: Vec::new(),
    }
}

pub(crate) fn reference(tmodel: TModelKey, value: &str) -> KeyedReference {
    KeyedReference {
        tmodel_key: Some(tmodel),
        key_name: None,
        key_value: value.to_owned(),
    }
}

pub(crate) fn qualifiers(words: &[&str]) -> FindQualifiers {
    FindQualifiers::parse(FindCall::Business, words.iter().copied()).unwrap()
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.unwrap_err().code
}
