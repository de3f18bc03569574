//! The registry at size: synthetic services in memory, searches and a two-pattern SPARQL query in
//! either order of its patterns. The journal is in memory, so that its durability costs nothing
//! here; the triples counted include those that the registry makes of an entity's fields.

use std::time::{Duration, Instant};

use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, Term, Triple};
use chappe_registry::{
    Entity, EntityKind, Interrupt, Journal, MemoryJournal, Principal, Registry, Search,
    SparqlAnswer, SparqlLimits, vocabulary,
};
use chappe_transport::resident_bytes;

use crate::{Bound, Error, Report, Settings};

/// Services of a whole run.
const SERVICES: usize = 100_000;
/// Services of a quick one.
const SERVICES_QUICK: usize = 10_000;
/// Triples of a service.
const TRIPLES: usize = 30;
/// Triples that the registry makes of a service's own fields.
const OWN_TRIPLES: usize = 8;
/// Repeats of each question.
const REPEATS: usize = 1_000;

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("registry", settings.seed);
    let services = if settings.quick {
        SERVICES_QUICK
    } else {
        SERVICES
    };
    let before = resident_bytes();
    (settings.progress)(&format!(
        "publishing {services} services of {TRIPLES} triples"
    ));
    let registry = fill(services, &mut report)?;
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
        services,
        offset: usize::try_from(settings.seed % 1_000).unwrap_or(0),
    };
    questions.ask(&mut report)?;
    report
        .skipped
        .push("jUDDI: is not run yet; neither are durable publishing and signatures".to_owned());
    Ok(report)
}

fn fill(services: usize, report: &mut Report) -> Result<Registry, Error> {
    let failed = || Error::failed("publishing");
    // The journal is emptied now and then, so that the memory is the registry's own.
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

/// The questions, each spread over all services.
struct Questions<'a> {
    registry: &'a Registry,
    services: usize,
    offset: usize,
}

impl Questions<'_> {
    fn ask(&self, report: &mut Report) -> Result<(), Error> {
        let prefix = times(|repeat| {
            let number = self.number(repeat) / 10;
            let prefix = Search {
                name_prefix: Some(format!("service {number:05}")),
                ..Search::default()
            };
            self.search(&prefix, 10)
        })?;
        let note = "ten services begin so";
        let (median, _) = report.times("search by prefix of the name", note, &prefix);
        report.target("search by prefix, p50", median, Bound::AtMost(1.0), "ms");
        let typed = times(|repeat| {
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
        let first = times(|n| self.rows(&[self.serial(n), maker(n)]))?;
        let last = times(|n| self.rows(&[maker(n), self.serial(n)]))?;
        let note = "one row";
        let name = "two patterns, the rare one first";
        let (median, _) = report.times(name, note, &first);
        report.target(&format!("{name}, p50"), median, Bound::AtMost(1.0), "ms");
        let name = "two patterns, the rare one last";
        let (median, _) = report.times(name, note, &last);
        report.target(&format!("{name}, p50"), median, Bound::AtMost(1.0), "ms");
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
    fn serial(&self, repeat: usize) -> String {
        let number = self.number(repeat) / 100 * 100 + repeat % 100;
        let chappe = vocabulary::CHAPPE;
        format!("?s <{chappe}serialNumber> \"SN-{number:09}\"")
    }

    fn rows(&self, patterns: &[String]) -> Result<(), Error> {
        let query = format!("SELECT * {{ {} }}", patterns.join(" . "));
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

fn maker(repeat: usize) -> String {
    let chappe = vocabulary::CHAPPE;
    let maker = repeat % 100;
    format!("?s <{chappe}manufacturer> <http://example.com/maker/{maker}>")
}

fn times(mut question: impl FnMut(usize) -> Result<(), Error>) -> Result<Vec<Duration>, Error> {
    let mut times = Vec::with_capacity(REPEATS);
    for repeat in 0..REPEATS {
        let start = Instant::now();
        question(repeat)?;
        times.push(start.elapsed());
    }
    Ok(times)
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

/// Fields as a stream has them, until there are enough triples.
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
