//! Goal: operations and interfaces are found by the metadata of their messages' parts, as far as the reader may see
//! pieces and documents; and no find of metadata is changed by an entity that is hidden from the reader.
//! Method: requests in XML on documents of several authors; and a registry with random rights next to those that have
//! only what one principal may see.

use chappe_registry::metadata::message::{Answer, NAMESPACE, receive};
use chappe_registry::metadata::{
    Annotator, Criterion, Draft, FindMessage, FindOperations, Metadata, Value,
};
use chappe_registry::uddi::{ErrorCode, Key as _};
use chappe_registry::{Entity, EntityKind, Error, Principal, Registry, Room, Search};
use proptest::prelude::*;

use crate::model;
use crate::uddi::{Desk, without_hidden};
use crate::wsdl::{WARD, WARD_URL, desk, prepared, put};

const IN: &str = "http://example.org/ward#wsdl11.messagePart(ReadIn/body)";
const OUT: &str = "http://example.org/ward#wsdl11.messagePart(ReadOut/body)";
const FAULT: &str = "http://example.org/ward#wsdl11.messagePart(NoSensor/text)";
const READ: &str = "http://example.org/ward#wsdl11.portTypeOperation(HeartRate/Read)";
const INTERFACE: &str = "http://example.org/ward#wsdl11.portType(HeartRate)";

fn attach(registry: &Registry, number: u128, author: &str, subject: &str, value: &str) -> String {
    // No key that the desk gives.
    let mut bits = || number << 96 | 0x0bad;
    let reader = Principal::account(author, [], [chappe_identity::Role::Write]);
    let mut author = Annotator::new(registry, author, reader, 1_000, &mut bits);
    let draft = Draft {
        key: None,
        subject: subject.to_owned(),
        piece_type: "urn:means".to_owned(),
        value: Value::Text(value.to_owned()),
        rule: None,
        lease_s: None,
    };
    author.attach(&draft).unwrap().wait().unwrap().key
}

/// The answer to a request of these children.
fn ask(desk: &Desk, name: &str, attributes: &str, inner: &str) -> Result<Answer, ErrorCode> {
    let text = format!(
        "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body>\
         <m:{name} xmlns:m='{NAMESPACE}' {attributes}>{inner}</m:{name}></e:Body></e:Envelope>"
    );
    let received = receive(text.as_bytes(), chappe_xml::Limits::default(), "test").unwrap();
    let metadata = desk.registry.metadata(&Principal::Anonymous);
    metadata
        .answer(&received.request)
        .map_err(|error| error.code)
}

fn bag(name: &str, value: &str) -> String {
    format!(
        "<m:{name}><m:metadataQuery><m:metadataType>urn:means</m:metadataType><m:metadataValue>\
         <m:stringValue>{value}</m:stringValue></m:metadataValue></m:metadataQuery></m:{name}>"
    )
}

fn operations(desk: &Desk, inner: &str) -> Vec<String> {
    match ask(desk, "find_operation", "", inner) {
        Ok(Answer::Operations(page)) => page.items.iter().map(|part| part.iri()).collect(),
        other => panic!("{other:?}"),
    }
}

fn interfaces(desk: &Desk, value: &str) -> Vec<String> {
    let inner = bag("metadataQueryBag", value);
    match ask(desk, "find_interfaceByMessagePartMetadata", "", &inner) {
        Ok(Answer::Uris(page)) => page.items,
        other => panic!("{other:?}"),
    }
}

