//! Import and export: what was exported comes back equal, and a file is imported whole or refused with
//! its line.
//!
//! Method: random registries through N-Quads, TriG and UDDI XML into an empty one; files with one fault.

use std::io::Cursor;

use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
use chappe_registry::uddi::{
    BusinessEntity, BusinessKey, BusinessService, KeyedReference, PublisherAssertion,
    RELATIONSHIPS, ServiceKey, Text,
};
use chappe_registry::{
    Access, Entity, EntityKind, Format, Holder, ImportError, ImportRules, Imported, MemoryJournal,
    Principal, Registry, Rights, Room, Search,
};
use proptest::prelude::*;

use crate::model;
use crate::uddi::Desk;

fn rules<'a>() -> ImportRules<'a> {
    ImportRules {
        importer: "operator",
        keeps_owners: true,
        room: Room::default(),
        unix_ms: 1_774_000_000_000,
        is_left_out: &|key, owner| {
            owner == "node:other" || key.is_some_and(|key| key.starts_with("urn:chappe:"))
        },
    }
}

fn random() -> impl FnMut() -> u128 {
    let mut bits = 7_u128 << 100;
    move || {
        bits += 1;
        bits
    }
}

fn import(registry: &Registry, format: Format, text: &[u8]) -> Result<Imported, ImportError> {
    let reader = Cursor::new(text);
    registry.import(format, reader, &rules(), &mut random(), |_| {})
}

fn export(registry: &Registry, principal: &Principal, format: Format) -> Vec<u8> {
    let mut text = Vec::new();
    registry
        .export(principal, format, &mut text, |_| {})
        .unwrap();
    text
}

fn entities(registry: &Registry) -> Vec<Entity> {
    let keys = registry.search_keys(&Search::default(), &Principal::Operator);
    let mut found: Vec<Entity> = keys
        .iter()
        .filter_map(|key| registry.get(key, &Principal::Operator))
        .collect();
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found
}

fn empty() -> Registry {
    Registry::open(MemoryJournal::new()).unwrap()
}

/// The line and reason of a refusal.
fn refusal(registry: &Registry, format: Format, text: &str) -> (u64, String) {
    match import(registry, format, text.as_bytes()) {
        Err(ImportError::Refused { line, reason }) => (line, reason),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_exported_comes_back_equal(
        all in proptest::collection::vec(model::entity(), 0..12),
        is_trig in any::<bool>(),
        rights in proptest::sample::subsequence(
            vec!["everybody", "accounts", "account:bob", "group:a \"b\"", "role:write"], 0..=3,
        ),
        annotate in 0..3_u8,
        wild in "\\PC{0,12}|[\u{0}-\u{20}\"\\\\<>{}]{0,8}",
    ) {
        let format = if is_trig { Format::TriG } else { Format::NQuads };
        let before = empty();
        for mut entity in all {
            let subject = NamedNode::new(entity.key.clone()).unwrap();
            let predicate = NamedNode::new("http://example.com/wild").unwrap();
            let literal = Literal::new_simple_literal(wild.clone());
            entity.triples.push(Triple::new(subject, predicate, literal));
            entity.scopes.push(wild.clone());
            let holders: Vec<Holder> = rights.iter().map(|text| text.parse().unwrap()).collect();
            entity.rights = Rights {
                annotate: [None, Some(Vec::new()), Some(holders.clone())][annotate as usize].clone(),
                write: holders,
                ..Rights::default()
            };
            before.publish(entity).unwrap().wait().unwrap();
        }
        let text = export(&before, &Principal::Operator, format);
        let after = empty();
        let imported = import(&after, format, &text).unwrap();
        prop_assert_eq!(imported.entities as usize, entities(&before).len());
        prop_assert_eq!(entities(&after), entities(&before));
        // Again: nothing changes, so nothing is written.
        let revision = after.revision();
        import(&after, format, &text).unwrap();
        prop_assert_eq!(after.revision(), revision);
    }

    #[test]
    fn no_bytes_stop_the_readers(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let registry = empty();
        for format in Format::ALL {
            let _ = import(&registry, format, &bytes);
        }
    }

    #[test]
    fn no_markup_stops_the_splitter(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "<a>", "</a>", "<a x='>'/>", "<!-- > -->", "<![CDATA[</a>]]>", "<?p >?>", "text",
                "<!DOCTYPE a>", "<", ">", "'", "\"", "\n", "<tModel xmlns='urn:uddi-org:api_v2'/>",
            ]),
            0..12,
        ),
    ) {
        let _ = import(&empty(), Format::UddiXml, pieces.concat().as_bytes());
    }
}

