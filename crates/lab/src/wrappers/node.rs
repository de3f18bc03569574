//! A node in this program whose wrappers and exporters are measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chappe_node::Node;
use chappe_node::config::Config;

use crate::Error;

/// Time between two looks at what is measured.
const LOOK: Duration = Duration::from_millis(2);
/// The longest run.
const PATIENCE: Duration = Duration::from_secs(600);

/// A folder below another one that is not there yet.
pub(super) fn fresh(folder: &Path) -> PathBuf {
    let mut numbers = 0_u32..;
    let path = |number| folder.join(format!("node-{number}"));
    let mut free = numbers.by_ref().map(path).filter(|path| !path.exists());
    free.next().unwrap_or_else(|| folder.join("node"))
}

/// Writes a file below a folder.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(name);
    let parent = path.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent).map_err(Error::io("making a folder"))?;
    std::fs::write(&path, text).map_err(Error::io(format!("writing {name}")))
}

/// The configuration of a node in a folder.
pub(crate) fn config(folder: &Path) -> Config {
    let mut config = Config {
        data_directory: folder.join("data"),
        sensors_directory: folder.join("sensors"),
        wrappers_directory: folder.join("wrappers"),
        exporters_directory: folder.join("exporters"),
        ..Config::default()
    };
    config.http.listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    config.discovery.enabled = false;
    config.log.keep_age_s = 0;
    config
}

/// Runs work beside a node.
pub(crate) fn with<T>(
    config: Config,
    work: impl AsyncFnOnce(&Node) -> Result<T, Error>,
) -> Result<T, Error> {
    let runtime = chappe_node::runtime().map_err(Error::io("starting a runtime"))?;
    runtime.block_on(async {
        let node = Node::start(config).await;
        let node = node.map_err(Error::failed("starting a node"))?;
        let done = tokio::time::timeout(PATIENCE, work(&node)).await;
        let ended = node.shutdown().await;
        ended.map_err(Error::failed("ending the node"))?;
        done.unwrap_or_else(|_| Err(Error::Failed("it does not come to an end".to_owned())))
    })
}

/// Elements per second that are stored in the stream `bench`, from the first to the last of `lines`, by wrappers
/// with these names and files.
pub(super) fn stored(folder: &Path, wrappers: &[(&str, &str)], lines: usize) -> Result<f64, Error> {
    let folder = fresh(folder);
    for (name, text) in wrappers {
        write(&folder, &format!("wrappers/{name}.toml"), text)?;
    }
    let rate = with(config(&folder), async |node| {
        let log = loop {
            match node.stream("bench") {
                Some(log) if log.log().last() > 0 => break log,
                _ => tokio::time::sleep(LOOK).await,
            }
        };
        // Those on their way to the disk have arrived before.
        let (start, first) = (Instant::now(), log.log().assigned());
        while log.log().last() < lines as u64 {
            tokio::time::sleep(LOOK).await;
        }
        Ok((lines as u64).saturating_sub(first) as f64 / start.elapsed().as_secs_f64())
    });
    // Each run has the disk to itself.
    let _ = std::fs::remove_dir_all(&folder);
    rate
}
