//! The suite compared with EXIficient: the jobs for it and their results.
//!
//! `jobs` encodes every case and writes a list of jobs, one a line, for the Java program in
//! `check/exi`; `results` reads its output. Each implementation must decode the other's streams to
//! the same document.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_exi::{
    Decoder, Encoder, Event, HeaderOptions, Name, Options, Profile, Schema, Value, text,
};

use crate::case::{Case, Schemas, trimmed};
use crate::infoset::{self, Item};
use crate::own;

/// The files of a case.
struct Place {
    ours: PathBuf,
    events: PathBuf,
    theirs: PathBuf,
    source: PathBuf,
}

impl Place {
    fn of(work: &Path, number: usize) -> Self {
        Self {
            ours: work.join(format!("ours-{number}.exi")),
            events: work.join(format!("events-{number}.txt")),
            theirs: work.join(format!("theirs-{number}.exi")),
            source: work.join(format!("source-{number}.xml")),
        }
    }
}

/// Encodes every case and writes the list of jobs.
pub(crate) fn jobs(cases: &[Case], work: &Path) {
    let mut schemas = Schemas::default();
    let mut list = String::new();
    for (number, case) in cases.iter().enumerate() {
        let place = Place::of(work, number);
        let stream = case.ours(&mut schemas).expect("every case encodes");
        std::fs::write(&place.ours, stream).expect("the work directory can be written");
        let source = match case.changed_source() {
            Some(source) => {
                std::fs::write(&place.source, source).expect("the work directory can be written");
                place.source
            }
            None => case.source_path().to_owned(),
        };
        for (what, from, to) in [
            ("decode", &place.ours, &place.events),
            ("encode", &source, &place.theirs),
        ] {
            let (job, from, to) = (case.job(), from.display(), to.display());
            // Writing to a string does not fail.
            let base = case.source_path().display();
            let _ = writeln!(list, "{what}-{number}\t{what}\t{job}\t{from}\t{to}\t{base}");
        }
    }
    profile_jobs(work, &mut list);
    own::jobs(work, &mut list);
    std::fs::write(work.join("jobs"), list).expect("the work directory can be written");
}

/// The document for tests of the EXI Profile.
const LIMITED: &str = "<a x='1'><b y='2'>one</b><c>two<d/></c><b y='3'>one<e/></b><c z='4'>two</c>\
    <d/><d/><f>one</f><f>one</f></a>";

/// Local value partitions, built-in grammars, productions; -1 means no limit.
const PROFILES: [(bool, i32, i32); 8] = [
    (true, -1, -1),
    (false, -1, -1),
    (true, 0, -1),
    (true, 2, -1),
    (true, -1, 0),
    (false, 0, 0),
    (true, 100, 100),
    (true, 1, 9),
];

fn limited(number: usize) -> (Options, Vec<u8>) {
    let (local_value_partitions, grammars, productions) = PROFILES[number];
    let options = Options {
        profile: Some(Profile {
            local_value_partitions,
            maximum_number_of_built_in_element_grammars: u32::try_from(grammars).ok(),
            maximum_number_of_built_in_productions: u32::try_from(productions).ok(),
        })
        .filter(|profile| *profile != Profile::default()),
        ..Options::default()
    };
    let header = HeaderOptions {
        cookie: false,
        options: true,
    };
    let mut encoder = Encoder::new(Arc::new(Schema::built_in_types()));
    let made = text::encode(&mut encoder, &options, header, LIMITED.as_bytes());
    let made = made.expect("it is a document").to_vec();
    (options, made)
}

fn profile_jobs(work: &Path, list: &mut String) {
    let source = work.join("limited.xml");
    std::fs::write(&source, LIMITED).expect("the work directory can be written");
    for (number, (local, grammars, productions)) in PROFILES.iter().enumerate() {
        let ours = work.join(format!("limited-ours-{number}.exi"));
        std::fs::write(&ours, limited(number).1).expect("the work directory can be written");
        let profile = format!("{} {grammars} {productions}", u8::from(*local));
        for (what, from, to) in [
            ("decode", &ours, format!("limited-{number}.txt")),
            ("encode", &source, format!("limited-theirs-{number}.exi")),
        ] {
            let (from, to, base) = (from.display(), work.join(to), source.display());
            let to = to.display();
            let _ = writeln!(
                list,
                "limited-{what}-{number}\t{what}\t\to\t\t\t\t\t\t{from}\t{to}\t{base}\t{profile}"
            );
        }
    }
}

/// Streams within the limits of the EXI Profile: EXIficient decodes ours, and its streams have the
/// same bytes.
pub(crate) fn profiles(work: &Path) -> (usize, usize, Vec<String>) {
    let (mut read, mut same, mut failures) = (0, 0, Vec::new());
    for (number, profile) in PROFILES.iter().enumerate() {
        let (options, ours) = limited(number);
        let schema = Arc::new(Schema::built_in_types());
        let mut decoder = Decoder::new(schema);
        let mut reading = decoder.begin(&ours, None).expect("it has a header");
        assert_eq!(reading.options(), &options);
        let mut found = Vec::new();
        while let Some(event) = reading.next_event().expect("it decodes") {
            found.push(Item::of(&event));
        }
        let text = std::fs::read_to_string(work.join(format!("limited-{number}.txt")));
        let compared = text
            .map_err(|error| error.to_string())
            .and_then(|text| items(&text, true))
            .and_then(|wanted| infoset::compare(&wanted, &found, &options));
        match compared {
            Ok(()) => read += 1,
            Err(error) => failures.push(format!("they read {profile:?}: {error}")),
        }
        let theirs = std::fs::read(work.join(format!("limited-theirs-{number}.exi")));
        match theirs.unwrap_or_default() == ours {
            true => same += 1,
            false => failures.push(format!("other bytes under {profile:?}")),
        }
    }
    (read, same, failures)
}

