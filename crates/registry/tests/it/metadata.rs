//! Goal: pieces of metadata come back as they were written, belong to their author, and are found by
//! type, value, author and date as far as the reader may see them and their subjects.
//!
//! Method: a registry with a few entities, several authors, and a model that reads all pieces.

use std::collections::BTreeSet;

use chappe_identity::Role;
use chappe_registry::metadata::message::{Answer, NAMESPACE, Request, receive};
use chappe_registry::metadata::{
    Annotator, Changed, Criterion, Draft, Error, Piece, Value, WsdlPart,
};
use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, Triple};
use chappe_registry::uddi::{BusinessEntity, Key, Text};
use chappe_registry::{
    Access, Entity, EntityKind, Holder, MemoryJournal, Principal, Registry, Right, Rights, Room,
    Search, SparqlAnswer,
};
use proptest::prelude::*;

use crate::uddi::Desk;

const PUMP: &str = "urn:device:pump";

struct Board {
    registry: Registry,
    journal: MemoryJournal,
    bits: u128,
    unix_ms: i64,
}

fn named(name: &str) -> Principal {
    Principal::account(name, [], [Role::Write])
}

fn draft(subject: &str, piece_type: &str, value: Value) -> Draft {
    Draft {
        key: None,
        subject: subject.to_owned(),
        piece_type: piece_type.to_owned(),
        value,
        rule: None,
        lease_s: None,
    }
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn of_type(piece_type: &str) -> Criterion {
    Criterion {
        piece_type: Some(piece_type.to_owned()),
        ..Criterion::default()
    }
}

impl Board {
    fn new() -> Self {
        let journal = MemoryJournal::new();
        let board = Self {
            registry: Registry::open(journal.clone()).unwrap(),
            journal,
            bits: 0,
            unix_ms: 1_774_000_000_000,
        };
        board.publish(PUMP, Access::Public);
        board
    }

    fn publish(&self, key: &str, access: Access) {
        let mut entity = Entity::new(key, EntityKind::Device, key);
        entity.access = access;
        self.registry.publish(entity).unwrap().wait().unwrap();
    }

    fn ask<T>(&mut self, name: &str, run: impl FnOnce(&mut Annotator<'_>) -> T) -> T {
        let bits = &mut self.bits;
        let mut random = || {
            *bits += 1;
            *bits << 64 | *bits
        };
        let mut author =
            Annotator::new(&self.registry, name, named(name), self.unix_ms, &mut random);
        self.unix_ms += 1_000;
        run(&mut author)
    }

    fn attach(&mut self, name: &str, draft: &Draft) -> Result<Piece, Error> {
        self.ask(name, |author| author.attach(draft))
            .and_then(Changed::wait)
    }

    fn delete(&mut self, name: &str, key: &str) -> Result<Piece, Error> {
        self.ask(name, |author| author.delete(key))
            .and_then(Changed::wait)
    }

    fn found(&self, reader: &Principal, asked: &[Criterion]) -> Vec<String> {
        let metadata = self.registry.metadata(reader);
        metadata.entities(asked, None, 100).unwrap().items
    }

    fn sparql(&self, query: &str) -> usize {
        let answer = self.registry.sparql(
            query,
            &Principal::Anonymous,
            &chappe_registry::SparqlLimits::default(),
            &chappe_registry::Interrupt::never(),
        );
        match answer.unwrap() {
            SparqlAnswer::Solutions { rows, .. } => rows.len(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_piece_comes_back_with_its_author_and_date() {
    let mut board = Board::new();
    let graph = "<> <urn:near> <ward/3>, [ a <urn:Bed> ] . <urn:other> <urn:p> 4.5 .";
    let values = [
        text(""),
        text("two\nlines \u{1F4A7}"),
        Value::Uri("http://example.com/trust?a=b#c".to_owned()),
        Value::Typed {
            value: "4.5".to_owned(),
            datatype: "http://www.w3.org/2001/XMLSchema#decimal".to_owned(),
        },
        Value::Typed {
            value: "<a/>".to_owned(),
            datatype: "http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral".to_owned(),
        },
        Value::from_turtle("http://example.com/", graph).unwrap(),
    ];
    for value in values {
        let time = board.unix_ms;
        let piece = board
            .attach("ada", &draft(PUMP, "urn:t", value.clone()))
            .unwrap();
        assert_eq!((piece.author.as_str(), piece.date_ms), ("ada", time));
        let again = Registry::open(board.journal.clone()).unwrap();
        for registry in [&board.registry, &again] {
            let read = registry
                .metadata(&Principal::Anonymous)
                .piece(&piece.key)
                .unwrap();
            assert_eq!(read, piece);
            assert_eq!(read.value, value);
        }
    }
    let page = board.registry.metadata(&Principal::Anonymous);
    let page = page.of_subject(PUMP, None, 100).unwrap();
    assert_eq!((page.items.len(), page.next), (6, None));
    let search = Search {
        about: Some(PUMP.to_owned()),
        kind: Some(EntityKind::Metadata),
        ..Search::default()
    };
    let found = board.registry.search(&search, &Principal::Anonymous);
    assert_eq!(found.entities.len(), 6);
    // The graph's triples are in the graph of all.
    assert_eq!(board.sparql("SELECT ?x { ?x a <urn:Bed> }"), 1);
}

#[test]
fn only_who_may_write_a_piece_changes_it_and_it_stays_its_authors() {
    let mut board = Board::new();
    let mut of_ada = draft(PUMP, "urn:trust", text("high"));
    let piece = board.attach("ada", &of_ada).unwrap();
    board
        .attach("bob", &draft(PUMP, "urn:trust", text("none")))
        .unwrap();
    let journal = board.journal.len();
    let stranger = Draft {
        key: Some(piece.key.clone()),
        ..draft(PUMP, "urn:trust", text("low"))
    };
    assert!(matches!(
        board.attach("bob", &stranger),
        Err(Error::Refused { owner, right: Right::Write, .. }) if owner == "ada"
    ));
    assert!(matches!(
        board.delete("bob", &piece.key),
        Err(Error::Refused { .. })
    ));
    let unknown = Draft {
        key: Some("urn:uuid:none".to_owned()),
        ..of_ada.clone()
    };
    assert!(matches!(
        board.attach("ada", &unknown),
        Err(Error::UnknownPiece(_))
    ));
    // An entity of another kind is no piece.
    assert!(matches!(
        board.delete("node", PUMP),
        Err(Error::UnknownPiece(_))
    ));
    board.publish("urn:device:other", Access::Public);
    let moved = Draft {
        key: Some(piece.key.clone()),
        ..draft("urn:device:other", "urn:trust", text("low"))
    };
    assert!(matches!(
        board.attach("ada", &moved),
        Err(Error::Invalid {
            field: "subject",
            ..
        })
    ));
    assert_eq!(board.journal.len(), journal + 1, "refusals change nothing");
    of_ada.key = Some(piece.key.clone());
    of_ada.value = text("low");
    let updated = board.attach("ada", &of_ada).unwrap();
    assert_eq!(updated.key, piece.key);
    assert!(updated.date_ms > piece.date_ms);
    assert_eq!(
        board.journal.len(),
        journal + 2,
        "one record, of the piece alone"
    );
    let page = board.registry.metadata(&Principal::Anonymous);
    assert_eq!(page.of_subject(PUMP, None, 100).unwrap().items.len(), 2);
    // Ada lets bob change it.
    let rights = Rights {
        write: vec![Holder::Account("bob".to_owned())],
        ..Rights::default()
    };
    of_ada.rule = Some((Access::Public, rights));
    board.attach("ada", &of_ada).unwrap();
    let by_bob = board.attach("bob", &stranger).unwrap();
    assert_eq!(by_bob.author, "ada");
    assert_eq!(by_bob.rights.write.len(), 1, "the rights stay");
    let mut random = || 7;
    let mut root = Annotator::new(&board.registry, "root", Principal::Operator, 0, &mut random);
    root.delete(&piece.key).unwrap().wait().unwrap();
    let metadata = board.registry.metadata(&Principal::Operator);
    assert!(matches!(
        metadata.piece(&piece.key),
        Err(Error::UnknownPiece(_))
    ));
}

#[test]
fn pieces_outlive_their_subject_out_of_sight() {
    let mut board = Board::new();
    let piece = board
        .attach("ada", &draft(PUMP, "urn:trust", text("high")))
        .unwrap();
    let about = board
        .attach("bob", &draft(&piece.key, "urn:trust", text("doubtful")))
        .unwrap();
    let asked = [of_type("urn:trust")];
    let anyone = Principal::Anonymous;
    let both = [PUMP.to_owned(), piece.key.clone()];
    assert_eq!(board.found(&anyone, &asked), both);
    // A subject that is published again keeps its pieces.
    board.publish(PUMP, Access::Public);
    assert_eq!(board.found(&anyone, &asked), both);
    board.registry.remove(PUMP).unwrap().wait().unwrap();
    assert_eq!(board.found(&anyone, &asked), vec![piece.key.clone()]);
    let metadata = board.registry.metadata(&anyone);
    assert!(matches!(
        metadata.piece(&piece.key),
        Err(Error::UnknownPiece(_))
    ));
    assert!(matches!(
        metadata.of_subject(PUMP, None, 9),
        Err(Error::UnknownSubject(_))
    ));
    let of_ada = Criterion {
        authors: vec!["ada".to_owned()],
        ..Criterion::default()
    };
    assert!(
        metadata
            .pieces(None, &of_ada, None, 9)
            .unwrap()
            .items
            .is_empty()
    );
    assert!(matches!(
        board.attach("ada", &draft(PUMP, "urn:trust", text("more"))),
        Err(Error::UnknownSubject(_))
    ));
    // Its author still has it.
    let metadata = board.registry.metadata(&named("ada"));
    assert_eq!(metadata.piece(&piece.key).unwrap(), piece);
    assert_eq!(
        metadata.pieces(None, &of_ada, None, 9).unwrap().items.len(),
        1
    );
    // The device returns.
    board.publish(PUMP, Access::Public);
    assert_eq!(board.found(&anyone, &asked), both);
    board.delete("ada", &piece.key).unwrap();
    assert_eq!(board.found(&anyone, &asked), Vec::<String>::new());
    assert_eq!(board.delete("bob", &about.key).unwrap(), about);
}

#[test]
fn uddi_saves_keep_pieces_and_deletes_put_them_out_of_reach() {
    let mut desk = Desk::new();
    let ward = BusinessEntity {
        names: vec![Text::plain("Ward 3")],
        ..BusinessEntity::default()
    };
    let mut saved = desk.save_business("ada", ward).unwrap();
    let key = saved.key.unwrap();
    let mut random = || 3;
    let mut bob = Annotator::new(&desk.registry, "bob", named("bob"), 0, &mut random);
    let wanted = draft(&key.iri(), "urn:trust", text("high"));
    let piece = bob.attach(&wanted).unwrap().wait().unwrap();
    saved.names = vec![Text::plain("Ward 4")];
    desk.save_business("ada", saved).unwrap();
    let anyone = desk.registry.metadata(&Principal::Anonymous);
    assert_eq!(
        anyone.of_subject(&key.iri(), None, 9).unwrap().items,
        vec![piece.clone()]
    );
    let deleted = desk.ask("ada", |publisher| publisher.delete_business(&[key]));
    deleted.unwrap().wait().unwrap();
    let anyone = desk.registry.metadata(&Principal::Anonymous);
    assert!(anyone.of_subject(&key.iri(), None, 9).is_err());
    assert!(anyone.piece(&piece.key).is_err());
    let bob = desk.registry.metadata(&named("bob"));
    assert_eq!(bob.piece(&piece.key).unwrap(), piece);
}

#[test]
fn a_piece_is_not_wider_than_its_subject() {
    let mut board = Board::new();
    let (private, shared) = ("urn:private", "urn:shared");
    board.publish(private, Access::Owner);
    board.publish(
        shared,
        Access::Readers(vec!["bob".to_owned(), "cleo".to_owned()]),
    );
    let mut entity = board.registry.get(shared, &Principal::Operator).unwrap();
    entity.rights.annotate = Some(vec![Holder::Account("ada".to_owned())]);
    board.registry.publish(entity).unwrap().wait().unwrap();
    assert!(matches!(
        board.attach("bob", &draft(shared, "urn:t", text("x"))),
        Err(Error::Refused {
            right: Right::Annotate,
            ..
        })
    ));
    assert!(matches!(
        board.attach("ada", &draft(private, "urn:t", text("x"))),
        Err(Error::UnknownSubject(_))
    ));
    let mut wanted = draft(shared, "urn:t", text("x"));
    wanted.rule = Some((Access::Public, Rights::default()));
    assert!(matches!(
        board.attach("ada", &wanted),
        Err(Error::Invalid {
            field: "access",
            ..
        })
    ));
    // Who may change a piece may read it.
    let everybody = vec![Holder::Everybody];
    let rights = Rights {
        write: everybody.clone(),
        ..Rights::default()
    };
    wanted.rule = Some((Access::Owner, rights.clone()));
    assert!(board.attach("ada", &wanted).is_err());
    wanted.rule = None;
    let piece = board.attach("ada", &wanted).unwrap();
    let read = Rights {
        read: everybody,
        ..Rights::default()
    };
    for wide in [&rights, &read] {
        let room = Room::default();
        let set = board
            .registry
            .set_rights(&named("ada"), &piece.key, wide, &room);
        let refused = set.err().unwrap().to_string();
        assert!(refused.contains("subject is not public"), "{refused}");
    }
    let asked = [of_type("urn:t")];
    for (reader, sees) in [
        (Principal::Anonymous, false),
        (named("eve"), false),
        (named("bob"), true),
        (named("ada"), true),
        (named("node"), true),
        (Principal::Operator, true),
    ] {
        assert_eq!(board.found(&reader, &asked) == [shared], sees, "{reader:?}");
        let metadata = board.registry.metadata(&reader);
        assert_eq!(metadata.piece(&piece.key).is_ok(), sees, "{reader:?}");
        assert_eq!(metadata.count(&asked[0]).unwrap() > 0, sees, "{reader:?}");
    }
    // A public piece is out of sight with its subject.
    wanted = draft(PUMP, "urn:hidden", text("x"));
    let piece = board.attach("eve", &wanted).unwrap();
    board.publish(PUMP, Access::Owner);
    assert_eq!(
        board.found(&Principal::Anonymous, &[of_type("urn:hidden")]),
        [""; 0]
    );
    let anyone = board.registry.metadata(&Principal::Anonymous);
    assert!(anyone.piece(&piece.key).is_err());
    assert!(!anyone.has(PUMP, &[of_type("urn:hidden")]).unwrap());
}

#[test]
fn nobody_writes_in_the_name_of_another() {
    let mut board = Board::new();
    let piece = board
        .attach("ada", &draft(PUMP, "urn:trust", text("high")))
        .unwrap();
    let forged = [
        format!(
            "<{}> <https://chappe.example/ns#metadataValue> \"low\" .",
            piece.key
        ),
        "<urn:x> <https://chappe.example/ns#author> \"ada\" .".to_owned(),
        format!("<{PUMP}> <https://chappe.example/ns#about> <urn:y> ."),
    ];
    for graph in forged {
        let graph = Value::from_turtle(PUMP, &graph).unwrap();
        let triples = match &graph {
            Value::Graph(triples) => triples.clone(),
            _ => Vec::new(),
        };
        let refused = board.attach("eve", &draft(PUMP, "urn:trust", graph));
        assert!(matches!(refused, Err(Error::Registry(_))), "{refused:?}");
        for kind in EntityKind::ALL {
            let mut entity = Entity::new("urn:forged", kind, "forged");
            entity.triples.clone_from(&triples);
            assert!(entity.validate().is_err(), "{kind:?}");
        }
    }
    let mut entity = Entity::new("urn:forged", EntityKind::Metadata, "forged");
    entity.owner = "eve".to_owned();
    let own = "<> <https://chappe.example/ns#author> \"ada\" .";
    entity.triples = chappe_registry::triples_from_turtle("urn:forged", own).unwrap();
    assert!(entity.validate().is_err());
    entity.owner = "ada".to_owned();
    assert!(entity.validate().is_ok());
}

#[test]
fn bad_pieces_are_refused_with_the_reason() {
    let mut board = Board::new();
    let reason = |result: Result<Piece, Error>| result.unwrap_err().to_string();
    let bad = |value: Value, piece_type: &str| draft(PUMP, piece_type, value);
    let long = format!("urn:{}", "x".repeat(2_000));
    for (draft, words) in [
        (
            bad(text("x"), "no iri"),
            "type \"no iri\" is not an absolute IRI",
        ),
        (bad(text("x"), &long), "type is longer"),
        (
            bad(Value::Uri("x y".to_owned()), "urn:t"),
            "value \"x y\" is not",
        ),
        (bad(text(&"x".repeat(20_000)), "urn:t"), "longer than 16384"),
        (
            bad(Value::Graph(Vec::new()), "urn:t"),
            "graph has no triple",
        ),
    ] {
        let found = reason(board.attach("ada", &draft));
        assert!(found.contains(words), "{found}");
    }
    let found = Value::from_turtle(PUMP, "<> a .").unwrap_err().to_string();
    assert!(found.starts_with("graph cannot be parsed"), "{found}");
    let metadata = board.registry.metadata(&Principal::Anonymous);
    for asked in [
        vec![],
        vec![Criterion::default()],
        vec![of_type("no iri")],
        vec![Criterion {
            value: Some(Value::Graph(Vec::new())),
            ..Criterion::default()
        }],
        vec![of_type("urn:t"); 17],
        vec![Criterion {
            authors: vec!["a".to_owned(); 17],
            ..Criterion::default()
        }],
    ] {
        let found = metadata.entities(&asked, None, 9);
        assert!(
            matches!(found, Err(Error::Invalid { .. })),
            "{asked:?}: {found:?}"
        );
    }
}

#[test]
fn a_part_of_a_wsdl_document_is_a_subject() {
    let mut board = Board::new();
    let part = WsdlPart::Operation {
        namespace: "http://example.com/pulse".to_owned(),
        port_type: "Pulse".to_owned(),
        name: "measure".to_owned(),
    };
    board
        .attach("ada", &draft(&part.iri(), "urn:t", text("x")))
        .unwrap();
    assert_eq!(
        board.found(&Principal::Anonymous, &[of_type("urn:t")]),
        [part.iri()]
    );
    assert!(
        board
            .attach(
                "ada",
                &draft("http://example.com/pulse", "urn:t", text("x"))
            )
            .is_err()
    );
}

#[test]
fn sparql_asks_who_said_it() {
    let mut board = Board::new();
    board
        .attach("ada", &draft(PUMP, "urn:trust", text("high")))
        .unwrap();
    board
        .attach("eve", &draft(PUMP, "urn:trust", text("high")))
        .unwrap();
    let by = |name: &str| {
        format!(
            "PREFIX c: <https://chappe.example/ns#> SELECT ?d {{ ?piece c:about ?d ; \
             c:metadataType <urn:trust> ; c:metadataValue \"high\" ; c:author \"{name}\" ; \
             c:metadataDate ?date }}"
        )
    };
    assert_eq!((board.sparql(&by("ada")), board.sparql(&by("bob"))), (1, 0));
}

/// A piece of a property test: subject, type, value, author, in small sets.
type Small = (u8, u8, u8, u8);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn finds_and_cursors_agree_with_a_model(
        pieces in proptest::collection::vec((0_u8..4, 0_u8..3, 0_u8..3, 0_u8..3), 1..40),
        removed in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        asked in proptest::collection::vec(
            (proptest::option::of(0_u8..3), proptest::option::of(0_u8..3),
                proptest::collection::vec(0_u8..3, 0..3), proptest::option::of(0_i64..40)),
            1..4,
        ),
        limit in 1_usize..4,
    ) {
        let mut board = Board::new();
        let subject = |number: u8| format!("urn:s{number}");
        for number in 0..4 {
            board.publish(&subject(number), Access::Public);
        }
        let start = board.unix_ms;
        let mut model: Vec<(Small, i64, String)> = Vec::new();
        for small in pieces {
            let (of, kind, value, author) = small;
            let time = board.unix_ms;
            let wanted = draft(&subject(of), &format!("urn:t{kind}"), text(&value.to_string()));
            let piece = board.attach(&format!("a{author}"), &wanted).unwrap();
            model.push((small, time, piece.key));
        }
        for index in removed {
            if model.is_empty() {
                break;
            }
            let (small, _, key) = model.swap_remove(index.index(model.len()));
            board.delete(&format!("a{}", small.3), &key).unwrap();
        }
        let criteria: Vec<Criterion> = asked
            .iter()
            .map(|(kind, value, authors, from)| Criterion {
                piece_type: kind.map(|kind| format!("urn:t{kind}")),
                value: value.map(|value| text(&value.to_string())),
                authors: authors.iter().map(|author| format!("a{author}")).collect(),
                from_ms: from.map(|from| start + from * 1_000),
                until_ms: None,
            })
            .collect();
        let fits = |small: &Small, time: i64, (kind, value, authors, from): &(
            Option<u8>, Option<u8>, Vec<u8>, Option<i64>,
        )| {
            kind.is_none_or(|kind| kind == small.1)
                && value.is_none_or(|value| value == small.2)
                && (authors.is_empty() || authors.contains(&small.3))
                && from.is_none_or(|from| time >= start + from * 1_000)
        };
        let is_valid = asked
            .iter()
            .all(|(kind, value, authors, _)| kind.is_some() || value.is_some() || !authors.is_empty());
        let metadata = board.registry.metadata(&Principal::Anonymous);
        if !is_valid {
            prop_assert!(metadata.entities(&criteria, None, limit).is_err());
            return Ok(());
        }
        let expected: BTreeSet<String> = (0..4)
            .filter(|of| {
                asked.iter().all(|one| {
                    model.iter().any(|(small, time, _)| small.0 == *of && fits(small, *time, one))
                })
            })
            .map(subject)
            .collect();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = metadata.entities(&criteria, after.as_deref(), limit).unwrap();
            prop_assert!(page.items.len() <= limit);
            found.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        prop_assert_eq!(&found, &expected.into_iter().collect::<Vec<_>>());
        let mut keys: Vec<String> = model
            .iter()
            .filter(|(small, time, _)| fits(small, *time, &asked[0]))
            .map(|(small, _, key)| format!("{} {key}", subject(small.0)))
            .collect();
        keys.sort();
        let mut pieces = Vec::new();
        loop {
            let page = metadata.pieces(None, &criteria[0], after.as_deref(), limit).unwrap();
            pieces.extend(page.items.into_iter().map(|one| format!("{} {}", one.subject, one.key)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        prop_assert_eq!(pieces, keys);
        for of in 0..4 {
            let has = metadata.has(&subject(of), &criteria).unwrap();
            prop_assert_eq!(has, found.contains(&subject(of)));
        }
    }
}

#[test]
fn a_query_of_some_owners_reads_nothing_of_others() {
    let mut board = Board::new();
    board
        .attach("ada", &draft(PUMP, "urn:trust", text("high")))
        .unwrap();
    // The node itself says one thing of its device, a stranger another.
    for (key, owner, triples) in [
        (
            "urn:by-node",
            "node",
            "<urn:device:pump> <urn:near> <urn:ward/3> .",
        ),
        (
            "urn:by-eve",
            "eve",
            "<urn:device:pump> <urn:near> <urn:ward/4>, <urn:ward/3> .",
        ),
        (
            "urn:by-bob",
            "bob",
            "<> <urn:near> <urn:ward/5> ; <urn:part> [ <urn:near> <urn:ward/6> ] .",
        ),
    ] {
        let mut entity = Entity::new(key, EntityKind::Other, key);
        entity.owner = owner.to_owned();
        entity.triples = chappe_registry::triples_from_turtle(key, triples).unwrap();
        board.registry.publish(entity).unwrap().wait().unwrap();
    }
    let rows = |query: &str, owners: &[&str]| {
        let owners: Vec<String> = owners.iter().map(ToString::to_string).collect();
        let answer = board.registry.sparql_of(
            query,
            &Principal::Operator,
            &owners,
            &chappe_registry::SparqlLimits::default(),
            &chappe_registry::Interrupt::never(),
        );
        match answer.unwrap() {
            SparqlAnswer::Solutions { rows, .. } => rows.len(),
            other => panic!("{other:?}"),
        }
    };
    let near = "SELECT ?x ?place { ?x <urn:near> ?place }";
    let named = "SELECT ?g ?x ?place { GRAPH ?g { ?x <urn:near> ?place } }";
    let of_eve = "SELECT ?x { GRAPH <urn:by-eve> { ?x <urn:near> ?place } }";
    let known = "SELECT ?x { ?x <urn:near> <urn:ward/3> }";
    let graphs = "SELECT ?g { GRAPH ?g { } }";
    for (owners, counts) in [
        (&["node"][..], [1, 1, 0, 1, 2]),
        (&["node", "eve"], [2, 3, 2, 1, 3]),
        (&["bob"], [2, 2, 0, 0, 1]),
        (&["ada"], [0, 0, 0, 0, 1]),
        (&["nobody"], [0, 0, 0, 0, 0]),
    ] {
        let found = [near, named, of_eve, known, graphs].map(|query| rows(query, owners));
        assert_eq!(found, counts, "{owners:?}");
    }
}

/// A value of each kind, with texts that XML and N-Triples escape.
fn value() -> impl Strategy<Value = Value> {
    let text = "[ -~äλ\u{1F4A7}\n\t]{0,20}";
    let graph = (text, "[a-z]{1,8}").prop_map(|(text, name)| {
        let subject = BlankNode::new(name.as_str()).unwrap();
        let predicate = NamedNode::new("urn:p").unwrap();
        let literal = Literal::new_language_tagged_literal(text, "en").unwrap();
        Value::Graph(vec![
            Triple::new(
                NamedNode::new("urn:s").unwrap(),
                predicate.clone(),
                subject.clone(),
            ),
            Triple::new(subject, predicate, literal),
        ])
    });
    prop_oneof![
        text.prop_map(Value::Text),
        "urn:[a-z0-9:?&=]{1,20}".prop_map(Value::Uri),
        (text, "urn:[a-z]{1,9}").prop_map(|(value, datatype)| Value::Typed { value, datatype }),
        // Not empty: an element without content is written in the short form.
        "[a-zäλ &]{1,20}".prop_map(|text| Value::Typed {
            value: format!(
                "<a xmlns=\"urn:x\" b=\"c\">{}</a>",
                text.replace('&', "&amp;")
            ),
            datatype: "http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral".to_owned(),
        }),
        graph,
    ]
}

proptest! {
    /// The fuzz target's check: what a message attaches comes back in answers.
    #[test]
    fn a_value_survives_its_messages(value in value(), known in any::<bool>()) {
        let piece = Piece {
            key: "urn:uuid:00000000-0000-4000-8000-000000000000".to_owned(),
            subject: PUMP.to_owned(),
            piece_type: "urn:t".to_owned(),
            value,
            author: "ada".to_owned(),
            date_ms: 0,
            access: Access::Public,
            rights: Rights::default(),
            lease_s: None,
        };
        let text = Answer::Piece(Box::new(piece.clone())).to_text("test");
        let inner = text
            .split_once("<meta:metadataType").unwrap().1
            .split_once("<meta:author").unwrap().0;
        let key = if known { piece.key.as_str() } else { "" };
        let text = format!(
            "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body>\
             <meta:addMetadataToEntity xmlns:meta='{NAMESPACE}'><meta:entityReference entityType='urn:x'>\
             <meta:stringKey>{PUMP}</meta:stringKey></meta:entityReference>\
             <meta:metadata meta:metadataKey='{key}'><meta:metadataType{inner}</meta:metadata>\
             </meta:addMetadataToEntity></s:Body></s:Envelope>"
        );
        let read = receive(text.as_bytes(), chappe_xml::Limits::default(), "test");
        let read = read.unwrap_or_else(|fault| panic!("{fault:?}: {text}"));
        let Request::Attach(draft) = read.request else { panic!("{text}") };
        prop_assert_eq!(draft.value, piece.value);
        prop_assert_eq!(draft.key, known.then_some(piece.key));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), body in "[<>/a-z:' =]{0,80}") {
        let _ = receive(&bytes, chappe_xml::Limits::default(), "test");
        let text = format!(
            "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body>\
             <addMetadataToEntity xmlns='{NAMESPACE}'>{body}</addMetadataToEntity></s:Body></s:Envelope>"
        );
        let _ = receive(text.as_bytes(), chappe_xml::Limits::default(), "test");
    }
}
