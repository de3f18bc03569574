//! Runs requests.

use super::answer::Answer;
use super::request::Request;
use crate::uddi::error::{Error, ErrorCode};
use crate::uddi::find::List;
use crate::uddi::publisher::Saved;
use crate::uddi::taxonomy::Taxonomies;
use crate::uddi::{Inquiry, Publisher};

/// Keys in a list for people.
const KEYS_SHOWN: usize = 10;

fn other_port() -> Error {
    Error::new(ErrorCode::Unsupported, "the request is not of this address")
}

/// An answer that changed nothing.
fn read(value: Answer) -> Saved<Answer> {
    Saved {
        value,
        publication: None,
    }
}

impl<T> Saved<T> {
    fn map<U>(self, convert: impl FnOnce(T) -> U) -> Saved<U> {
        Saved {
            value: convert(self.value),
            publication: self.publication,
        }
    }
}

/// The keys of the first values, as texts.
fn some<T>(values: &[T], key: impl Fn(&T) -> Option<String>) -> Vec<String> {
    values.iter().filter_map(key).take(KEYS_SHOWN).collect()
}

impl Request {
    /// The keys of the first entities that it changes, as far as `answer` or the request names them.
    #[must_use]
    pub fn keys(&self, answer: &Answer) -> Vec<String> {
        fn keys<K: ToString>(values: &[K]) -> Vec<String> {
            some(values, |key| Some(key.to_string()))
        }
        match (self, answer) {
            (Self::DeleteBinding(values), _) => keys(values),
            (Self::DeleteBusiness(values), _) => keys(values),
            (Self::DeleteService(values), _) => keys(values),
            (Self::DeleteTModel(values), _) => keys(values),
            (
                Self::AddAssertions(values)
                | Self::DeleteAssertions(values)
                | Self::SetAssertions(values),
                _,
            ) => some(values, |one| {
                Some(format!("{} to {}", one.from_key, one.to_key))
            }),
            (_, Answer::BindingDetail(found)) => {
                some(&found.items, |one| one.key.map(|key| key.to_string()))
            }
            (_, Answer::BusinessDetail(values)) => {
                some(values, |one| one.value.key.map(|key| key.to_string()))
            }
            (_, Answer::ServiceDetail(values)) => {
                some(values, |one| one.key.map(|key| key.to_string()))
            }
            (_, Answer::TModelDetail(values)) => {
                some(values, |one| one.value.key.map(|key| key.to_string()))
            }
            _ => Vec::new(),
        }
    }
}

impl Inquiry {
    /// Runs a request for inquiry; values are validated with `taxonomies`.
    ///
    /// # Errors
    /// Those of the request; `E_unsupported` for one of publication.
    pub fn answer(&self, request: Request, taxonomies: &Taxonomies) -> Result<Answer, Error> {
        Ok(match request {
            Request::FindBinding(ask) => Answer::BindingDetail(self.find_binding(&ask)?),
            Request::FindBusiness(ask) => Answer::BusinessList(match ask.has_criteria() {
                true => self.find_business(&ask)?,
                false => List::empty(),
            }),
            Request::FindRelatedBusinesses(ask) => {
                let found = self.find_related_businesses(&ask)?;
                Answer::RelatedBusinessesList(ask.business_key, found)
            }
            Request::FindService(ask) => Answer::ServiceList(match ask.has_criteria() {
                true => self.find_service(&ask)?,
                false => List::empty(),
            }),
            Request::FindTModel(ask) => Answer::TModelList(self.find_tmodel(&ask)?),
            Request::BindingDetail(keys) => Answer::BindingDetail(List {
                items: self.binding_detail(&keys)?,
                is_truncated: false,
            }),
            Request::BusinessDetail(keys) => Answer::BusinessDetail(self.business_detail(&keys)?),
            Request::BusinessDetailExt(keys) => {
                Answer::BusinessDetailExt(self.business_detail(&keys)?)
            }
            Request::ServiceDetail(keys) => Answer::ServiceDetail(self.service_detail(&keys)?),
            Request::TModelDetail(keys) => Answer::TModelDetail(self.tmodel_detail(&keys)?),
            Request::ValidateValues(values) => {
                taxonomies.validate(&values)?;
                Answer::Success
            }
            _ => return Err(other_port()),
        })
    }
}

impl Publisher<'_> {
    /// Runs a request for publication.
    ///
    /// # Errors
    /// Those of the request; `E_unsupported` for one of inquiry and for those of tokens.
    pub fn answer(&mut self, request: &Request) -> Result<Saved<Answer>, Error> {
        let success = |()| Answer::Success;
        Ok(match request {
            Request::SaveBinding(values) => self.save_binding(values)?.map(|items| {
                Answer::BindingDetail(List {
                    items,
                    is_truncated: false,
                })
            }),
            Request::SaveBusiness(values) => {
                self.save_business(values)?.map(Answer::BusinessDetail)
            }
            Request::SaveService(values) => self.save_service(values)?.map(Answer::ServiceDetail),
            Request::SaveTModel(values) => self.save_tmodel(values)?.map(Answer::TModelDetail),
            Request::DeleteBinding(keys) => self.delete_binding(keys)?.map(success),
            Request::DeleteBusiness(keys) => self.delete_business(keys)?.map(success),
            Request::DeleteService(keys) => self.delete_service(keys)?.map(success),
            Request::DeleteTModel(keys) => self.delete_tmodel(keys)?.map(success),
            Request::AddAssertions(values) => self.add_publisher_assertions(values)?.map(success),
            Request::DeleteAssertions(values) => {
                self.delete_publisher_assertions(values)?.map(success)
            }
            Request::SetAssertions(values) => {
                let name = self.name().to_owned();
                let saved = self.set_publisher_assertions(values)?;
                saved.map(|values| Answer::Assertions(name, values))
            }
            Request::Assertions => read(Answer::Assertions(
                self.name().to_owned(),
                self.publisher_assertions(),
            )),
            Request::AssertionStatusReport(asked) => read(Answer::AssertionStatusReport(
                self.assertion_status_report(*asked),
            )),
            Request::RegisteredInfo => read(Answer::RegisteredInfo(self.registered_info()?)),
            _ => return Err(other_port()),
        })
    }
}
