//! A node under test: the program `chappe` in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::soap::{Address, Connection, Soap};
use super::{RECORD_BYTES, signed};
use crate::floor::Synced;
use crate::process::{self, Process};
use crate::{Error, Settings};

/// Where a node stores its registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeStore {
    Log,
    /// In the database of a URL.
    Postgres(String),
}

/// A running node.
pub(super) struct Node {
    process: Process,
    pub(super) address: Address,
    pub(super) token: String,
    /// Time from its start until it was ready.
    pub(super) opened_in: Duration,
    folder: PathBuf,
}

/// The configuration: durable at level `power`, without a pause between commits, room for 100,000 services.
fn configuration(name: &str, store: &NodeStore, is_signed: bool) -> String {
    let store = match store {
        NodeStore::Log => "store = \"log\"".to_owned(),
        NodeStore::Postgres(url) => {
            format!("store = \"postgres\"\n[registry.postgres]\nurl = \"{url}\"")
        }
    };
    let signatures = match is_signed {
        false => "",
        true => {
            "[signatures]\ninquiry = \"required\"\npublication = \"required\"\n\
             documents = \"required\"\nmetadata = \"required\"\nauthorities = \"root.pem\"\n\
             certificate = \"own.pem\"\nkey = \"own.key\"\n"
        }
    };
    format!(
        "name = \"{name}\"\ndata_directory = \"data\"\nsensors_directory = \"sensors\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
         [discovery]\nenabled = false\n[log]\ncommit_pause_ms = 0\n[accounts]\nbytes_percent = 100\n{signatures}[registry]\nmax_bytes = 4294967295\n\
         max_entities = 1000000\n{store}\n"
    )
}

impl Node {
    /// Starts a node in a folder, or one that was there before again.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        store: &NodeStore,
        is_signed: bool,
    ) -> Result<Self, Error> {
        let writing = || Error::io("writing the configuration of a node");
        std::fs::create_dir_all(folder.join("sensors")).map_err(writing())?;
        let name = folder.file_name().map(|name| name.to_string_lossy());
        let text = configuration(&name.unwrap_or_default(), store, is_signed);
        let file = folder.join("node.toml");
        std::fs::write(&file, text).map_err(writing())?;
        if is_signed {
            let chain = format!("{}{}", signed::CERTIFICATE, signed::INTERMEDIATE);
            for (name, text) in [
                ("root.pem", signed::ROOT),
                ("own.pem", &chain),
                ("own.key", signed::KEY),
            ] {
                std::fs::write(folder.join(name), text).map_err(writing())?;
            }
            let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(folder.join("own.key"), only_owner).map_err(writing())?;
        }
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .arg("serve")
            .arg(&file)
            .arg("--json");
        let start = Instant::now();
        let mut process = Process::start_with_errors(&mut command, "a node")?;
        let host = loop {
            let line = process.line()?;
            let Ok(event) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if event["event"] == "ready" {
                let address = event["address"].as_str().unwrap_or_default();
                break address
                    .trim_start_matches("http://")
                    .trim_end_matches('/')
                    .to_owned();
            }
        };
        let opened_in = start.elapsed();
        let token = std::fs::read_to_string(folder.join("data/new-token"));
        let token = token.map_err(Error::io("reading the token of a node"))?;
        let id = process.id();
        Ok(Self {
            process,
            address: Address {
                host,
                inquiry: "/uddi/inquiry",
                publish: "/uddi/publish",
                process: Some(id),
            },
            token: token.trim().to_owned(),
            opened_in,
            folder: folder.to_owned(),
        })
    }

    /// A client of its operator.
    pub(super) fn client(&self) -> Result<Soap, Error> {
        Soap::connect(&self.address, ("operator", &self.token), None)
    }

    /// The floor of its changes, at its disk.
    pub(super) fn floor(&self) -> Result<Synced, Error> {
        Synced::create(&self.folder.join("floor"), RECORD_BYTES)
    }

    /// A client that signs, of an account that is recognized by its certificate.
    pub(super) fn signing_client(&self) -> Result<Soap, Error> {
        let account = serde_json::json!({"name": "ada", "roles": ["read", "write"],
            "certificate": signed::SUBJECT});
        let fields = format!(
            "Authorization: Bearer {}\r\nContent-Type: application/json\r\n",
            self.token
        );
        let mut connection = Connection::open(&self.address.host)?;
        connection.request("POST", "/api/v1/accounts", &fields, &account.to_string())?;
        Soap::connect(&self.address, ("", ""), Some(signed::Signing::new()?))
    }

    /// Processor time so far in seconds.
    pub(super) fn processor_s(&self) -> f64 {
        process::processor_s(self.process.id())
    }

    /// Syncs of its logs so far: the registry's, and that of the audit stream.
    pub(super) fn syncs(&self) -> Result<f64, Error> {
        let mut connection = Connection::open(&self.address.host)?;
        let text = connection.request("GET", "/metrics", "", "")?;
        let names = ["chappe_registry_syncs_total ", "chappe_log_syncs_total "];
        let counted = names.map(|name| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<f64>().ok()
        });
        let missing = || Error::Failed("the node's metrics have no syncs of its logs".to_owned());
        counted.into_iter().sum::<Option<f64>>().ok_or_else(missing)
    }

    pub(super) fn resident(&self) -> Result<u64, Error> {
        self.process.memory("VmRSS")
    }
}

/// The program under test.
pub(super) fn program(settings: &Settings) -> Result<PathBuf, Error> {
    settings.chappe()
}
