//! The measurements of the paper on GRIMOIRES, again: a hundred services are published, a hundred asked for at random,
//! and so on, over SOAP at a node and through the library, next to jUDDI and to Apache Jena, GRIMOIRES' store.
//!
//! All run on one processor: both ends of SOAP, and the peers in Java. Nodes store at level `power` and have no pause
//! between commits. A time is the median of a hundred publications (save_business, save_tModel, save_service) or
//! inquiries (find_service by name, get_serviceDetail).

mod java;
mod large;
mod library;
mod node;
mod outcome;
mod semantic;
mod service;
mod shared;
mod signed;
mod soap;
mod stores;
mod tables;
mod under_test;

use std::path::{Path, PathBuf};
use std::time::Duration;

use java::{JenaPoint, Juddi, jena};
use node::{Node, NodeStore};
use under_test::{Point, UnderTest as _, curve, inquiries, point};

use crate::pinned::Pinned;
use crate::process::Folder;
use crate::{Error, Report, Settings};

/// Services at which the paper's tables are.
const TABLE: usize = 2_000;
/// Services between two points.
const STEP: usize = 100;
/// Bytes of the records of one request, about.
const RECORD_BYTES: usize = 4_096;

/// How large everything is.
#[derive(Clone, Copy)]
struct Sizes {
    /// Services of the curves.
    curve: usize,
    /// Services in TDB2, which takes long for each.
    tdb2: usize,
    /// Services whose memory is measured.
    memory: usize,
    /// Services of the largest registry.
    large: usize,
    /// Services that are published with signatures: the node remembers 16,384 messages of one signer.
    signed: usize,
    /// Pieces of metadata on one entity.
    pieces: usize,
    /// Repeats where a single step is measured.
    repeats: usize,
}

const FULL: Sizes = Sizes {
    curve: 5_000,
    tdb2: 1_000,
    memory: 20_000,
    large: 100_000,
    signed: 2_000,
    pieces: 10_000,
    repeats: 300,
};
const QUICK: Sizes = Sizes {
    curve: 300,
    tdb2: 100,
    memory: 1_000,
    large: 2_000,
    signed: 200,
    pieces: 300,
    repeats: 50,
};

/// Changes of an entity's metadata, in ms.
#[derive(Default)]
struct Pieces {
    /// Attach, update, delete.
    steps: [f64; 3],
    /// The disk alone, meanwhile.
    fdatasync: f64,
}

