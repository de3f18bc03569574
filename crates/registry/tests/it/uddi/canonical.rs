//! Goal: every registry has the canonical tModels under their published keys, and publishing them again
//! changes nothing.
//! Method: a registry in memory, reopened; keys as the specification writes them.

use chappe_registry::Registry;
use chappe_registry::uddi::{
    ErrorCode, FindTModel, GENERAL_KEYWORDS, TModelKey, TYPES, Text, canonical_tmodels,
};

use super::{Desk, code, reference, tmodel};

fn publish(registry: &Registry) -> bool {
    let published = registry.publish_canonical_tmodels("node", 0).unwrap();
    published
        .map(|publication| publication.wait().unwrap())
        .is_some()
}

#[test]
fn canonical_tmodels_have_their_published_keys() {
    let desk = Desk::new();
    assert!(publish(&desk.registry));
    let inquiry = desk.inquiry();
    for (key, name) in [
        (
            "uuid:C1ACF26D-9672-4404-9D70-39B756E62AB4",
            "uddi-org:types",
        ),
        (
            "uuid:A035A07C-F362-44DD-8F95-E2B134BF43B4",
            "uddi-org:general_keywords",
        ),
        (
            "uuid:807A2C6A-EE22-470D-ADC7-E0424A337C03",
            "uddi-org:relationships",
        ),
        (
            "uuid:C0B9FE13-179F-413D-8A5B-5004DB8E5BB2",
            "ntis-gov:naics:1997",
        ),
        (
            "uuid:CD153257-086A-4237-B336-6BDCBDCC6634",
            "unspsc-org:unspsc",
        ),
        (
            "uuid:4E49A8D6-D5A2-4FC2-93A0-0411D8D19E88",
            "uddi-org:iso-ch:3166:1999",
        ),
        (
            "uuid:8609C81E-EE1F-4D5A-B202-3EB13AD01823",
            "dnb-com:D-U-N-S",
        ),
        ("uuid:68DE9E80-AD09-469D-8A37-088422BFBC36", "uddi-org:http"),
    ] {
        let detail = inquiry.tmodel_detail(&[TModelKey::parse(key).unwrap()]);
        let detail = detail.unwrap().remove(0);
        assert_eq!(detail.value.name.text, name);
        assert_eq!(detail.authorized_name, "node");
    }
    let ask = FindTModel {
        category_bag: vec![reference(TYPES, "identifier")],
        ..FindTModel::default()
    };
    let found = inquiry.find_tmodel(&ask).unwrap();
    assert_eq!(found.items.len(), 3);
    // The interfaces of UDDI 1 and 2: inquiry, publication and checks of values.
    let ask = FindTModel {
        category_bag: vec![reference(TYPES, "soapSpec")],
        ..FindTModel::default()
    };
    assert_eq!(inquiry.find_tmodel(&ask).unwrap().items.len(), 6);
}

#[test]
fn canonical_tmodels_are_published_once_and_come_back() {
    let mut desk = Desk::new();
    publish(&desk.registry);
    let revision = desk.registry.revision();
    assert!(!publish(&desk.registry));
    let reopened = Registry::open(desk.journal.clone()).unwrap();
    assert!(!publish(&reopened));
    assert_eq!(desk.registry.revision(), revision);
    let hidden = desk.ask("node", |node| node.delete_tmodel(&[GENERAL_KEYWORDS]));
    hidden.unwrap().wait().unwrap();
    assert!(publish(&desk.registry));
    let ask = FindTModel {
        name: Some(Text::plain("uddi-org:general")),
        ..FindTModel::default()
    };
    assert_eq!(desk.inquiry().find_tmodel(&ask).unwrap().items.len(), 1);
}

#[test]
fn canonical_tmodels_cannot_be_changed_by_publishers() {
    let mut desk = Desk::new();
    publish(&desk.registry);
    for canonical in canonical_tmodels() {
        let refused = desk.save_tmodel("ada", canonical);
        assert_eq!(code(refused), ErrorCode::UserMismatch);
    }
    let mut own = tmodel("own");
    own.category_bag = vec![reference(TYPES, "specification")];
    desk.save_tmodel("ada", own).unwrap();
}
