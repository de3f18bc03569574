//! The registry at scale: synthetic services in memory, searches, and a SPARQL query of two
//! patterns in either order. The peer is SQLite in memory with the same services. The journal is in
//! memory, so durability costs nothing here. The counted triples include those that the registry
//! derives from an entity's fields. Then the same streams under one, a hundred and ten thousand access rules. The part
//! `paper` repeats the measurements of the paper on GRIMOIRES, with nodes, jUDDI and Apache Jena; `largest` is a node
//! with 100,000 services.

mod paper;
mod rules;
mod sqlite;

use std::time::Instant;

use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, Term, Triple};
use chappe_registry::{
    Entity, EntityKind, Interrupt, Journal, MemoryJournal, Principal, Registry, Search,
    SparqlAnswer, SparqlLimits, vocabulary,
};
use chappe_transport::resident_bytes;

use crate::{Error, Limit, Reference, Report, Settings, timing};
use sqlite::{Pattern, Sqlite};

/// Services of a full run.
const SERVICES: usize = 100_000;
/// Services of a quick one.
const SERVICES_QUICK: usize = 10_000;
/// Triples of a service.
const TRIPLES: usize = 30;
/// Triples that the registry derives from a service's own fields.
const OWN_TRIPLES: usize = 8;
/// The longest median of a search in medians of SQLite: it returns whole entities, 30 triples each, where
/// SQLite returns two columns.
const SEARCH_MOST: f64 = 20.0;
/// The longest median of two patterns in medians of SQLite.
const PATTERNS_MOST: f64 = 5.0;
/// Repeats of each question.
const REPEATS: usize = 1_000;

/// The parts of the scenario.
pub(crate) const PARTS: [&str; 4] = ["services", "rules", "paper", "largest"];

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("registry", settings.seed);
    let wants = |part: &str| settings.only.is_empty() || settings.only.iter().any(|it| it == part);
    if wants("services") {
        ask_services(settings, &mut report)?;
    }
    if wants("rules") {
        rules::run(settings, &mut report)?;
    }
    if wants("paper") {
        paper::run(settings, &mut report)?;
    }
    if wants("largest") {
        paper::run_largest(settings, &mut report)?;
    }
    Ok(report)
}

fn ask_services(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let services = if settings.quick {
        SERVICES_QUICK
    } else {
        SERVICES
    };
    let before = resident_bytes();
    (settings.progress)(&format!(
        "publishing {services} services of {TRIPLES} triples"
    ));
    let registry = fill(services, report)?;
    let statistics = registry.statistics();
    let triples = statistics.triples as f64;
    let held = statistics.memory_bytes as f64;
    let resident = resident_bytes().saturating_sub(before) as f64;
    report.row("services", services as f64, "", "");
    report.row(
        "triples",
        triples,
        "",
        format!("{} terms", statistics.terms),
    );
    report.row(
        "a triple, as counted",
        held / triples,
        "B",
        "indexes, terms, structure",
    );
    report.row(
        "a triple, resident",
        resident / triples,
        "B",
        "all the process grew by",
    );
    report.row("a service", held / services as f64, "B", "");
    (settings.progress)("searching");
    let questions = Questions {
        registry: &registry,
        sqlite: Sqlite::fill((0..services).map(service))?,
        services,
        offset: usize::try_from(settings.seed % 1_000).unwrap_or(0),
    };
    questions.ask(report)
}

fn fill(services: usize, report: &mut Report) -> Result<Registry, Error> {
    let failed = || Error::failed("publishing");
    // The journal is emptied at intervals, so that the memory is the registry's own.
    let journal = MemoryJournal::new();
    let emptied = || Error::failed("emptying the journal");
    let registry = Registry::open(journal.clone()).map_err(failed())?;
    let mut last = Vec::new();
    for number in 0..services {
        let entity = service(number);
        let start = Instant::now();
        let published = registry.publish(entity).map_err(failed())?;
        published.wait().map_err(failed())?;
        if number + REPEATS >= services {
            last.push(start.elapsed());
        }
        if number % 10_000 == 0 {
            journal
                .set_snapshot(registry.revision() + 1)
                .map_err(emptied())?;
        }
    }
    journal
        .set_snapshot(registry.revision() + 1)
        .map_err(emptied())?;
    report.times("publish, journal in memory", "the last ones", &last);
    Ok(registry)
}