#[test]
fn operations_are_found_by_their_messages() {
    let mut desk = desk();
    let saved = put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], None).unwrap();
    attach(&desk.registry, 1, "ada", IN, "patient");
    attach(&desk.registry, 2, "bob", FAULT, "alarm");
    attach(&desk.registry, 3, "bob", READ, "reading");
    let of = |kind: &str, key: &str| {
        format!(
            "<m:entityReference entityType='{kind}'><m:stringKey>{key}</m:stringKey></m:entityReference>"
        )
    };
    let tmodel = saved[0].tmodels[0].to_string();
    let found = [
        String::new(),
        "<m:name>Write</m:name><m:name>Read</m:name>".to_owned(),
        "<m:messageName>ReadOut</m:messageName>".to_owned(),
        "<m:messageName>ReadIn</m:messageName><m:messagePartName>body</m:messagePartName>"
            .to_owned(),
        "<m:messageNamespace>http://example.org/ward</m:messageNamespace>".to_owned(),
        "<m:messagePartName>text</m:messagePartName>".to_owned(),
        bag("messagePartMetadataQueryBag", "patient"),
        bag("operationMetadataQueryBag", "reading"),
        format!(
            "<m:name>Read</m:name>{}<m:messageName>NoSensor</m:messageName>\
             <m:messageNamespace>http://example.org/ward</m:messageNamespace>\
             <m:messagePartName>text</m:messagePartName>{}{}",
            bag("operationMetadataQueryBag", "reading"),
            bag("messagePartMetadataQueryBag", "alarm"),
            of("document", WARD_URL),
        ),
        of("tModel", &tmodel),
        of("interface", INTERFACE),
    ];
    for inner in found {
        assert_eq!(operations(&desk, &inner), [READ], "{inner}");
    }
    for inner in [
        "<m:name>Write</m:name>".to_owned(),
        "<m:messageName>Read</m:messageName>".to_owned(),
        "<m:messageNamespace>http://example.org/types</m:messageNamespace>".to_owned(),
        // No single message has this name and this part.
        "<m:messageName>ReadIn</m:messageName><m:messagePartName>text</m:messagePartName>"
            .to_owned(),
        format!(
            "<m:messageName>ReadOut</m:messageName>{}",
            bag("messagePartMetadataQueryBag", "patient")
        ),
        format!(
            "<m:messageName>ReadIn</m:messageName>{}",
            bag("operationMetadataQueryBag", "patient")
        ),
        bag("messagePartMetadataQueryBag", "reading"),
        of("document", "http://192.0.2.7/other"),
        of("tModel", &saved[0].tmodels[1].to_string()),
    ] {
        assert_eq!(operations(&desk, &inner), [""; 0], "{inner}");
    }
    let six = "<m:messageName>ReadIn</m:messageName>".repeat(6);
    let text = format!(
        "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body>\
         <m:find_operation xmlns:m='{NAMESPACE}'>{six}</m:find_operation></e:Body></e:Envelope>"
    );
    let fault = receive(text.as_bytes(), chappe_xml::Limits::default(), "test").unwrap_err();
    assert!(
        format!("{fault:?}").contains("E_tooManyOptions"),
        "{fault:?}"
    );
}

#[test]
fn a_service_gives_the_operations_of_its_bindings() {
    let mut desk = desk();
    let ward = desk.business("ada", "Ward 3");
    let saved = put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], Some(ward)).unwrap();
    let of = |key: String| {
        format!(
            "<m:entityReference entityType='service'><m:stringKey>{key}</m:stringKey></m:entityReference>"
        )
    };
    let key = saved[0].services[0];
    for key in [key.to_string(), key.iri()] {
        assert_eq!(operations(&desk, &of(key)), [READ]);
    }
    let other = desk.service("ada", ward, "Other");
    assert_eq!(operations(&desk, &of(other.to_string())), [""; 0]);
}

