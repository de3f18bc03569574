//! What access rules cost: the same streams under one rule, under a hundred, and under ten thousand, asked by a caller
//! who may see all of them. The operator sees everything, and binds the sources of virtual sensors; an owner sees what
//! is its own. Both read the same indexes however many rules there are, which is a target. A reader is named by each
//! rule and reads the indexes of each; its times have no target, but the number of rules has a limit.

use chappe_registry::oxrdf::{Literal, NamedNode, NamedNodeRef, Term, Triple};
use chappe_registry::{
    Access, Entity, EntityKind, Interrupt, Journal as _, MemoryJournal, Principal, Registry,
    Search, SparqlAnswer, SparqlError, SparqlLimits, vocabulary,
};

use crate::{Error, Limit, Reference, Report, Settings, timing};

/// Streams of each registry.
const STREAMS: usize = 20_000;
/// Repeats of each question.
const REPEATS: usize = 300;
const REPEATS_QUICK: usize = 60;
/// The longest median under many rules in medians under one.
const MOST: f64 = 2.0;
/// The most rules that may name one reader.
const RULES_OF_READER: usize = 256;
/// Distinct types; each has so many of the streams.
const TYPES: usize = 50;
/// Distinct observed properties.
const PROPERTIES: usize = 1_000;

/// Who asks.
#[derive(Clone, Copy)]
enum Asking {
    Operator,
    Owner,
    Reader,
}

impl Asking {
    const ALL: [Self; 3] = [Self::Operator, Self::Owner, Self::Reader];

    fn name(self) -> &'static str {
        match self {
            Self::Operator => "the operator",
            Self::Owner => "an owner",
            Self::Reader => "a reader",
        }
    }

    fn principal(self) -> Principal {
        match self {
            Self::Operator => Principal::Operator,
            Self::Owner => Principal::Named("ada".to_owned()),
            Self::Reader => Principal::Named("eve".to_owned()),
        }
    }

    /// The owner and the access of rule `number`.
    fn rule(self, number: usize) -> (String, Access) {
        let readers =
            |names: &[&str]| Access::Readers(names.iter().map(|it| (*it).into()).collect());
        let distinct = format!("account{number}");
        match self {
            Self::Operator => (distinct, Access::Owner),
            Self::Owner => ("ada".to_owned(), readers(&[&distinct])),
            Self::Reader => ("bob".to_owned(), readers(&["eve", &distinct])),
        }
    }

    fn counts(self) -> [usize; 3] {
        match self {
            Self::Operator | Self::Owner => [1, 100, 10_000],
            Self::Reader => [1, 100, RULES_OF_READER],
        }
    }
}

/// Measures what the rules cost.
pub(super) fn run(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let repeats = if settings.quick {
        REPEATS_QUICK
    } else {
        REPEATS
    };
    for asking in Asking::ALL {
        let name = asking.name();
        let mut all: Vec<Questions> = Vec::new();
        for rules in asking.counts() {
            (settings.progress)(&format!("{STREAMS} streams, {rules} access rules, {name}"));
            let questions = Questions::new(asking, rules)?;
            let held = questions.registry.statistics().memory_bytes as f64;
            let title = format!("memory: {name}, {rules} access rules");
            report.row(&title, held / 1e6, "MB", "as counted");
            all.push(questions);
        }
        for (what, ask) in Questions::ALL {
            // In turn, so that the machine's load is that of all.
            let mut samples = vec![Vec::new(); all.len()];
            for repeat in 0..repeats {
                for (questions, samples) in all.iter().zip(&mut samples) {
                    samples.extend(timing::each(1, |_| ask(questions, repeat))?);
                }
            }
            let mut one = None;
            for (questions, samples) in all.iter().zip(&samples) {
                let title = format!("{what}: {name}, {} access rules", questions.rules);
                let (median, _) = report.times(&title, "", samples);
                let one = *one.get_or_insert(median);
                if questions.rules > 1 && !matches!(asking, Asking::Reader) {
                    let reference = Reference::new("one rule", one);
                    report.target(title, (median, "ms"), reference, Limit::AtMost(MOST));
                }
            }
        }
    }
    Ok(())
}

struct Questions {
    registry: Registry,
    asking: Asking,
    rules: usize,
    principal: Principal,
}

type Question = fn(&Questions, usize) -> Result<(), Error>;