#[test]
fn an_export_has_what_its_reader_may_see() {
    let registry = empty();
    for (name, access) in [
        ("a", Access::Public),
        ("b", Access::Owner),
        ("c", Access::Readers(vec!["bob".to_owned()])),
    ] {
        let mut entity = Entity::new(format!("urn:x:{name}"), EntityKind::Other, name);
        entity.access = access;
        registry.publish(entity).unwrap().wait().unwrap();
    }
    let count = |principal: Principal| {
        let text = export(&registry, &principal, Format::NQuads);
        let text = String::from_utf8(text).unwrap();
        text.matches("ns#owner>").count()
    };
    assert_eq!(count(Principal::Anonymous), 1);
    assert_eq!(count(Principal::Named("bob".to_owned())), 2);
    assert_eq!(count(Principal::Operator), 3);
}

#[test]
fn a_file_is_imported_whole_or_refused_with_the_line() {
    let good = "<urn:x:1> <http://p> \"a\" <urn:x:1> .\n";
    let cases = [
        ("<urn:x:2> <http://p> .\n", 2, ""),
        ("<urn:x:2> <http://p> \"a\" .\n", 2, "is not a field"),
        (
            "<urn:x:2> <http://p> \"a\" <urn:x:2> .\n<urn:x:1> <http://q> \"a\" <urn:x:1> .\n",
            3,
            "not together",
        ),
        ("_:a <http://p> \"a\" _:g .\n", 2, "blank node"),
        (
            "<urn:x:2> <https://chappe.example/ns#owner> \"ada\" <urn:x:2> .\n",
            2,
            "registry itself states",
        ),
        ("_:a <http://p> \"a\" .\n", 2, "blank node"),
        (
            "<urn:x:2> <https://chappe.example/ns#access> \"all\" .\n",
            2,
            "is not public, owner or readers",
        ),
        (
            "<urn:x:2> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:y> .\n",
            2,
            "class of a kind",
        ),
    ];
    for (bad, line, reason) in cases {
        let registry = empty();
        let (found, text) = refusal(&registry, Format::NQuads, &format!("{good}{bad}"));
        assert_eq!(
            (found, text.contains(reason)),
            (line, true),
            "{bad}: {text}"
        );
        assert_eq!(registry.revision(), 0);
    }
    let registry = empty();
    import(&registry, Format::NQuads, good.as_bytes()).unwrap();
    let entity = registry.get("urn:x:1", &Principal::Anonymous).unwrap();
    assert_eq!(
        (entity.owner.as_str(), entity.name.as_str()),
        ("operator", "urn:x:1")
    );
}

/// A base makes long IRIs of short ones; what they take is bounded while the file is read.
#[test]
fn an_entity_does_not_grow_by_the_names_of_a_file() {
    let base = format!("@base <http://e/{}> . ", "x/".repeat(7_000));
    let text = format!("{base} <urn:x:1> {{ {} }}", "<a> <b> <c> . ".repeat(5_000));
    let (_, reason) = refusal(&empty(), Format::TriG, &text);
    assert!(reason.contains("terms of more than"), "{reason}");
}

#[test]
fn entities_of_others_and_of_nodes_are_not_replaced() {
    let registry = empty();
    let mut taken = Entity::new("urn:x:1", EntityKind::Other, "before");
    taken.owner = "ada".to_owned();
    registry.publish(taken).unwrap().wait().unwrap();
    let text = "<urn:x:0> <http://p> \"a\" <urn:x:0> .\n<urn:x:1> <http://p> \"a\" <urn:x:1> .\n";
    let (line, reason) = refusal(&registry, Format::NQuads, text);
    assert_eq!((line, reason.contains("ada")), (2, true), "{reason}");
    let of_node = "<urn:chappe:stream:1> <http://p> \"a\" <urn:chappe:stream:1> .\n";
    let imported = import(&registry, Format::TriG, b"").unwrap();
    assert_eq!(imported.entities, 0);
    let imported = import(&registry, Format::NQuads, of_node.as_bytes()).unwrap();
    assert_eq!((imported.entities, imported.left_out), (1, 1));
    assert_eq!(registry.revision(), 1);
}

#[test]
fn the_room_is_a_limit_of_the_file() {
    let registry = empty();
    let text = "<urn:x:0> <http://p> \"a\" <urn:x:0> .\n<urn:x:1> <http://p> \"a\" <urn:x:1> .\n";
    let room = Room {
        total_bytes: 1_000,
        ..Room::default()
    };
    let rules = ImportRules { room, ..rules() };
    let imported = registry.import(
        Format::NQuads,
        Cursor::new(text),
        &rules,
        &mut random(),
        |_| {},
    );
    let Err(ImportError::Refused { line: 2, reason }) = imported else {
        panic!("{imported:?}");
    };
    assert!(reason.contains("the limit is 1000"), "{reason}");
}