#[test]
fn interfaces_are_found_by_the_parts_of_their_messages() {
    let mut desk = desk();
    // Nobody knows yet whose part it is.
    attach(&desk.registry, 1, "ada", OUT, "pulse");
    assert_eq!(interfaces(&desk, "pulse"), [""; 0]);
    put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], None).unwrap();
    let other = WARD.replace("example.org/ward", "example.org/annex");
    put(
        &mut desk,
        "ada",
        &[prepared("http://192.0.2.8/annex?wsdl", other)],
        None,
    )
    .unwrap();
    assert_eq!(interfaces(&desk, "pulse"), [INTERFACE]);
    assert_eq!(interfaces(&desk, "rate"), [""; 0]);
    let annex = OUT.replace("/ward", "/annex");
    attach(&desk.registry, 2, "bob", &annex, "pulse");
    let both = [INTERFACE.replace("/ward", "/annex"), INTERFACE.to_owned()];
    assert_eq!(interfaces(&desk, "pulse"), both);
    // The list continues after its cursor.
    let metadata = desk.registry.metadata(&Principal::Anonymous);
    let asked = [criterion("pulse")];
    let first = metadata
        .interfaces_by_message_part(&asked, None, 1)
        .unwrap();
    assert_eq!(first.items, both[..1]);
    let next = first.next.unwrap();
    let second = metadata
        .interfaces_by_message_part(&asked, Some(&next), 1)
        .unwrap();
    assert_eq!((&second.items[..], second.next), (&both[1..], None));
    assert_eq!(
        ask(
            &desk,
            "find_interfaceByMessagePartMetadata",
            "",
            "<m:metadataQueryBag/>"
        ),
        Err(ErrorCode::ValueNotAllowed)
    );
}

