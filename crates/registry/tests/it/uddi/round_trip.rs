//! Goal: what is saved comes back element for element: from memory and from the journal.
//! Method: arbitrary values within the limits; keys aside, the answer of the save equals the
//! request, and the details before and after reopening equal the answer.

use chappe_registry::uddi::message::{Answer, Request};
use chappe_registry::uddi::{
    Address, AddressLine, BindingTemplate, BusinessEntity, BusinessService, Contact, DiscoveryUrl,
    Endpoint, InstanceDetails, KeyedReference, Language, OverviewDoc, Owned, Reachable, TModel,
    TModelInstanceInfo, TModelKey, Text, UrlType,
};
use chappe_registry::{Principal, Registry};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::message::resaved;
use super::{Desk, tmodel};

/// A tModel that exists: the strategies name tModels by number.
const TMODELS: u128 = 3;

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9 %\"\\\\<&äÖ\u{1F600}\n]{0,12}",
        Just(String::new())
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-ZÄß0-9%]{1,12}"
}

/// Texts in different languages, one of them perhaps without.
fn texts(text: impl Strategy<Value = String>, least: usize) -> impl Strategy<Value = Vec<Text>> {
    let languages = Just(vec![
        None,
        Some("en"),
        Some("en-us"),
        Some("de"),
        Some("zh-hant-tw"),
    ]);
    (languages.prop_shuffle(), vec(text, least..4)).prop_map(|(languages, texts)| {
        let pairs = languages.into_iter().zip(texts);
        pairs
            .map(|(language, text)| Text {
                language: language.and_then(Language::parse),
                text,
            })
            .collect()
    })
}

fn tmodel_key() -> impl Strategy<Value = TModelKey> {
    (0..TMODELS).prop_map(TModelKey::new)
}

fn references() -> impl Strategy<Value = Vec<KeyedReference>> {
    let reference = (tmodel_key(), of(word()), word());
    let reference = reference.prop_map(|(key, key_name, key_value)| KeyedReference {
        tmodel_key: Some(key),
        key_name,
        key_value,
    });
    vec(reference, 0..4)
}

fn reachable() -> impl Strategy<Value = Vec<Reachable>> {
    let one = (of(word()), word()).prop_map(|(use_type, value)| Reachable { use_type, value });
    vec(one, 0..3)
}

fn address() -> impl Strategy<Value = Address> {
    let line =
        (of(word()), of(word()), word()).prop_map(|(key_name, key_value, text)| AddressLine {
            key_name,
            key_value,
            text,
        });
    let sort_code = of("[a-z]{0,10}");
    (of(word()), sort_code, of(tmodel_key()), vec(line, 0..3)).prop_map(
        |(use_type, sort_code, tmodel_key, lines)| Address {
            use_type,
            sort_code,
            tmodel_key,
            lines,
        },
    )
}

fn contact() -> impl Strategy<Value = Contact> {
    let parts = (
        of(word()),
        texts(word(), 0),
        word(),
        reachable(),
        reachable(),
        vec(address(), 0..3),
    );
    parts.prop_map(
        |(use_type, descriptions, person_name, phones, emails, addresses)| Contact {
            use_type,
            descriptions,
            person_name,
            phones,
            emails,
            addresses,
        },
    )
}

fn overview() -> impl Strategy<Value = OverviewDoc> {
    (texts(word(), 0), of(word())).prop_map(|(descriptions, url)| OverviewDoc { descriptions, url })
}

fn instance() -> impl Strategy<Value = TModelInstanceInfo> {
    let details = (texts(word(), 0), of(overview()), of(word()));
    let details = details.prop_map(|(descriptions, overview_doc, parameters)| InstanceDetails {
        descriptions,
        overview_doc,
        parameters,
    });
    (tmodel_key(), texts(word(), 0), of(details)).prop_map(|(tmodel_key, descriptions, details)| {
        TModelInstanceInfo {
            tmodel_key,
            descriptions,
            details,
        }
    })
}

fn binding() -> impl Strategy<Value = BindingTemplate> {
    let url_type = proptest::sample::select(&UrlType::ALL[..]);
    (texts(word(), 0), url_type, word(), vec(instance(), 0..3)).prop_map(
        |(descriptions, url_type, address, tmodels)| BindingTemplate {
            key: None,
            service_key: None,
            descriptions,
            endpoint: Endpoint::AccessPoint { url_type, address },
            tmodels,
        },
    )
}

fn service() -> impl Strategy<Value = BusinessService> {
    let parts = (
        texts(name(), 0),
        texts(word(), 0),
        vec(binding(), 0..3),
        references(),
    );
    parts.prop_map(
        |(names, descriptions, bindings, category_bag)| BusinessService {
            key: None,
            business_key: None,
            names,
            descriptions,
            bindings,
            category_bag,
        },
    )
}

fn business() -> impl Strategy<Value = BusinessEntity> {
    let url = (word(), word()).prop_map(|(use_type, url)| DiscoveryUrl { use_type, url });
    let parts = (
        vec(url, 0..3),
        texts(name(), 1),
        texts(word(), 0),
        vec(contact(), 0..3),
        vec(service(), 0..3),
        references(),
        references(),
    );
    parts.prop_map(
        |(discovery_urls, names, descriptions, contacts, services, identifiers, categories)| {
            BusinessEntity {
                key: None,
                discovery_urls,
                names,
                descriptions,
                contacts,
                services,
                identifier_bag: identifiers,
                category_bag: categories,
            }
        },
    )
}

