//! UDDI 2.04 API specification: find_business, and appendix E, search qualifiers.

use chappe_registry::uddi::{
    BusinessEntity, BusinessService, DiscoveryUrl, FindBusiness, KeyedReference, Text,
};
use chappe_registry::{Access, Principal};

use super::{Desk, binding, business, qualifiers, reference, service};

fn names(desk: &Desk, ask: &FindBusiness) -> Vec<String> {
    let found = desk.inquiry().find_business(ask).unwrap();
    let names = found
        .items
        .into_iter()
        .map(|mut info| info.names.remove(0).text);
    names.collect()
}

/// find_business: businessList with names, descriptions and services of each business.
#[test]
fn the_list_has_the_services() {
    let mut desk = Desk::new();
    let ward = desk.save_business(
        "ada",
        BusinessEntity {
            descriptions: vec![Text::plain("third floor")],
            ..business("Ward 3")
        },
    );
    let ward = ward.unwrap().key.unwrap();
    let pulse = desk.service("ada", ward, "Pulse");
    let ask = FindBusiness {
        names: vec![Text::plain("ward")],
        ..FindBusiness::default()
    };
    let found = desk.inquiry().find_business(&ask).unwrap();
    assert!(!found.is_truncated);
    let info = &found.items[0];
    assert_eq!(info.business_key, ward);
    assert_eq!(info.descriptions, [Text::plain("third floor")]);
    assert_eq!(info.services[0].service_key, pulse);
    assert_eq!(info.services[0].names, [Text::plain("Pulse")]);
}

/// DS, discoveryURLs: each business has an address here, whatever the host; find_business finds it by that.
#[test]
fn a_business_is_found_by_its_address_here() {
    let mut desk = Desk::new();
    let key = desk.business("ada", "Ward 3");
    desk.business("ada", "Ward 4");
    let ask = |use_type: &str, url: String| FindBusiness {
        discovery_urls: vec![DiscoveryUrl {
            use_type: use_type.to_owned(),
            url,
        }],
        ..FindBusiness::default()
    };
    let address = format!("http://192.0.2.1:8470/uddi/get?businessKey={key}");
    for use_type in ["", "businessEntity"] {
        assert_eq!(names(&desk, &ask(use_type, address.clone())), ["Ward 3"]);
    }
    assert!(names(&desk, &ask("homepage", address.clone())).is_empty());
    let other = address.replace("/uddi/get", "/uddi/other");
    assert!(names(&desk, &ask("", other)).is_empty());
}

/// find_business, argument discoveryURLs: alternatives; the useType counts unless it is empty.
#[test]
fn discovery_urls_are_alternatives() {
    let mut desk = Desk::new();
    let url = |use_type: &str, url: &str| DiscoveryUrl {
        use_type: use_type.to_owned(),
        url: url.to_owned(),
    };
    for (name, own) in [
        ("a", url("map", "http://a/")),
        ("b", url("home", "http://b/")),
    ] {
        let one = BusinessEntity {
            discovery_urls: vec![own],
            ..business(name)
        };
        desk.save_business("ada", one).unwrap();
    }
    let ask = |urls: &[DiscoveryUrl]| FindBusiness {
        discovery_urls: urls.to_vec(),
        ..FindBusiness::default()
    };
    assert_eq!(names(&desk, &ask(&[url("", "http://a/")])), ["a"]);
    assert_eq!(names(&desk, &ask(&[url("map", "http://a/")])), ["a"]);
    assert!(names(&desk, &ask(&[url("home", "http://a/")])).is_empty());
    let either = ask(&[url("", "http://a/"), url("home", "http://b/")]);
    assert_eq!(names(&desk, &either), ["a", "b"]);
    assert!(names(&desk, &ask(&[url("", "http://c/")])).is_empty());
}

