//! validate_values as a client: services of others decide which values references may have.
//!
//! Source: UDDI 2.04 API specification, validate_values: a registry sends the entities that refer to a checked
//! value set to the one service that checks it, which answers with a dispositionReport. Sending is the caller's.

use std::collections::BTreeSet;

use chappe_soap::v1_1::{self, Envelope};
use chappe_xml::{Element, Limits, Name};

use super::request::{GENERIC, NAMESPACE, Request};
use super::write;
use crate::uddi::error::{Error, ErrorCode, KeyType};
use crate::uddi::key::TModelKey;
use crate::uddi::taxonomy::Values;
use crate::uddi::value::{BusinessService, KeyedReference};

/// Characters of a checker's reason in an error.
const REASON_CHARACTERS: usize = 200;

impl Request {
    /// The entities whose references are checked before the request is run; `None`: it has none.
    #[must_use]
    pub fn checked_values(&self) -> Option<Values> {
        let mut values = Values::default();
        match self {
            Self::ValidateValues(all) => values = all.clone(),
            Self::SaveBusiness(businesses) => values.businesses.clone_from(businesses),
            Self::SaveService(services) => values.services.clone_from(services),
            Self::SaveTModel(tmodels) => values.tmodels.clone_from(tmodels),
            _ => return None,
        }
        Some(values)
    }
}

fn refers(bag: &[KeyedReference], to: &impl Fn(TModelKey) -> bool) -> bool {
    bag.iter().filter_map(|it| it.tmodel_key).any(to)
}

fn any_service(services: &[BusinessService], to: &impl Fn(TModelKey) -> bool) -> bool {
    services.iter().any(|it| refers(&it.category_bag, to))
}

impl Values {
    /// Those entities that refer to a tModel that `to` accepts.
    fn referring(&self, to: &impl Fn(TModelKey) -> bool) -> Self {
        let mut found = self.clone();
        found.businesses.retain(|it| {
            refers(&it.identifier_bag, to)
                || refers(&it.category_bag, to)
                || any_service(&it.services, to)
        });
        found.services.retain(|it| refers(&it.category_bag, to));
        found
            .tmodels
            .retain(|it| refers(&it.identifier_bag, to) || refers(&it.category_bag, to));
        found
    }

    /// The tModels to which the entities refer.
    #[must_use]
    pub fn referred(&self) -> BTreeSet<TModelKey> {
        let services = self.businesses.iter().flat_map(|it| &it.services);
        let services = services.chain(&self.services).map(|it| &it.category_bag);
        let businesses = self.businesses.iter();
        let businesses = businesses.flat_map(|it| [&it.identifier_bag, &it.category_bag]);
        let tmodels = self.tmodels.iter();
        let tmodels = tmodels.flat_map(|it| [&it.identifier_bag, &it.category_bag]);
        let bags = services.chain(businesses).chain(tmodels);
        bags.flatten().filter_map(|it| it.tmodel_key).collect()
    }

    /// The SOAP message that asks the checker of `tmodel`, with the entities that refer to it.
    #[must_use]
    pub fn to_text(&self, tmodel: TModelKey) -> String {
        let of = self.referring(&|key| key == tmodel);
        let message = Element::new(Name::new(NAMESPACE, "validate_values"))
            .with_namespace("", NAMESPACE)
            .with_attribute(Name::local("generic"), GENERIC.to_owned());
        let businesses = of.businesses.iter().map(|it| write::business_alone(it, ""));
        let services = of.services.iter().map(write::service_alone);
        let tmodels = of.tmodels.iter().map(|it| write::tmodel_alone(it, ""));
        v1_1::to_text(message.with_children(businesses.chain(services).chain(tmodels)))
    }
}