#[test]
fn trig_of_others_is_read() {
    let text = "@prefix x: <http://example.com/> .\n# a comment\nx:pump {\n  x:pump a x:Pump ;\n    \
                <http://www.w3.org/2000/01/rdf-schema#label> \"Pump\" ; x:part [ x:n 1 ] .\n}\n\
                GRAPH x:scale { x:scale x:n 2, 3 }\n";
    let registry = empty();
    assert_eq!(
        import(&registry, Format::TriG, text.as_bytes())
            .unwrap()
            .entities,
        2
    );
    let pump = registry
        .get("http://example.com/pump", &Principal::Anonymous)
        .unwrap();
    assert_eq!((pump.name.as_str(), pump.triples.len()), ("Pump", 4));
    let (line, _) = refusal(&registry, Format::TriG, "<urn:g> {\n<urn:a> <urn:b> .\n}\n");
    assert_eq!(line, 2);
}

fn business(number: u128, name: &str) -> BusinessEntity {
    BusinessEntity {
        key: None,
        names: vec![Text::plain(name)],
        services: (0..number)
            .map(|at| BusinessService {
                names: vec![Text::plain(format!("{name} {at}"))],
                ..BusinessService::default()
            })
            .collect(),
        ..BusinessEntity::default()
    }
}

#[test]
fn uddi_data_come_back_element_for_element() {
    let mut desk = Desk::new();
    let ada = desk.ask("ada", |ada| {
        ada.save_business(&[business(2, "Ada")])
            .unwrap()
            .wait()
            .unwrap()
    });
    let bob = desk.ask("bob", |bob| {
        bob.save_business(&[business(1, "Bob")])
            .unwrap()
            .wait()
            .unwrap()
    });
    let keys: Vec<BusinessKey> = [&ada, &bob]
        .map(|saved| saved[0].value.key.unwrap())
        .to_vec();
    desk.registry
        .publish(Entity::new("urn:x:1", EntityKind::Other, "no UDDI"))
        .unwrap()
        .wait()
        .unwrap();
    let canonical = desk.registry.publish_canonical_tmodels("node", 0);
    canonical.unwrap().unwrap().wait().unwrap();
    let assertion = PublisherAssertion {
        from_key: keys[0],
        to_key: keys[1],
        reference: KeyedReference {
            tmodel_key: Some(RELATIONSHIPS),
            key_name: Some("peer".to_owned()),
            key_value: "peer-peer".to_owned(),
        },
    };
    for name in ["ada", "bob"] {
        let made = std::slice::from_ref(&assertion);
        desk.ask(name, |one| {
            one.add_publisher_assertions(made).unwrap().wait().unwrap()
        });
    }
    let text = export(&desk.registry, &Principal::Operator, Format::UddiXml);
    let after = empty();
    let canonical = after.publish_canonical_tmodels("node", 0);
    canonical.unwrap().unwrap().wait().unwrap();
    import(&after, Format::UddiXml, &text).unwrap();
    let before = desk.registry.uddi(&Principal::Anonymous);
    let now = after.uddi(&Principal::Anonymous);
    assert_eq!(now.business_detail(&keys), before.business_detail(&keys));
    // The order of elements is that of the registry.
    let lines = |registry: &Registry| {
        let text = export(registry, &Principal::Operator, Format::UddiXml);
        let mut lines: Vec<String> = String::from_utf8(text)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&after), lines(&desk.registry));
    // Again, without a second assertion.
    import(&after, Format::UddiXml, &text).unwrap();
    assert_eq!(lines(&after), lines(&desk.registry));
}

#[test]
fn uddi_xml_is_refused_with_the_line() {
    let file = |element: &str| {
        format!(
            "<?xml version='1.0'?>\n<f xmlns='urn:uddi-org:api_v2'>\n<!-- > -->\n{element}\n</f>\n"
        )
    };
    let key = ServiceKey::new(5);
    let cases = [
        (
            "<tModel tModelKey=''><name>n</name></tModel>".to_owned(),
            "tModelKey is missing",
        ),
        (
            "<tModel tModelKey='uuid:x'><name>n</name></tModel>".to_owned(),
            "tModelKey",
        ),
        ("<tModel/>".to_owned(), "attribute tModelKey"),
        (
            "<businessService serviceKey=''/>".to_owned(),
            "is not a tModel",
        ),
        (
            format!(
                "<businessEntity businessKey='{key}'><name>n</name><businessServices>\
                 <businessService serviceKey=''/></businessServices></businessEntity>"
            ),
            "serviceKey is missing",
        ),
        ("text".to_owned(), "text between"),
        ("<!DOCTYPE f>".to_owned(), "document type"),
    ];
    for (element, expected) in cases {
        let registry = empty();
        let (line, reason) = refusal(&registry, Format::UddiXml, &file(&element));
        let is_there = reason.contains(expected);
        // White space before a text is part of it.
        assert!(
            (3..=4).contains(&line) && is_there,
            "{element}: {line}: {reason}"
        );
        assert_eq!(registry.revision(), 0);
    }
    let open = "<f xmlns='urn:uddi-org:api_v2'>\n<tModel>\n";
    let (_, reason) = refusal(&empty(), Format::UddiXml, open);
    assert!(reason.contains("ends inside"), "{reason}");
}