/// The passes of each direction, and the failures.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) read_by_them: usize,
    pub(crate) read_by_us: usize,
    /// Number of documents that EXIficient refused to encode.
    pub(crate) not_encoded: usize,
    pub(crate) failures: Vec<String>,
}

/// Compares the results of EXIficient's jobs.
pub(crate) fn results(cases: &[Case], work: &Path) -> Results {
    let said = std::fs::read_to_string(work.join("said")).expect("EXIficient has said something");
    let said: BTreeMap<&str, &str> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let mut schemas = Schemas::default();
    let mut results = Results::default();
    for (number, case) in cases.iter().enumerate() {
        let place = Place::of(work, number);
        let of = |what: &str| match said.get(format!("{what}-{number}").as_str()) {
            Some(&"ok") => Ok(()),
            Some(error) => Err((*error).to_owned()),
            None => Err("nothing".to_owned()),
        };
        let read = of("decode").and_then(|()| {
            let ours = std::fs::read(&place.ours).map_err(|error| error.to_string())?;
            let (found, options) = case.decoded(&mut schemas, &ours)?;
            let text = std::fs::read_to_string(&place.events);
            let wanted = items(&text.map_err(|error| error.to_string())?, true)?;
            infoset::compare(&wanted, &without_subset(found), &options)
        });
        match read {
            Ok(()) => results.read_by_them += 1,
            Err(error) => results
                .failures
                .push(format!("they read {}: {error}", case.label)),
        }
        if of("encode").is_err() {
            results.not_encoded += 1;
            let error = of("encode").err().unwrap_or_default();
            println!("not encoded by EXIficient: {}: {error}", case.label);
            continue;
        }
        let theirs = std::fs::read(&place.theirs).expect("it was written");
        let read = case.wanted().and_then(|wanted| {
            let (found, options) = case.decoded(&mut schemas, &theirs)?;
            let found = without_space(without_subset(found));
            infoset::compare(&without_subset(wanted), &found, &options)
        });
        match read {
            Ok(()) => results.read_by_us += 1,
            Err(error) => results
                .failures
                .push(format!("we read {}: {error}", case.label)),
        }
    }
    results
}

/// SAX has no internal subset.
fn without_subset(mut items: Vec<Item>) -> Vec<Item> {
    for item in &mut items {
        if let Item::DocType { text, .. } = item {
            text.clear();
        }
    }
    items
}

/// Removes white space around texts, as in the sources.
fn without_space(items: Vec<Item>) -> Vec<Item> {
    let space = [' ', '\t', '\n', '\r'];
    let trimmed = items.into_iter().filter_map(|item| match item {
        Item::Text(content) => {
            let content = content.trimmed(&space);
            (!content.lexical.is_empty()).then_some(Item::Text(content))
        }
        item => Some(item),
    });
    trimmed.collect()
}

/// The events that EXIficient wrote, optionally without white space around texts.
pub(crate) fn items(lines: &str, trim: bool) -> Result<Vec<Item>, String> {
    let mut items = vec![Item::of(&Event::StartDocument)];
    for line in lines.split('\n').filter(|line| !line.is_empty()) {
        let fields: Vec<String> = line.split('\t').map(unescaped).collect();
        let field = |at: usize| fields.get(at).map_or("", String::as_str);
        let name = || Name {
            namespace: field(1),
            local: field(2),
            prefix: Some(field(3)),
        };
        let event = match field(0) {
            "start" => Event::StartElement(name()),
            "close" => Event::EndElement,
            "namespace" => Event::Namespace {
                prefix: field(1),
                namespace: field(2),
                of_element: false,
            },
            "attribute" => Event::Attribute(name(), Value::Text(field(4))),
            "text" => Event::Characters(Value::Text(field(1))),
            "comment" => Event::Comment(field(1)),
            "instruction" => Event::ProcessingInstruction {
                target: field(1),
                text: field(2),
            },
            "doctype" => Event::DocType {
                name: field(1),
                public: field(2),
                system: field(3),
                text: "",
            },
            "entity" => Event::EntityReference(field(1)),
            "end" => Event::EndDocument,
            other => return Err(format!("{other:?} is no event")),
        };
        let kept = if trim { trimmed(event) } else { Some(event) };
        items.extend(kept.map(|event| Item::of(&event)));
    }
    Ok(items)
}

fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut characters = field.chars();
    while let Some(character) = characters.next() {
        text.push(match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                other => other.unwrap_or('\\'),
            },
            (plain, false) => plain,
        });
    }
    text
}