/// find_business, argument identifierBag: any reference by default; appendix E, andAllKeys,
/// orLikeKeys.
#[test]
fn identifiers_are_alternatives_by_default() {
    let mut desk = Desk::new();
    let [duns, tax] = ["D-U-N-S", "tax"].map(|name| desk.tmodel("ada", name));
    let references = [
        reference(duns, "1"),
        reference(duns, "2"),
        reference(tax, "3"),
    ];
    let [one, two, three] = &references;
    for (name, bag) in [("a", vec![one, three]), ("b", vec![two])] {
        let owner = BusinessEntity {
            identifier_bag: bag.into_iter().cloned().collect(),
            ..business(name)
        };
        desk.save_business("ada", owner).unwrap();
    }
    let ask = |bag: &[&KeyedReference], words: &[&str]| FindBusiness {
        identifier_bag: bag.iter().copied().cloned().collect(),
        qualifiers: qualifiers(words),
        ..FindBusiness::default()
    };
    assert_eq!(names(&desk, &ask(&[one, two], &[])), ["a", "b"]);
    assert!(names(&desk, &ask(&[one, two], &["andAllKeys"])).is_empty());
    assert_eq!(names(&desk, &ask(&[one, three], &["andAllKeys"])), ["a"]);
    assert_eq!(
        names(&desk, &ask(&[one, two, three], &["orLikeKeys"])),
        ["a"]
    );
    assert_eq!(names(&desk, &ask(&[one, two], &["orAllKeys"])), ["a", "b"]);
    // The category bag is another bag.
    let category = FindBusiness {
        category_bag: vec![one.clone()],
        ..FindBusiness::default()
    };
    assert!(names(&desk, &category).is_empty());
}

/// Two businesses of one publisher: the categories of `a` are on itself and on a service, those
/// of `b` only on services, and `c` projects a service of `a`.
fn categorized() -> (Desk, [KeyedReference; 2]) {
    let mut desk = Desk::new();
    let kind = desk.tmodel("ada", "kind");
    let [x, y] = [reference(kind, "x"), reference(kind, "y")];
    let mut a = business("a");
    a.category_bag = vec![x.clone()];
    let with = |name: &str, bag: &[&KeyedReference]| BusinessService {
        names: vec![Text::plain(name)],
        category_bag: bag.iter().copied().cloned().collect(),
        ..BusinessService::default()
    };
    a.services = vec![with("ay", &[&y])];
    let a = desk.save_business("ada", a).unwrap();
    let mut b = business("b");
    b.services = vec![with("bx", &[&x]), with("by", &[&y]), with("bz", &[])];
    desk.save_business("ada", b).unwrap();
    let mut c = business("c");
    c.services = vec![BusinessService {
        bindings: Vec::new(),
        ..a.services[0].clone()
    }];
    desk.save_business("bob", c).unwrap();
    (desk, [x, y])
}

fn by_category(bag: &[&KeyedReference], words: &[&str]) -> FindBusiness {
    FindBusiness {
        category_bag: bag.iter().copied().cloned().collect(),
        qualifiers: qualifiers(words),
        ..FindBusiness::default()
    }
}

/// find_business, argument categoryBag: the bag of the business itself by default.
#[test]
fn own_categories_count_by_default() {
    let (desk, [x, y]) = categorized();
    assert_eq!(names(&desk, &by_category(&[&x], &[])), ["a"]);
    assert!(names(&desk, &by_category(&[&y], &[])).is_empty());
}

/// Appendix E, combineCategoryBags: the bags of contained and referenced services count too.
#[test]
fn combined_category_bags() {
    let (desk, [x, y]) = categorized();
    let combine = ["combineCategoryBags"];
    assert_eq!(names(&desk, &by_category(&[&x], &combine)), ["a", "b"]);
    assert_eq!(names(&desk, &by_category(&[&y], &combine)), ["a", "b", "c"]);
    assert_eq!(names(&desk, &by_category(&[&x, &y], &combine)), ["a", "b"]);
}