/// Reads the answer of the checker of `tmodel`.
///
/// # Errors
/// `E_invalidValue` and `E_valueNotAllowed` as the checker says; `E_unvalidatable` for every other answer.
pub fn read_validation(document: &[u8], limits: Limits, tmodel: TModelKey) -> Result<(), Error> {
    let unusable = |why: &str| {
        let detail = format!("the checker of tModelKey {tmodel} {why}");
        Error::of_key(ErrorCode::Unvalidatable, KeyType::TModel, detail)
    };
    let envelope = Envelope::parse(document, limits);
    let body = envelope
        .map_err(|error| unusable(&format!("does not answer in SOAP 1.1: {error}")))?
        .body;
    let is_report = |element: &Element| element.name.is(NAMESPACE, "dispositionReport");
    let detail = body.elements().find(|it| &*it.name.local == "detail");
    let report = match is_report(&body) {
        true => Some(&body),
        false => detail.and_then(|detail| detail.elements().find(|it| is_report(it))),
    };
    let report = report.ok_or_else(|| unusable("answers without a dispositionReport"))?;
    let errno = Name::local("errno");
    let is_failure = |result: &&Element| {
        let number = result.attribute(&errno).unwrap_or_default().trim();
        number.parse::<u32>() != Ok(0)
    };
    let results = || {
        let all = report.elements();
        all.filter(|it| it.name.is(NAMESPACE, "result"))
    };
    let Some(failure) = results().find(is_failure) else {
        return match results().next() {
            Some(_) => Ok(()),
            None => Err(unusable("answers without a result")),
        };
    };
    let info = failure.child(&Name::new(NAMESPACE, "errInfo"));
    let code = info.and_then(|info| info.attribute(&Name::local("errCode")));
    let reason = info.map(|info| info.text().trim().chars().take(REASON_CHARACTERS).collect());
    let reason: String = reason.unwrap_or_default();
    let known = [ErrorCode::InvalidValue, ErrorCode::ValueNotAllowed];
    match known.into_iter().find(|one| Some(one.as_str()) == code) {
        Some(code) => {
            let detail = format!("the checker of tModelKey {tmodel} says: {reason}");
            Err(Error::of_key(code, KeyType::TModel, detail))
        }
        None => {
            let code: String = code.unwrap_or_default().chars().take(40).collect();
            Err(unusable(&format!("answers {code}: {reason}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uddi::message::{Port, receive};
    use crate::uddi::value::{BusinessEntity, Text};

    const COLOURS: TModelKey = TModelKey::new(7);

    fn reference(key: u128) -> KeyedReference {
        KeyedReference {
            tmodel_key: Some(TModelKey::new(key)),
            key_name: None,
            key_value: "red".to_owned(),
        }
    }

    fn business(name: &str, key: u128) -> BusinessEntity {
        BusinessEntity {
            names: vec![Text::plain(name)],
            services: vec![BusinessService {
                names: vec![Text::plain("inside")],
                category_bag: vec![reference(key)],
                ..BusinessService::default()
            }],
            ..BusinessEntity::default()
        }
    }

    #[test]
    fn a_checker_gets_the_entities_that_refer_to_its_tmodel() {
        let values = Values {
            businesses: vec![business("one", 7), business("two", 8)],
            ..Values::default()
        };
        let keys: Vec<_> = values.referred().into_iter().collect();
        assert_eq!(keys, [COLOURS, TModelKey::new(8)]);
        let text = values.to_text(COLOURS);
        // A registry of UDDI reads it as its own validate_values.
        let read = receive(text.as_bytes(), Limits::default(), Port::Inquiry, "x").unwrap();
        let Request::ValidateValues(sent) = read.request else {
            panic!("{text}");
        };
        assert_eq!(sent.businesses, [business("one", 7)]);
        assert_eq!((sent.services, sent.tmodels), (Vec::new(), Vec::new()));
    }

    fn answer(errno: u32, code: &str) -> Option<(ErrorCode, String)> {
        let report = format!(
            "<dispositionReport xmlns='{NAMESPACE}' generic='2.0' operator='x'><result errno='{errno}'>\
             <errInfo errCode='{code}'>no such colour</errInfo></result></dispositionReport>"
        );
        let body = match errno {
            0 => report,
            _ => format!(
                "<s:Fault><faultcode>s:Client</faultcode><faultstring>x</faultstring>\
                 <detail>{report}</detail></s:Fault>"
            ),
        };
        read(&body).err().map(|error| (error.code, error.detail))
    }

    fn read(body: &str) -> Result<(), Error> {
        let text = format!(
            "<s:Envelope xmlns:s='{}'><s:Body>{body}</s:Body></s:Envelope>",
            v1_1::NAMESPACE
        );
        read_validation(text.as_bytes(), Limits::default(), COLOURS)
    }

    #[test]
    fn a_checker_decides() {
        assert_eq!(answer(0, "E_success"), None);
        for (errno, name, code) in [
            (20200, "E_invalidValue", ErrorCode::InvalidValue),
            (20210, "E_valueNotAllowed", ErrorCode::ValueNotAllowed),
            (10400, "E_busy", ErrorCode::Unvalidatable),
            (1, "E_else", ErrorCode::Unvalidatable),
        ] {
            let (found, detail) = answer(errno, name).unwrap();
            assert_eq!(found, code, "{detail}");
            assert!(detail.contains("no such colour"), "{detail}");
        }
        for body in [
            "<x/>",
            "<s:Fault><faultcode>s:Server</faultcode></s:Fault>",
            &format!("<dispositionReport xmlns='{NAMESPACE}'/>"),
            &format!("<dispositionReport xmlns='{NAMESPACE}'><result/></dispositionReport>"),
        ] {
            assert_eq!(
                read(body).unwrap_err().code,
                ErrorCode::Unvalidatable,
                "{body}"
            );
        }
        let page = read_validation(b"<html>", Limits::default(), COLOURS);
        assert_eq!(page.unwrap_err().code, ErrorCode::Unvalidatable);
    }
}
