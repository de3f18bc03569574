//! Lengths and counts that a save checks.
//!
//! Lengths are in characters, from the tables of the UDDI 2.03 data structure reference. Counts
//! are this registry's own: the specification leaves them to the operator.

use super::error::{Error, ErrorCode};
use super::value::{
    Address, BindingTemplate, BusinessEntity, BusinessService, Contact, Endpoint, KeyedReference,
    OverviewDoc, Reachable, TModel, Text,
};

/// Maximum length of a name.
pub const MAX_NAME_CHARACTERS: usize = 255;
/// Maximum length of a description, URL, person's name, use type, key name, key value, e-mail
/// address, access point or parameter text.
pub const MAX_TEXT_CHARACTERS: usize = 255;
/// Maximum length of a phone number.
pub const MAX_PHONE_CHARACTERS: usize = 50;
/// Maximum length of a line of an address.
pub const MAX_ADDRESS_LINE_CHARACTERS: usize = 80;
/// Maximum length of a sort code.
pub const MAX_SORT_CODE_CHARACTERS: usize = 10;
/// Maximum number of elements in one list; reason: an entity has at most 10,000 triples, and the
/// largest element of a list has about ten.
pub const MAX_ELEMENTS: usize = 500;

/// Maximum number of services of a business, or of bindings of a service, in one request.
pub const MAX_CHILDREN: usize = 10_000;

/// Checks the number of children.
pub(crate) fn children(field: &str, found: usize) -> Result<(), Error> {
    if found <= MAX_CHILDREN {
        return Ok(());
    }
    let detail = format!("{found} elements {field}; the limit is {MAX_CHILDREN}");
    Err(Error::new(ErrorCode::AccountLimitExceeded, detail))
}

fn text(field: &str, value: &str, limit: usize) -> Result<(), Error> {
    let characters = value.chars().count();
    if characters <= limit {
        return Ok(());
    }
    let detail = format!("{field} has {characters} characters; the limit is {limit}");
    Err(Error::new(ErrorCode::ValueNotAllowed, detail))
}

fn optional(field: &str, value: Option<&String>, limit: usize) -> Result<(), Error> {
    value.map_or(Ok(()), |value| text(field, value, limit))
}

fn count(field: &str, found: usize) -> Result<(), Error> {
    if found <= MAX_ELEMENTS {
        return Ok(());
    }
    let detail = format!("{found} elements {field}; the limit is {MAX_ELEMENTS}");
    Err(Error::new(ErrorCode::AccountLimitExceeded, detail))
}

/// Each language occurs once, and so does none.
fn languages(field: &str, texts: &[Text]) -> Result<(), Error> {
    for (at, text) in texts.iter().enumerate() {
        let mut earlier = texts.iter().take(at);
        if earlier.any(|earlier| earlier.language == text.language) {
            let language = text.language.as_ref();
            let language = language.map_or("no language", super::value::Language::as_str);
            let detail = format!("two elements {field} have {language}");
            return Err(Error::new(ErrorCode::LanguageError, detail));
        }
    }
    Ok(())
}

fn names(all: &[Text]) -> Result<(), Error> {
    count("name", all.len())?;
    for name in all {
        let characters = name.text.chars().count();
        if characters > MAX_NAME_CHARACTERS {
            let detail =
                format!("a name has {characters} characters; the limit is {MAX_NAME_CHARACTERS}");
            return Err(Error::new(ErrorCode::NameTooLong, detail));
        }
        if name.text.trim().is_empty() {
            return Err(Error::new(ErrorCode::ValueNotAllowed, "a name is empty"));
        }
    }
    languages("name", all)
}

fn descriptions(all: &[Text]) -> Result<(), Error> {
    count("description", all.len())?;
    for description in all {
        text("description", &description.text, MAX_TEXT_CHARACTERS)?;
    }
    languages("description", all)
}

fn bag(field: &str, references: &[KeyedReference]) -> Result<(), Error> {
    count(field, references.len())?;
    references.iter().try_for_each(reference)
}

/// Checks a reference.
pub(crate) fn reference(reference: &KeyedReference) -> Result<(), Error> {
    optional("keyName", reference.key_name.as_ref(), MAX_TEXT_CHARACTERS)?;
    text("keyValue", &reference.key_value, MAX_TEXT_CHARACTERS)
}