/// The queries, each spread over all services.
struct Questions<'a> {
    registry: &'a Registry,
    sqlite: Sqlite,
    services: usize,
    offset: usize,
}

impl Questions<'_> {
    fn ask(&self, report: &mut Report) -> Result<(), Error> {
        let prefix_of = |repeat: usize| format!("Service {:05}", self.number(repeat) / 10);
        let search = |repeat: usize| {
            let search = Search {
                name_prefix: Some(prefix_of(repeat)),
                ..Search::default()
            };
            self.search(&search, 10)
        };
        let peer = |repeat: usize| self.sqlite.search(&prefix_of(repeat), 10);
        let name = ("search by prefix of the name", "ten entities");
        compare(report, name, search, peer, SEARCH_MOST)?;
        let typed = timing::each(REPEATS, |repeat| {
            let search = Search {
                entity_type: Some(format!("{{http://example.com/types}}Type{}", repeat % 50)),
                scope: Some(format!("http://example.com/plant/{}", repeat % 20)),
                limit: Some(20),
                ..Search::default()
            };
            self.search(&search, 20)
        })?;
        let note = "the first 20 of one in 100";
        report.times("search by type and scope", note, &typed);
        for rare_first in [true, false] {
            let patterns = |repeat: usize| {
                let mut patterns = [self.serial(repeat), maker(repeat % 100)];
                if !rare_first {
                    patterns.reverse();
                }
                patterns
            };
            let rows = |repeat: usize| self.rows(&patterns(repeat));
            // Its planner does not know which pattern is the rare one, so that one comes first.
            let peer = |repeat: usize| {
                let (serial, maker) = (self.serial(repeat), maker(repeat % 100));
                self.sqlite.rows([&serial, &maker])
            };
            let place = if rare_first { "first" } else { "last" };
            let name = format!("two patterns, the rare one {place}");
            compare(
                report,
                (name.as_str(), "one row"),
                rows,
                peer,
                PATTERNS_MOST,
            )?;
        }
        Ok(())
    }

    fn number(&self, repeat: usize) -> usize {
        (self.offset + repeat * 7_919) % self.services
    }

    fn search(&self, search: &Search, wanted: usize) -> Result<(), Error> {
        let found = self.registry.search(search, &Principal::Anonymous).entities;
        if found.len() == wanted {
            return Ok(());
        }
        let what = format!("{search:?} found {} instead of {wanted}", found.len());
        Err(Error::Failed(what))
    }

    /// The serial number of a service whose maker is that of `repeat`.
    fn serial(&self, repeat: usize) -> Pattern {
        serial_number(self.number(repeat) / 100 * 100 + repeat % 100)
    }

    fn rows(&self, patterns: &[Pattern]) -> Result<(), Error> {
        let patterns = patterns
            .iter()
            .map(|(predicate, object)| format!("?s {predicate} {object}"));
        let query = format!(
            "SELECT * {{ {} }}",
            patterns.collect::<Vec<_>>().join(" . ")
        );
        let (anyone, limits) = (Principal::Anonymous, SparqlLimits::default());
        let answer = self
            .registry
            .sparql(&query, &anyone, &limits, &Interrupt::never());
        match answer.map_err(Error::failed("asking in SPARQL"))? {
            SparqlAnswer::Solutions { rows, .. } if rows.len() == 1 => Ok(()),
            other => Err(Error::Failed(format!("{query} gave {other:?}"))),
        }
    }
}

