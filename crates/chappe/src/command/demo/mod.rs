//! `chappe demo`: a small plant of devices, each a process with its own loopback address, a node that
//! finds them, and a second node that reads all its streams over a link. It needs no network, no
//! configuration and no privileges.

mod files;
mod plant;
mod story;

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chappe_node::Node;
use chappe_node::config::Config;
use serde_json::json;
use tokio::sync::oneshot;

use crate::cli::Demo;
use crate::output::{self, Failure, Outcome};

use plant::Plant;

/// The second node starts after the first element, or after this time; reason: an element comes within a
/// second, unless the machine is busy.
const SECOND_NODE_AFTER_MAX: Duration = Duration::from_secs(2);

/// Runs the demonstration until a signal.
pub(crate) fn run(flags: Demo, json: bool) -> Outcome {
    let started = Instant::now();
    let folder = Folder::new(flags.data.as_deref())?;
    let devices = files::write(&folder.path).map_err(elsewhere)?;
    let config = configuration(&folder.path, &flags.listen)?;
    let runtime = chappe_node::runtime()?;
    runtime.block_on(async {
        let node = super::serve::start(config).await.map_err(own_flag)?;
        let address = node.url();
        let mut plant = Plant::start(&devices, json)?;
        let (send_first, first) = oneshot::channel();
        let story = tokio::spawn(story::narrate(address.clone(), started, send_first, json));
        let seconds = started.elapsed().as_secs_f64();
        if json {
            output::json(&json!({
                "event": "ready", "address": address, "seconds": seconds, "pid": std::process::id(),
                "folder": folder.path,
            }));
        } else {
            output::line(format_args!("{} device processes started", plant.len()));
            output::line(format_args!(
                "console: {address}   (Ctrl-C ends the demonstration)"
            ));
        }
        let mut archive = None;
        let second = async {
            // A node that starts waits for its disk, and the first one finds no device meanwhile.
            let _ = tokio::time::timeout(SECOND_NODE_AFTER_MAX, first).await;
            archive = Some(start_archive(&folder.path, &node, json).await?);
            std::future::pending::<Outcome>().await
        };
        let limit = async {
            match flags.run_for {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = chappe_node::shutdown_signal() => result?,
            () = limit => {}
            () = plant.watch(json) => {}
            result = second => result?,
        }
        output::progress("stopping");
        story.abort();
        plant.stop().await;
        if let Some(archive) = archive {
            archive.shutdown().await?;
        }
        node.shutdown().await?;
        Ok(())
    })
}

/// The configuration of a node on loopback only.
fn configuration(folder: &Path, listen: &str) -> Result<Config, Failure> {
    let loopback = chappe_transport::interfaces()?
        .into_iter()
        .find(|i| i.loopback && i.usable());
    let loopback = loopback.ok_or_else(|| {
        Failure::new("the loopback interface is down")
            .coded("interface_unusable")
            .hint("enable it: ip link set lo up")
    })?;
    let mut config = Config {
        name: "demo".into(),
        data_directory: folder.join("data"),
        sensors_directory: folder.join("sensors"),
        wrappers_directory: folder.join("wrappers"),
        exporters_directory: folder.join("exporters"),
        ..Config::default()
    };
    config.discovery.interfaces = vec![loopback.name];
    config.exchange.listen = "127.0.0.1:0".into();
    config.http.listen = listen.parse().map_err(|_| {
        Failure::new(format!("--listen {listen:?} is not an address with a port"))
            .coded("argument_invalid")
            .hint("write it as 127.0.0.1:8470; port 0 picks a free one")
    })?;
    if !config.http.listen.ip().is_loopback() {
        return Err(Failure::new(format!(
            "--listen {listen} is open to other machines, and the demonstration lets everyone read"
        ))
        .coded("argument_invalid")
        .hint(
            "use 127.0.0.1, or run a node with a token and TLS: chappe config sample > node.toml",
        ));
    }
    Ok(config)
}

/// Starts the second node and prints its address.
async fn start_archive(folder: &Path, origin: &Node, json: bool) -> Result<Node, Failure> {
    let archive = super::serve::start(archive(folder, origin)?).await?;
    let address = archive.url();
    if json {
        output::json(&json!({ "event": "archive", "address": address }));
    } else {
        output::line(format_args!("second node, linked to the first: {address}"));
    }
    Ok(archive)
}

/// The configuration of a second node, which reads all streams of the first.
fn archive(folder: &Path, origin: &Node) -> Result<Config, Failure> {
    let mut config = Config {
        name: "archive".into(),
        data_directory: folder.join("archive"),
        sensors_directory: folder.join("archive-sensors"),
        wrappers_directory: folder.join("archive-wrappers"),
        exporters_directory: folder.join("archive-exporters"),
        ..Config::default()
    };
    config.discovery.enabled = false;
    config.http.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    // The first node has all its elements too.
    config.log.level = chappe_log::Level::Process;
    let sessions = origin
        .listening()
        .into_iter()
        .find(|(what, _)| *what == "sessions");
    let address = sessions.map(|(_, address)| address).unwrap_or_default();
    let link = json!({ "name": "demo", "kind": "zeromq", "address": address, "streams": ["*"] });
    config.links = vec![serde_json::from_value(link)?];
    Ok(config)
}

/// The directory of the demonstration, removed at the end unless the user named it.
struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    fn new(named: Option<&Path>) -> Result<Self, Failure> {
        let (path, temporary) = match named {
            Some(path) => (path.to_owned(), false),
            None => (fresh_folder(&std::env::temp_dir())?, true),
        };
        std::fs::create_dir_all(&path).map_err(|error| cannot_make(&path, &error))?;
        let path = path.canonicalize()?;
        if temporary {
            output::remove_at_end(&path);
        }
        Ok(Self { path, temporary })
    }
}

fn cannot_make(path: &Path, error: &std::io::Error) -> Failure {
    elsewhere(output::refused("create", path, error))
}

fn elsewhere(failure: Failure) -> Failure {
    failure.hint(
        "name a directory that you can write, such as: chappe demo --data /dev/shm/chappe-demo",
    )
}

/// The failure of the node with the flag of this command: there is no `--set`.
fn own_flag(failure: Failure) -> Failure {
    match &failure.hint {
        Some(hint) if hint.contains("--set http.listen=") => {
            let hint = hint.replace("--set http.listen=", "chappe demo --listen ");
            failure.hint(hint)
        }
        _ => failure,
    }
}

/// Makes a directory with a random name below `parent`, for this user alone. An existing file, link
/// or directory of that name is never used.
fn fresh_folder(parent: &Path) -> Result<PathBuf, Failure> {
    loop {
        let number = chappe_transport::seed_number()?;
        let path = parent.join(format!("chappe-demo-{number:016x}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot_make(&path, &error)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