/// The curves of the semantic publication.
#[derive(Default)]
struct Semantic {
    points: Vec<Point>,
    /// Both pieces of metadata of each service, in ms.
    attach: Vec<(usize, f64)>,
    /// A WSDL document, in ms.
    wsdl: Vec<(usize, f64)>,
    /// Inquiries by metadata, in ms.
    by_metadata: Vec<(usize, f64)>,
    rows: Vec<(&'static str, f64)>,
    /// Milliseconds of the server's processor for an inquiry.
    processor_ms: f64,
    /// Inquiries by metadata with the rare pattern first and last, and by name, in ms.
    orders: [f64; 3],
    /// With one piece and with many on the entity.
    pieces: [Pieces; 2],
}

/// A part that may have failed, with the reason.
type Part<T> = Result<T, String>;

/// All that was measured.
struct Outcome {
    sizes: Sizes,
    cryptography_ms: Part<f64>,
    library: Part<Vec<Point>>,
    levels: Vec<(&'static str, Part<Vec<Point>>)>,
    snapshots: Part<stores::Snapshots>,
    semantic: Part<Semantic>,
    juddi: Part<Vec<Point>>,
    jena: [(&'static str, Part<Vec<JenaPoint>>); 2],
    signed: Part<[Vec<Point>; 2]>,
    postgres: Part<shared::Postgres>,
    memory: Part<Vec<(usize, f64)>>,
}

struct Bench<'a> {
    settings: &'a Settings,
    sizes: Sizes,
    folder: &'a Path,
    program: PathBuf,
    random: fastrand::Rng,
}

/// Measures all but the largest registry.
pub(super) fn run(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let outcome = with_bench(settings, |bench| bench.measure())?;
    outcome.report(report);
    Ok(())
}

/// Measures only the largest registry.
pub(super) fn run_largest(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let large = with_bench(settings, |bench| bench.large())?;
    large.report(report);
    Ok(())
}

/// Calls `measure` on one processor.
fn with_bench<T>(
    settings: &Settings,
    measure: impl FnOnce(&mut Bench) -> Result<T, Error>,
) -> Result<T, Error> {
    let folder = Folder::new("paper")?;
    let program = node::program(settings)?;
    let program = program
        .canonicalize()
        .map_err(Error::io("finding the program"))?;
    let mut bench = Bench {
        settings,
        sizes: if settings.quick { QUICK } else { FULL },
        folder: folder.path(),
        program,
        random: fastrand::Rng::with_seed(settings.seed),
    };
    let _pinned = Pinned::new()?;
    measure(&mut bench)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The median of some times in milliseconds.
fn median_ms(times: &[Duration]) -> f64 {
    Point::median(times)
}

impl Bench<'_> {
    fn progress(&self, what: &str) {
        (self.settings.progress)(what);
    }

    fn subfolder(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.folder.join(name);
        std::fs::create_dir_all(&path).map_err(Error::io("making a folder"))?;
        Ok(path)
    }

    fn measure(&mut self) -> Result<Outcome, Error> {
        let size = (self.sizes.curve, STEP);
        self.progress("floors");
        let cryptography_ms = signed::bare_ms().map_err(text);
        self.progress("the library in memory");
        let library = self.in_memory(size).map_err(text);
        let levels = stores::LEVELS.map(|(name, level)| {
            self.progress(&format!("the library on a log, level {name}"));
            (name, self.on_log(name, level, size).map_err(text))
        });
        self.progress("snapshots");
        let snapshots = self.snapshots().map_err(text);
        self.progress("a node over SOAP, with metadata and WSDL");
        let semantic = self.semantic().map_err(text);
        self.progress("signed messages");
        let signed = self.signed().map_err(text);
        self.progress("jUDDI");
        let juddi = self.juddi(size);
        let jena = [("memory", true), ("TDB2", false)].map(|(name, is_in_memory)| {
            self.progress(&format!("Jena, {name}"));
            let folder = self.subfolder(&format!("jena-{name}")).map_err(text);
            let seed = self.settings.seed;
            let size = if is_in_memory {
                size
            } else {
                (self.sizes.tdb2, STEP)
            };
            (
                name,
                folder.and_then(|folder| jena(&folder, is_in_memory, size, seed)),
            )
        });
        self.progress("PostgreSQL");
        let postgres = self.postgres();
        self.progress("memory of a node");
        let memory = self.memory().map_err(text);
        Ok(Outcome {
            sizes: self.sizes,
            cryptography_ms,
            library,
            levels: levels.into(),
            snapshots,
            semantic,
            juddi,
            jena,
            signed,
            postgres,
            memory,
        })
    }

    fn juddi(&mut self, size: (usize, usize)) -> Part<Vec<Point>> {
        let folder = self.subfolder("juddi").map_err(text)?;
        let juddi = Juddi::start(&folder)?;
        curve(&mut juddi.client()?, size, &mut self.random).map_err(text)
    }

    /// The same services over SOAP without and with signatures.
    fn signed(&mut self) -> Result<[Vec<Point>; 2], Error> {
        let size = (self.sizes.signed, STEP);
        let node = |name: &str, is_signed| -> Result<Node, Error> {
            let folder = self.subfolder(name)?;
            Node::start(&self.program, &folder, &NodeStore::Log, is_signed)
        };
        let (plain, signed) = (node("unsigned", false)?, node("signed", true)?);
        let mut plain = plain.client()?.with_floor(plain.floor()?);
        let plain = curve(&mut plain, size, &mut self.random)?;
        let mut signed = signed.signing_client()?.with_floor(signed.floor()?);
        let signed = curve(&mut signed, size, &mut self.random)?;
        Ok([plain, signed])
    }

    /// The node over SOAP: each service gets metadata, each tenth a WSDL document.
    fn semantic(&mut self) -> Result<Semantic, Error> {
        let folder = self.subfolder("node")?;
        let node = Node::start(&self.program, &folder, &NodeStore::Log, false)?;
        let mut client = node.client()?.with_floor(node.floor()?);
        let mut measured = Semantic::default();
        let mut keys = Vec::new();
        for from in (0..self.sizes.curve).step_by(STEP) {
            let (point, given) = point(&mut client, (from, STEP), &mut self.random)?;
            measured.points.push(point);
            let (mut attach, mut wsdl) = (Vec::new(), Vec::new());
            for (number, keys) in given.iter().enumerate() {
                attach.extend(client.describe(&keys.service, from + number)?);
                if number % 10 == 0 {
                    wsdl.push(client.add_wsdl(from + number, None)?);
                }
            }
            keys.extend(given);
            let services = from + STEP;
            let mut found = Vec::new();
            for _ in 0..STEP {
                let number = self.random.usize(..services);
                found.push(client.inquire_by_metadata(number, true)?);
            }
            measured.attach.push((services, median_ms(&attach)));
            measured.wsdl.push((services, median_ms(&wsdl)));
            measured.by_metadata.push((services, median_ms(&found)));
        }
        let (services, repeats) = (keys.len(), self.sizes.repeats);
        // Inquiries alone, for the processor of the server.
        let before = node.processor_s();
        let by_name = inquiries(&mut client, services, repeats * 8, &mut self.random)?;
        let used = node.processor_s() - before;
        measured.processor_ms = used * 1e3 / by_name.len() as f64;
        let mut by = |is_rare_first| -> Result<f64, Error> {
            let times: Result<Vec<_>, Error> = (0..repeats)
                .map(|_| client.inquire_by_metadata(self.random.usize(..services), is_rare_first))
                .collect();
            Ok(median_ms(&times?))
        };
        measured.orders = [by(true)?, by(false)?, median_ms(&by_name)];
        let Some(subject) = keys.first() else {
            return Ok(measured);
        };
        let mut advert = Vec::new();
        for number in 0..repeats {
            advert.push(client.add_wsdl(number, Some(&subject.business))?);
        }
        measured
            .rows
            .push(("publish a service with its WSDL", median_ms(&advert)));
        measured.pieces[0] = pieces(&mut client, &subject.service, repeats)?;
        let many = keys[services / 2].service.clone();
        for number in 0..self.sizes.pieces {
            client.attach(&many, "", ("urn:bench:many", &format!("value {number}")))?;
        }
        measured.pieces[1] = pieces(&mut client, &many, repeats)?;
        Ok(measured)
    }
}

/// Attaches, updates and deletes pieces of an entity; the median of each in milliseconds.
fn pieces(client: &mut soap::Soap, subject: &str, repeats: usize) -> Result<Pieces, Error> {
    let mut times: [Vec<Duration>; 3] = Default::default();
    let mut floor: Vec<Duration> = Vec::new();
    for number in 0..repeats {
        const TYPE: &str = "urn:bench:piece";
        let (first, second) = (format!("{number}"), format!("again {number}"));
        let (key, time) = client.attach(subject, "", (TYPE, &first))?;
        times[0].push(time);
        times[1].push(client.attach(subject, &key, (TYPE, &second))?.1);
        times[2].push(client.detach(&key)?);
        floor.extend(client.floor()?);
    }
    Ok(Pieces {
        steps: times.map(|times| median_ms(&times)),
        fdatasync: median_ms(&floor),
    })
}