/// Asks the registry and SQLite the same, and compares their medians.
fn compare(
    report: &mut Report,
    (name, note): (&str, &str),
    ours: impl FnMut(usize) -> Result<(), Error>,
    peer: impl FnMut(usize) -> Result<(), Error>,
    most: f64,
) -> Result<(), Error> {
    let (median, _) = report.times(name, note, &timing::each(REPEATS, ours)?);
    let peer = timing::each(REPEATS, peer)?;
    let (peer, _) = report.times(&format!("peer SQLite: {name}"), note, &peer);
    let sqlite = Reference::new("SQLite", peer);
    let measured = (median, "ms");
    report.target(
        format!("{name}, p50"),
        measured,
        sqlite,
        Limit::AtMost(most),
    );
    Ok(())
}

fn serial_number(number: usize) -> Pattern {
    let predicate = vocabulary::SERIAL_NUMBER.to_string();
    (predicate, format!("\"SN-{number:09}\""))
}

fn maker(number: usize) -> Pattern {
    let predicate = vocabulary::MANUFACTURER.to_string();
    (predicate, format!("<http://example.com/maker/{number}>"))
}

fn iri(text: String) -> NamedNode {
    NamedNode::new_unchecked(text)
}

/// A service of [`TRIPLES`] triples: those of its own fields, and fields described by blank nodes.
fn service(number: usize) -> Entity {
    let key = format!(
        "urn:uuid:{:08x}-7e1d-4c5b-9a00-{number:012x}",
        number * 2_654_435_761
    );
    let subject = iri(key.clone());
    let mut entity = Entity::new(
        key,
        EntityKind::Service,
        format!("Service {number:06} of ward"),
    );
    entity.types = vec![format!("{{http://example.com/types}}Type{}", number % 50)];
    entity.scopes = vec![
        format!("http://example.com/plant/{}/{}", number % 20, number % 400),
        format!("http://example.com/line/{}", number % 7),
    ];
    let say = |list: &mut Vec<Triple>, predicate: NamedNodeRef<'_>, object: Term| {
        list.push(Triple::new(subject.clone(), predicate.into_owned(), object));
    };
    let text = |text: String| Term::from(Literal::new_simple_literal(text));
    let list = &mut entity.triples;
    let maker = format!("http://example.com/maker/{}", number % 100);
    say(list, vocabulary::MANUFACTURER, iri(maker).into());
    let host = format!("urn:uuid:{:032x}", number / 4);
    say(list, vocabulary::IS_HOSTED_BY, iri(host).into());
    say(
        list,
        vocabulary::SERIAL_NUMBER,
        text(format!("SN-{number:09}")),
    );
    let address = format!(
        "http://10.{}.{}.{}/s",
        number >> 16,
        (number >> 8) & 255,
        number & 255
    );
    say(list, vocabulary::ADDRESS, text(address));
    describe_fields(&mut entity, number);
    entity.triples.truncate(TRIPLES - OWN_TRIPLES);
    entity
}

/// Fields like those of a stream, until there are enough triples.
fn describe_fields(entity: &mut Entity, number: usize) {
    let subject = iri(entity.key.clone());
    let text = |text: String| Term::from(Literal::new_simple_literal(text));
    let mut field = 0;
    while entity.triples.len() + OWN_TRIPLES < TRIPLES {
        let node = BlankNode::new_unchecked(format!("f{field}"));
        let list = &mut entity.triples;
        let mut about = |predicate: NamedNodeRef<'_>, object: Term| {
            list.push(Triple::new(node.clone(), predicate.into_owned(), object));
        };
        about(vocabulary::FIELD_NAME, text(format!("field{field}")));
        let property = format!(
            "http://example.com/property/{}",
            (number * 31 + field) % 1_000
        );
        about(vocabulary::OBSERVED_PROPERTY, iri(property).into());
        about(vocabulary::UNIT, text(format!("unit{}", field % 30)));
        about(
            vocabulary::RDFS_COMMENT,
            text(format!("reading {field} of service {number}")),
        );
        list.push(Triple::new(
            subject.clone(),
            vocabulary::FIELD.into_owned(),
            node,
        ));
        field += 1;
    }
}