impl Questions {
    const ALL: [(&'static str, Question); 6] = [
        ("search by prefix of the name", Self::by_name),
        ("first 20 by type and scope", Self::by_type),
        ("bind by type", Self::bind),
        ("bind by SPARQL", Self::bind_by_sparql),
        ("SPARQL, one row", Self::one_row),
        ("publish while a query reads", Self::publish),
    ];

    fn new(asking: Asking, rules: usize) -> Result<Self, Error> {
        let failed = || Error::failed("publishing");
        let journal = MemoryJournal::new();
        let registry = Registry::open(journal.clone()).map_err(failed())?;
        for number in 0..STREAMS {
            let entity = stream(number, asking.rule(number % rules));
            let published = registry.publish(entity).map_err(failed())?;
            published.wait().map_err(failed())?;
        }
        let emptied = journal.set_snapshot(registry.revision() + 1);
        emptied.map_err(Error::failed("emptying the journal"))?;
        let principal = asking.principal();
        Ok(Self {
            registry,
            asking,
            rules,
            principal,
        })
    }

    fn number(repeat: usize) -> usize {
        repeat * 7_919 % STREAMS
    }

    fn by_name(&self, repeat: usize) -> Result<(), Error> {
        let search = Search {
            name_prefix: Some(format!("Stream {:05}", Self::number(repeat) / 10)),
            ..Search::default()
        };
        self.expect(
            self.registry
                .search(&search, &self.principal)
                .entities
                .len(),
            10,
        )
    }

    fn by_type(&self, repeat: usize) -> Result<(), Error> {
        let search = Search {
            entity_type: Some(type_of(repeat % TYPES)),
            scope: Some("http://example.com/plant".to_owned()),
            limit: Some(20),
            ..Search::default()
        };
        self.expect(
            self.registry
                .search(&search, &self.principal)
                .entities
                .len(),
            20,
        )
    }

    fn bind(&self, repeat: usize) -> Result<(), Error> {
        let search = Search {
            kind: Some(EntityKind::Stream),
            entity_type: Some(type_of(repeat % TYPES)),
            ..Search::default()
        };
        let keys = self.registry.search_keys(&search, &self.principal);
        self.expect(keys.len(), STREAMS / TYPES)
    }

    fn bind_by_sparql(&self, repeat: usize) -> Result<(), Error> {
        let query = format!(
            "SELECT ?stream {{ ?stream {} {} . ?stream {} ?name }}",
            vocabulary::OBSERVES,
            property(repeat % PROPERTIES),
            vocabulary::RDFS_LABEL
        );
        self.rows(&query, STREAMS / PROPERTIES)
    }

    fn one_row(&self, repeat: usize) -> Result<(), Error> {
        let number = Self::number(repeat);
        let query = format!(
            "SELECT * {{ ?s {} {} . ?s {} \"SN-{number:09}\" }}",
            vocabulary::OBSERVES,
            property(number % PROPERTIES),
            vocabulary::SERIAL_NUMBER
        );
        self.rows(&query, 1)
    }

    /// The snapshot of a query makes a change copy what it touches.
    fn publish(&self, repeat: usize) -> Result<(), Error> {
        let number = Self::number(repeat);
        let mut entity = stream(number, self.asking.rule(number % self.rules));
        entity.types.push(format!("{{urn:x}}Repeat{repeat}"));
        let (registry, before) = (self.registry.clone(), self.registry.revision());
        let publishing = Interrupt::when(move || {
            let published = registry.publish(entity.clone());
            published.is_ok_and(|published| published.wait().is_ok())
        });
        let query = format!("SELECT * {{ ?s {} ?name }}", vocabulary::RDFS_LABEL);
        let limits = SparqlLimits::default();
        let ended = self
            .registry
            .sparql(&query, &self.principal, &limits, &publishing);
        match ended {
            Err(SparqlError::Interrupted) => {
                self.expect((self.registry.revision() - before) as usize, 1)
            }
            other => Err(Error::Failed(format!("{query}: {other:?}"))),
        }
    }

    fn rows(&self, query: &str, wanted: usize) -> Result<(), Error> {
        let limits = SparqlLimits::default();
        let answer = self
            .registry
            .sparql(query, &self.principal, &limits, &Interrupt::never());
        match answer.map_err(Error::failed("asking in SPARQL"))? {
            SparqlAnswer::Solutions { rows, .. } => self.expect(rows.len(), wanted),
            other => Err(Error::Failed(format!("{query}: {other:?}"))),
        }
    }

    fn expect(&self, found: usize, wanted: usize) -> Result<(), Error> {
        match found == wanted {
            true => Ok(()),
            false => Err(Error::Failed(format!("{found} found instead of {wanted}"))),
        }
    }
}

fn type_of(number: usize) -> String {
    format!("{{http://example.com/types}}Type{number}")
}

fn property(number: usize) -> NamedNode {
    NamedNode::new_unchecked(format!("http://example.com/property/{number}"))
}

/// A stream with twelve triples.
fn stream(number: usize, (owner, access): (String, Access)) -> Entity {
    let key = format!("urn:chappe:stream:s{number}");
    let subject = NamedNode::new_unchecked(key.as_str());
    let name = format!("Stream {number:06} of a ward");
    let mut entity = Entity::new(key, EntityKind::Stream, name);
    (entity.owner, entity.access) = (owner, access);
    entity.types = vec![type_of(number % TYPES)];
    entity.scopes = vec![format!("http://example.com/plant/{}", number % 400)];
    let mut say = |predicate: NamedNodeRef<'_>, object: Term| {
        let triple = Triple::new(subject.clone(), predicate.into_owned(), object);
        entity.triples.push(triple);
    };
    let text = |text: String| Term::from(Literal::new_simple_literal(text));
    say(vocabulary::OBSERVES, property(number % PROPERTIES).into());
    say(vocabulary::SERIAL_NUMBER, text(format!("SN-{number:09}")));
    let maker = format!("http://example.com/maker/{}", number % 100);
    say(
        vocabulary::MANUFACTURER,
        NamedNode::new_unchecked(maker).into(),
    );
    say(vocabulary::UNIT, text(format!("unit{}", number % 30)));
    let comment = format!("reading {number} of a ward");
    say(vocabulary::RDFS_COMMENT, text(comment));
    entity
}
