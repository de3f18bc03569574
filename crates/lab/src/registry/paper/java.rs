//! The peers in Java: jUDDI, and Apache Jena with the same triples.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::service::Requests;
use super::soap::{Address, Soap};
use crate::checkout;
use crate::process::Process;

/// Time that jUDDI may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// The libraries of a peer: in the folder that a variable of the environment names, or where `check/registry/install`
/// puts them.
fn jars(peer: &str, variable: &str) -> Result<(PathBuf, PathBuf), String> {
    let root = checkout::root().ok_or("this is not a checkout")?;
    let named = std::env::var_os(variable).map(PathBuf::from);
    let jars = named.unwrap_or_else(|| root.join(format!("target/peers/jars-{peer}")));
    match jars.is_dir() {
        true => Ok((jars, root.join("check/registry"))),
        false => {
            Err("it is not installed (`check/registry/install target/peers` installs it)".into())
        }
    }
}

/// Compiles a program of `check/registry` into a folder.
fn compile(jars: &Path, source: &Path, classes: &Path) -> Result<(), String> {
    let output = Command::new("javac")
        .args(["-nowarn", "-cp"])
        .arg(format!("{}/*", jars.display()))
        .arg("-d")
        .arg(classes)
        .arg(source)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("javac: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "javac: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// jUDDI 3.3.10 with Derby on the disk, in one Java machine.
pub(super) struct Juddi {
    _process: Process,
    address: Address,
}

impl Juddi {
    /// Starts it in a folder; the reason why there is none is a text.
    pub(super) fn start(folder: &Path) -> Result<Self, String> {
        let (jars, sources) = jars("juddi", "CHAPPE_JUDDI")?;
        let (settings, classes) = (folder.join("settings"), folder.join("classes"));
        std::fs::create_dir_all(settings.join("META-INF")).map_err(text)?;
        let persistence = include_str!("persistence.xml")
            .replace(
                "JAR",
                &jars.join("juddi-core-3.3.10.jar").display().to_string(),
            )
            .replace("DATABASE", &folder.join("derby").display().to_string());
        let log = "log4j.rootLogger=OFF\n";
        for (name, text) in [
            ("META-INF/persistence.xml", persistence.as_str()),
            ("juddiv3.xml", include_str!("juddiv3.xml")),
            ("log4j.properties", log),
        ] {
            std::fs::write(settings.join(name), text).map_err(|error| error.to_string())?;
        }
        compile(&jars, &sources.join("JuddiPeer.java"), &classes)?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let port = port.map_err(text)?.port();
        let path = format!(
            "{}:{}:{}/*",
            settings.display(),
            classes.display(),
            jars.display()
        );
        let mut command = Command::new("java");
        command
            .current_dir(folder)
            .arg(format!(
                "-Dderby.stream.error.file={}",
                folder.join("derby.log").display()
            ))
            .args(["-cp", &path, "JuddiPeer", &port.to_string()]);
        let mut process = Process::start(&mut command, "jUDDI").map_err(text)?;
        let start = Instant::now();
        while process.line().map_err(text)? != "ready" {
            if start.elapsed() > START_TIMEOUT {
                return Err("it does not start".to_owned());
            }
        }
        let id = process.id();
        Ok(Self {
            _process: process,
            address: Address {
                host: format!("127.0.0.1:{port}"),
                inquiry: "/inquiry",
                publish: "/publish",
                process: Some(id),
            },
        })
    }

    pub(super) fn client(&self) -> Result<Soap, String> {
        Soap::connect(&self.address, ("root", "root"), None).map_err(text)
    }
}

/// A point of Jena's curve: services, milliseconds of publication and inquiry, bytes of the heap where it was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct JenaPoint {
    pub(super) services: usize,
    pub(super) publish_ms: f64,
    pub(super) inquire_ms: f64,
    pub(super) heap: Option<f64>,
}

/// Jena in memory or, in a folder, on TDB2.
pub(super) fn jena(
    folder: &Path,
    is_in_memory: bool,
    (services, step): (usize, usize),
    seed: u64,
) -> Result<Vec<JenaPoint>, String> {
    let (jars, sources) = jars("jena", "CHAPPE_JENA")?;
    let (classes, database) = (folder.join("classes"), folder.join("tdb2"));
    std::fs::create_dir_all(&database).map_err(text)?;
    compile(&jars, &sources.join("JenaPeer.java"), &classes)?;
    let template = folder.join("service.nt");
    let triples = Requests::new()
        .and_then(|requests| requests.triples())
        .map_err(text)?;
    std::fs::write(&template, triples).map_err(text)?;
    let store = match is_in_memory {
        true => "memory".to_owned(),
        false => database.display().to_string(),
    };
    let mut command = Command::new("java");
    command
        .arg("-cp")
        .arg(format!("{}:{}/*", classes.display(), jars.display()))
        .args(["JenaPeer", &store])
        .arg(&template)
        .args([services.to_string(), step.to_string(), seed.to_string()]);
    let mut process = Process::start(&mut command, "Jena").map_err(text)?;
    let mut points = Vec::new();
    loop {
        let line = process.line().map_err(text)?;
        if line == "done" {
            return Ok(points);
        }
        let fields: Vec<f64> = line
            .split(' ')
            .filter_map(|field| field.parse().ok())
            .collect();
        let [services, publish_ms, inquire_ms, heap] = fields[..] else {
            return Err(format!("it prints {line:?}"));
        };
        points.push(JenaPoint {
            services: services as usize,
            publish_ms,
            inquire_ms,
            heap: (heap > 0.0).then_some(heap),
        });
    }
}