/// Appendix E, serviceSubset: only the bags of services count, and only services that match one
/// of the categories are listed.
#[test]
fn service_subset() {
    let (desk, [x, y]) = categorized();
    let subset = ["serviceSubset"];
    assert_eq!(names(&desk, &by_category(&[&x], &subset)), ["b"]);
    assert_eq!(names(&desk, &by_category(&[&y], &subset)), ["a", "b", "c"]);
    let found = desk
        .inquiry()
        .find_business(&by_category(&[&x, &y], &subset))
        .unwrap();
    let services: Vec<_> = found.items[0]
        .services
        .iter()
        .map(|one| &one.names[0].text)
        .collect();
    assert_eq!(services, ["bx", "by"]);
}

/// find_business, argument tModelBag: businesses with a binding that has all tModels.
#[test]
fn tmodels_of_bindings_select_businesses() {
    let mut desk = Desk::new();
    let [t, u] = ["t", "u"].map(|name| desk.tmodel("ada", name));
    let ward = desk.business("ada", "Ward 3");
    desk.business("ada", "Ward 4");
    let pulse = BusinessService {
        bindings: vec![binding(None, &[t, u])],
        ..service(ward, "Pulse")
    };
    desk.save_service("ada", pulse).unwrap();
    let ask = |tmodels: &[_]| FindBusiness {
        tmodel_bag: tmodels.to_vec(),
        ..FindBusiness::default()
    };
    assert_eq!(names(&desk, &ask(&[t, u])), ["Ward 3"]);
    let unknown = chappe_registry::uddi::TModelKey::new(1);
    let unknown = desk.inquiry().find_business(&ask(&[t, unknown]));
    assert_eq!(
        super::code(unknown),
        chappe_registry::uddi::ErrorCode::InvalidKeyPassed
    );
}

/// find_business, argument tModelBag: the list shows only services with a binding that matches.
#[test]
fn a_fingerprint_selects_the_services_shown() {
    let mut desk = Desk::new();
    let [t, u] = ["t", "u"].map(|name| desk.tmodel("ada", name));
    let ward = desk.business("ada", "Ward 3");
    for (name, tmodel) in [("Pulse", t), ("Pump", u)] {
        let one = BusinessService {
            bindings: vec![binding(None, &[tmodel])],
            ..service(ward, name)
        };
        desk.save_service("ada", one).unwrap();
    }
    let shown = |tmodels: &[_]| {
        let ask = FindBusiness {
            tmodel_bag: tmodels.to_vec(),
            ..FindBusiness::default()
        };
        let found = desk.inquiry().find_business(&ask).unwrap().items;
        let services = found.into_iter().flat_map(|info| info.services);
        let names = services.flat_map(|service| service.names);
        names.map(|name| name.text).collect::<Vec<_>>()
    };
    assert_eq!(shown(&[t]), ["Pulse"]);
    assert_eq!(shown(&[]), ["Pulse", "Pump"]);
}

/// Each answer is computed as if what the principal may not see did not exist.
#[test]
fn hidden_businesses_are_not_found() {
    let desk = Desk::new();
    let mut bits = 0;
    let mut random = || {
        bits += 1;
        bits
    };
    let access = Access::Readers(vec!["eve".to_owned()]);
    let mut ada =
        chappe_registry::uddi::Publisher::new(&desk.registry, "ada", access, 0, &mut random);
    let saved = ada
        .save_business(&[business("Secret")])
        .unwrap()
        .wait()
        .unwrap();
    let key = saved[0].value.key.unwrap();
    let ask = FindBusiness::default();
    for (principal, sees) in [
        (Principal::Anonymous, false),
        (Principal::Named("bob".to_owned()), false),
        (Principal::Named("eve".to_owned()), true),
        (Principal::Named("ada".to_owned()), true),
        (Principal::Operator, true),
    ] {
        let inquiry = desk.registry.uddi(&principal);
        assert_eq!(
            inquiry.find_business(&ask).unwrap().items.len(),
            usize::from(sees)
        );
        assert_eq!(inquiry.business_detail(&[key]).is_ok(), sees);
    }
}