#[test]
fn a_graph_may_be_rdf_xml() {
    let desk = desk();
    let pump = Entity::new("urn:device:pump", EntityKind::Device, "Pump");
    desk.registry.publish(pump).unwrap().wait().unwrap();
    let document = "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns:e='urn:e:'>\
        <rdf:Description rdf:about=''><e:near rdf:resource='urn:ward:3'/></rdf:Description></rdf:RDF>";
    let escaped = document.replace('<', "&lt;");
    let attach = |language: &str, triples: &str| -> Result<String, String> {
        let text = format!(
            "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body>\
             <m:addMetadataToEntity xmlns:m='{NAMESPACE}'><m:entityReference entityType='urn:d'>\
             <m:stringKey>urn:device:pump</m:stringKey></m:entityReference><m:metadata>\
             <m:metadataType>urn:place</m:metadataType><m:metadataValue><m:triplesAssertion>\
             <m:triples>{triples}</m:triples><m:language>{language}</m:language>\
             </m:triplesAssertion></m:metadataValue></m:metadata></m:addMetadataToEntity></e:Body></e:Envelope>"
        );
        let received = receive(text.as_bytes(), chappe_xml::Limits::default(), "test");
        let received = received.map_err(|fault| format!("{fault:?}"))?;
        match received.request {
            chappe_registry::metadata::message::Request::Attach(draft) => match draft.value {
                Value::Graph(triples) => Ok(triples[0].to_string()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let triple = "<urn:device:pump> <urn:e:near> <urn:ward:3>";
    for (language, triples) in [
        ("RDF/XML", escaped.as_str()),
        ("rdf/xml-abbrev", &format!("\n  {escaped}\n")),
        // The element itself.
        ("RDF/XML", document),
        ("TURTLE", "&lt;> &lt;urn:e:near> &lt;urn:ward:3> ."),
    ] {
        assert_eq!(
            attach(language, triples).as_deref(),
            Ok(triple),
            "{triples}"
        );
    }
    let bomb = format!("&lt;!DOCTYPE rdf:RDF [&lt;!ENTITY a 'b'>]>{escaped}");
    for (language, triples, expected) in [
        ("RDF/XML", bomb.as_str(), "document type"),
        ("RDF/XML", "&lt;rdf:RDF", "E_valueNotAllowed"),
        ("TRIX", escaped.as_str(), "E_unsupported"),
    ] {
        let refused = attach(language, triples).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}

fn criterion(value: &str) -> Criterion {
    Criterion {
        piece_type: Some("urn:means".to_owned()),
        value: Some(Value::Text(value.to_owned())),
        ..Criterion::default()
    }
}

/// Everything that may be asked about metadata, as text.
fn answers(metadata: &Metadata, subjects: &[String], pieces: &[String]) -> Vec<String> {
    let mut answers = Vec::new();
    let mut add = |answer: &dyn std::fmt::Debug| answers.push(format!("{answer:?}"));
    for key in pieces {
        add(&metadata.piece(key));
    }
    for subject in subjects {
        add(&metadata.of_subject(subject, None, 100));
        add(&metadata.of_subject(subject, None, 2));
        add(&metadata.has(subject, &[criterion("a")]));
    }
    let by = |author: &str| Criterion {
        authors: vec![author.to_owned()],
        ..Criterion::default()
    };
    for asked in [criterion("a"), criterion("b"), by("ada"), by("cleo")] {
        add(&metadata.pieces(None, &asked, None, 100));
        add(&metadata.pieces(None, &asked, None, 3));
        add(&metadata.count(&asked));
        let both = [asked.clone(), criterion("a")];
        for asked in [&both[..1], &both] {
            add(&metadata.entities(asked, None, 100));
            add(&metadata.entities(asked, None, 2));
            add(&metadata.interfaces_by_message_part(asked, None, 100));
            let find = FindOperations {
                message: FindMessage {
                    part_metadata: asked.to_vec(),
                    ..FindMessage::default()
                },
                ..FindOperations::default()
            };
            add(&metadata.find_operations(&find, None, 100));
        }
        let find = FindOperations {
            metadata: vec![asked],
            message: FindMessage {
                part_names: vec!["body".to_owned()],
                ..FindMessage::default()
            },
            ..FindOperations::default()
        };
        add(&metadata.find_operations(&find, None, 100));
    }
    add(&metadata.find_operations(&FindOperations::default(), None, 100));
    for subject in subjects {
        let find = FindOperations {
            of: Some(subject.clone()),
            ..FindOperations::default()
        };
        add(&metadata.find_operations(&find, None, 100));
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn hidden_entities_change_no_find_of_metadata(
        attached in proptest::collection::vec((0_usize..8, 0_usize..2, 0_usize..2), 4..24),
        stated in proptest::collection::vec((any::<prop::sample::Index>(), model::rights()), 1..24),
    ) {
        let mut desk = desk();
        let ward = desk.business("ada", "Ward 3");
        let annex = WARD.replace("example.org/ward", "example.org/annex");
        put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], Some(ward)).unwrap();
        put(&mut desk, "cleo", &[prepared("http://192.0.2.8/annex?wsdl", annex)], None).unwrap();
        for number in 0..3 {
            let device = Entity::new(format!("urn:device:{number}"), EntityKind::Device, "Pump");
            desk.registry.publish(device).unwrap().wait().unwrap();
        }
        let annexed = OUT.replace("/ward", "/annex");
        let mut subjects: Vec<String> = [IN, OUT, READ, &annexed, WARD_URL]
            .into_iter()
            .map(str::to_owned)
            .chain((0..3).map(|number| format!("urn:device:{number}")))
            .collect();
        let pieces: Vec<String> = attached.iter().enumerate().map(|(number, (subject, author, value))| {
            let (author, value) = (["ada", "cleo"][*author], ["a", "b"][*value]);
            attach(&desk.registry, number as u128 + 1, author, &subjects[*subject], value)
        }).collect();
        subjects.push(INTERFACE.to_owned());
        let search = Search { limit: Some(1_000), ..Search::default() };
        let keys = desk.registry.search_keys(&search, &Principal::Operator);
        subjects.extend(keys.iter().filter(|key| key.starts_with("urn:uuid:")).cloned());
        for (at, rights) in stated {
            let set = desk.registry.set_rights(&Principal::Operator, at.get::<String>(&keys), &rights, &Room::default());
            match set {
                Ok((publication, _)) => publication.into_iter().for_each(|it| _ = it.wait().unwrap()),
                // A piece is not made public while its subject is hidden.
                Err(Error::InvalidEntity { field: "rights", .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let get = |key: &String| desk.registry.get(key, &Principal::Operator);
        let entities: Vec<Entity> = keys.iter().filter_map(get).collect();
        for principal in model::principals() {
            let reduced = without_hidden(&entities, &principal);
            let found = answers(&desk.registry.metadata(&principal), &subjects, &pieces);
            let expected = answers(&reduced.metadata(&principal), &subjects, &pieces);
            prop_assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found, expected, "{:?}", principal);
            }
        }
    }
}