fn overview(document: Option<&OverviewDoc>) -> Result<(), Error> {
    let Some(document) = document else {
        return Ok(());
    };
    descriptions(&document.descriptions)?;
    optional("overviewURL", document.url.as_ref(), MAX_TEXT_CHARACTERS)
}

fn reachable(field: &str, all: &[Reachable], limit: usize) -> Result<(), Error> {
    count(field, all.len())?;
    all.iter().try_for_each(|one| {
        optional("useType", one.use_type.as_ref(), MAX_TEXT_CHARACTERS)?;
        text(field, &one.value, limit)
    })
}

fn address(address: &Address) -> Result<(), Error> {
    optional("useType", address.use_type.as_ref(), MAX_TEXT_CHARACTERS)?;
    let sort_code = address.sort_code.as_ref();
    optional("sortCode", sort_code, MAX_SORT_CODE_CHARACTERS)?;
    count("addressLine", address.lines.len())?;
    address.lines.iter().try_for_each(|line| {
        optional("keyName", line.key_name.as_ref(), MAX_TEXT_CHARACTERS)?;
        optional("keyValue", line.key_value.as_ref(), MAX_TEXT_CHARACTERS)?;
        text("addressLine", &line.text, MAX_ADDRESS_LINE_CHARACTERS)
    })
}

fn contact(contact: &Contact) -> Result<(), Error> {
    optional("useType", contact.use_type.as_ref(), MAX_TEXT_CHARACTERS)?;
    descriptions(&contact.descriptions)?;
    text("personName", &contact.person_name, MAX_TEXT_CHARACTERS)?;
    reachable("phone", &contact.phones, MAX_PHONE_CHARACTERS)?;
    reachable("email", &contact.emails, MAX_TEXT_CHARACTERS)?;
    count("address", contact.addresses.len())?;
    contact.addresses.iter().try_for_each(address)
}

/// Checks a business without its services.
pub(crate) fn business(business: &BusinessEntity) -> Result<(), Error> {
    if business.names.is_empty() {
        let detail = "a businessEntity has no name";
        return Err(Error::new(ErrorCode::ValueNotAllowed, detail));
    }
    names(&business.names)?;
    descriptions(&business.descriptions)?;
    count("discoveryURL", business.discovery_urls.len())?;
    for discovery in &business.discovery_urls {
        text("useType", &discovery.use_type, MAX_TEXT_CHARACTERS)?;
        text("discoveryURL", &discovery.url, MAX_TEXT_CHARACTERS)?;
    }
    count("contact", business.contacts.len())?;
    business.contacts.iter().try_for_each(contact)?;
    bag("identifierBag", &business.identifier_bag)?;
    bag("categoryBag", &business.category_bag)
}

/// Checks a service without its bindings.
pub(crate) fn service(service: &BusinessService) -> Result<(), Error> {
    names(&service.names)?;
    descriptions(&service.descriptions)?;
    bag("categoryBag", &service.category_bag)
}

/// Checks a binding.
pub(crate) fn binding(binding: &BindingTemplate) -> Result<(), Error> {
    descriptions(&binding.descriptions)?;
    if let Endpoint::AccessPoint { address, .. } = &binding.endpoint {
        text("accessPoint", address, MAX_TEXT_CHARACTERS)?;
    }
    count("tModelInstanceInfo", binding.tmodels.len())?;
    binding.tmodels.iter().try_for_each(|info| {
        descriptions(&info.descriptions)?;
        let Some(details) = &info.details else {
            return Ok(());
        };
        descriptions(&details.descriptions)?;
        overview(details.overview_doc.as_ref())?;
        let parameters = details.parameters.as_ref();
        optional("instanceParms", parameters, MAX_TEXT_CHARACTERS)
    })
}

/// Checks a tModel.
pub(crate) fn tmodel(tmodel: &TModel) -> Result<(), Error> {
    names(std::slice::from_ref(&tmodel.name))?;
    descriptions(&tmodel.descriptions)?;
    overview(tmodel.overview_doc.as_ref())?;
    bag("identifierBag", &tmodel.identifier_bag)?;
    bag("categoryBag", &tmodel.category_bag)
}