fn arbitrary_tmodel() -> impl Strategy<Value = TModel> {
    let parts = (
        texts(name(), 1),
        texts(word(), 0),
        of(overview()),
        references(),
        references(),
    );
    parts.prop_map(
        |(names, descriptions, overview_doc, identifiers, categories)| TModel {
            key: None,
            name: names.into_iter().next().unwrap(),
            descriptions,
            overview_doc,
            identifier_bag: identifiers,
            category_bag: categories,
        },
    )
}

/// Without the keys that a save gives.
fn without_keys(mut business: BusinessEntity) -> BusinessEntity {
    business.key = None;
    for service in &mut business.services {
        service.key = None;
        service.business_key = None;
        for binding in &mut service.bindings {
            binding.key = None;
            binding.service_key = None;
        }
    }
    business
}

/// Replaces the numbers of tModels by keys.
fn renumber(business: &mut BusinessEntity, keys: &[TModelKey]) {
    use chappe_registry::uddi::Key;
    let real = |key: &mut TModelKey| *key = keys[key.uuid() as usize];
    let bag = |bag: &mut Vec<KeyedReference>| {
        let references = bag.iter_mut();
        references
            .filter_map(|one| one.tmodel_key.as_mut())
            .for_each(real);
    };
    bag(&mut business.identifier_bag);
    bag(&mut business.category_bag);
    let contacts = business.contacts.iter_mut();
    let addresses = contacts.flat_map(|contact| &mut contact.addresses);
    addresses
        .filter_map(|address| address.tmodel_key.as_mut())
        .for_each(real);
    for service in &mut business.services {
        bag(&mut service.category_bag);
        let infos = service
            .bindings
            .iter_mut()
            .flat_map(|binding| &mut binding.tmodels);
        infos.for_each(|info| real(&mut info.tmodel_key));
    }
}

/// Removes the white space around the texts of elements, which messages do not keep.
fn trim(business: &mut BusinessEntity) {
    fn cut(text: &mut String) {
        *text = text.trim_matches([' ', '\t', '\r', '\n']).to_owned();
    }
    let texts = |texts: &mut Vec<Text>| texts.iter_mut().for_each(|text| cut(&mut text.text));
    let overview = |document: &mut OverviewDoc| {
        texts(&mut document.descriptions);
        document.url.iter_mut().for_each(cut);
    };
    texts(&mut business.descriptions);
    business
        .discovery_urls
        .iter_mut()
        .for_each(|one| cut(&mut one.url));
    for contact in &mut business.contacts {
        texts(&mut contact.descriptions);
        cut(&mut contact.person_name);
        let reachable = contact.phones.iter_mut().chain(&mut contact.emails);
        reachable.for_each(|one| cut(&mut one.value));
        let lines = contact
            .addresses
            .iter_mut()
            .flat_map(|address| &mut address.lines);
        lines.for_each(|line| cut(&mut line.text));
    }
    for service in &mut business.services {
        texts(&mut service.descriptions);
        for binding in &mut service.bindings {
            texts(&mut binding.descriptions);
            if let Endpoint::AccessPoint { address, .. } = &mut binding.endpoint {
                cut(address);
            }
            for info in &mut binding.tmodels {
                texts(&mut info.descriptions);
                let Some(details) = &mut info.details else {
                    continue;
                };
                texts(&mut details.descriptions);
                details.overview_doc.iter_mut().for_each(overview);
                details.parameters.iter_mut().for_each(cut);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_business_goes_through_messages_element_for_element(mut business in business()) {
        let owned = Owned {
            value: business.clone(),
            authorized_name: "ada".to_owned(),
        };
        let request = resaved(&Answer::BusinessDetail(vec![owned]), "save_business");
        trim(&mut business);
        let Request::SaveBusiness(values) = request else {
            panic!("{request:?}");
        };
        prop_assert_eq!(values, [business]);
    }

    #[test]
    fn a_business_comes_back_element_for_element(mut business in business()) {
        let mut desk = Desk::new();
        let keys: Vec<_> = (0..TMODELS).map(|_| desk.tmodel("ada", "taxonomy")).collect();
        renumber(&mut business, &keys);
        let saved = desk.save_business("ada", business.clone()).unwrap();
        prop_assert_eq!(without_keys(saved.clone()), business);
        let key = saved.key.unwrap();
        let reopened = Registry::open(desk.journal.clone()).unwrap();
        for registry in [&desk.registry, &reopened] {
            let found = registry.uddi(&Principal::Anonymous).business_detail(&[key]).unwrap();
            prop_assert_eq!(&found[0].value, &saved);
            prop_assert_eq!(&found[0].authorized_name, "ada");
        }
        // Saving what was read changes nothing but the time.
        let again = desk.save_business("ada", saved.clone()).unwrap();
        prop_assert_eq!(again, saved);
    }

    #[test]
    fn a_tmodel_comes_back_element_for_element(mut value in arbitrary_tmodel()) {
        let mut desk = Desk::new();
        let key = desk.save_tmodel("ada", tmodel("taxonomy")).unwrap().key;
        for bag in [&mut value.identifier_bag, &mut value.category_bag] {
            for reference in bag {
                reference.tmodel_key = reference.tmodel_key.and(key);
            }
        }
        let saved = desk.save_tmodel("ada", value.clone()).unwrap();
        let found = desk.inquiry().tmodel_detail(&[saved.key.unwrap()]).unwrap();
        prop_assert_eq!(&found[0].value, &saved);
        prop_assert_eq!(TModel { key: None, ..saved }, value);
    }
}
