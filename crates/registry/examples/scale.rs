//! Scale of the registry in memory: synthetic services, prefix search and a two-pattern SPARQL query
//! in either order. Prints one line of JSON.
//!
//! `cargo run --release -p chappe-registry --example scale -- [SERVICES] [TRIPLES]`, by default
//! 100,000 services of 30 triples. The triples counted include those the registry makes of an
//! entity's fields. Limit to reach: 1 ms for each question.

#![allow(
    clippy::disallowed_methods,
    reason = "an example that measures reads the clock"
)]

use std::time::{Duration, Instant};

use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, Term, Triple};
use chappe_registry::{
    Entity, EntityKind, Interrupt, MemoryJournal, Principal, Registry, Search, SparqlAnswer,
    SparqlLimits, vocabulary,
};

/// Repeats of each question.
const REPEATS: usize = 200;

fn iri(text: String) -> NamedNode {
    NamedNode::new_unchecked(text)
}

/// A service with its fields' triples (8) and fields described by blank nodes, up to `triples`.
fn service(number: usize, triples: usize) -> Entity {
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
    let mut field = 0;
    while entity.triples.len() + 8 < triples {
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
    entity.triples.truncate(triples.saturating_sub(8));
    entity
}

/// Median and 99th percentile in microseconds.
fn measure(mut question: impl FnMut(usize)) -> (f64, f64) {
    let mut times: Vec<Duration> = (0..REPEATS)
        .map(|repeat| {
            let start = Instant::now();
            question(repeat);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |part: usize| times[REPEATS * part / 100].as_secs_f64() * 1e6;
    (at(50), at(99))
}

/// Resident bytes of this process by the operating system's account, 0 when it has none.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn rows(registry: &Registry, query: &str) -> usize {
    let limits = SparqlLimits::default();
    let answer = registry.sparql(query, &Principal::Anonymous, &limits, &Interrupt::never());
    match answer {
        Ok(SparqlAnswer::Solutions { rows, .. }) => rows.len(),
        Ok(SparqlAnswer::Boolean(_)) => 1,
        Err(error) => panic!("the example's own query failed: {error}"),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let services: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let triples: usize = arguments.next().map_or(Ok(30), |text| text.parse())?;
    // The journal is emptied now and then, so that the memory is the registry's own.
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone())?;
    let start = Instant::now();
    let mut last = (Duration::ZERO, 0);
    for number in 0..services {
        let entity = service(number, triples);
        let begin = Instant::now();
        registry.publish(entity)?.wait()?;
        if number + 1_000 >= services {
            last = (last.0 + begin.elapsed(), last.1 + 1);
        }
        if number % 10_000 == 0 {
            chappe_registry::Journal::set_snapshot(&journal, registry.revision() + 1)?;
        }
    }
    let load = start.elapsed();
    chappe_registry::Journal::set_snapshot(&journal, registry.revision() + 1)?;
    let resident = resident_bytes();
    let anyone = Principal::Anonymous;
    let spread = |repeat: usize| (repeat * 7_919) % services;
    let prefix = measure(|repeat| {
        let name_prefix = Some(format!("service {:05}", spread(repeat) / 10));
        let search = Search {
            name_prefix,
            ..Search::default()
        };
        assert!(!registry.search(&search, &anyone).entities.is_empty());
    });
    let by_type = measure(|repeat| {
        let entity_type = Some(format!("{{http://example.com/types}}Type{}", repeat % 50));
        let scope = Some(format!("http://example.com/plant/{}", repeat % 20));
        let search = Search {
            entity_type,
            scope,
            limit: Some(20),
            ..Search::default()
        };
        assert!(registry.search(&search, &anyone).entities.len() <= 20);
    });
    let c = vocabulary::CHAPPE;
    let maker = |repeat| {
        format!(
            "?s <{c}manufacturer> <http://example.com/maker/{}>",
            repeat % 100
        )
    };
    let serial = |repeat| {
        format!(
            "?s <{c}serialNumber> \"SN-{:09}\"",
            spread(repeat) / 100 * 100 + repeat % 100
        )
    };
    let selective_first = measure(|repeat| {
        let query = format!("SELECT * {{ {} . {} }}", serial(repeat), maker(repeat));
        assert_eq!(rows(&registry, &query), 1);
    });
    let selective_last = measure(|repeat| {
        let query = format!("SELECT * {{ {} . {} }}", maker(repeat), serial(repeat));
        assert_eq!(rows(&registry, &query), 1);
    });
    let statistics = registry.statistics();
    let per_triple = statistics.memory_bytes as f64 / statistics.triples as f64;
    let micros =
        |(median, high): (f64, f64)| format!("{{\"p50\": {median:.1}, \"p99\": {high:.1}}}");
    println!(
        "{{\"services\": {services}, \"triples_per_service\": {}, \"terms\": {}, \
         \"bytes_per_triple\": {per_triple:.1}, \"resident_bytes_per_triple\": {:.1}, \
         \"bytes_per_service\": {:.0}, \"load_s\": {:.1}, \"publish_us_mean_last_1000\": {:.1}, \
         \"prefix_search_us\": {}, \"type_and_scope_search_us\": {}, \
         \"two_patterns_selective_first_us\": {}, \"two_patterns_selective_last_us\": {}}}",
        statistics.triples / services.max(1),
        statistics.terms,
        resident as f64 / statistics.triples as f64,
        statistics.memory_bytes as f64 / services as f64,
        load.as_secs_f64(),
        last.0.as_secs_f64() * 1e6 / f64::from(last.1.max(1)),
        micros(prefix),
        micros(by_type),
        micros(selective_first),
        micros(selective_last),
    );
    Ok(())
}
