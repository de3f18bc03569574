//! `chappe init`: the configuration of a node, written from the devices that are found.
//!
//! A node finds devices by itself, so the file names none of them: it says where to search, and its comments list what
//! was found. It stays short, since every key has a default (`chappe config sample`).

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, absolute};

use chappe_node::config;
use chappe_terminal::counted;
use chappe_transport::tls::Usage;
use serde_json::{Value, json};

use super::config::FILE;
use super::find::clean;
use super::network;
use super::session::{Answer, Session};
use crate::cli::{DeviceTls, Init, Network};
use crate::output::{self, Failure, Outcome};

/// The JSON Schema next to the file, by which editors complete it.
const SCHEMA_FILE: &str = "node.schema.json";
/// Devices that the file lists; reason: it is to be read, and `chappe find` lists all.
const LISTED_MAX: usize = 20;
/// Ports that are tried for the console, from the default one on; reason: few nodes share a machine.
const PORTS: std::ops::RangeInclusive<u16> = 8470..=8479;

/// What to do when the file cannot be written.
const WRITABLE: &str = "name a directory that you can write: chappe init DIR";

/// A device that answered.
struct Device {
    name: String,
    endpoint: String,
    /// Why it is not usable.
    reason: Option<String>,
}

/// Searches, and writes the file.
pub(crate) fn run(flags: Init, json: bool) -> Outcome {
    let file = flags.directory.join(FILE);
    if file.exists() && !flags.force {
        let failure =
            Failure::new(format!("{} already exists", file.display())).coded("file_exists");
        return Err(failure.hint(existing(&flags.directory)));
    }
    refuse_one_time_flags(&flags.network)?;
    output::check_writable(&file).map_err(|failure| failure.hint(WRITABLE))?;
    network::block_on(async move {
        let mut devices = Vec::new();
        let found = tokio::select! {
            result = search(&flags.network, json, &mut devices) => result,
            result = network::interrupted() => result.and(Err(Failure::negative())),
        };
        found?;
        devices.sort_by(|one, other| one.name.cmp(&other.name));
        let text = text(&flags, &devices)?;
        // A name or an address with any characters leaves a valid file.
        config::load(&config::Layers {
            file: Some((file.clone(), text.clone())),
            environment: Vec::new(),
            flags: Vec::new(),
        })
        .map_err(super::config::failure)?;
        write(&flags, &text)?;
        report(&flags.directory, &devices, json);
        Ok(())
    })
}

/// Refuses places to search that a node does not have.
fn refuse_one_time_flags(network: &Network) -> Outcome {
    let refused = |flag: &str, hint: &str| {
        Err(
            Failure::new(format!("{flag} cannot be written to a configuration"))
                .coded("argument_invalid")
                .hint(hint),
        )
    };
    if !network.hosts.is_empty() {
        return refused(
            "--host",
            "a node finds devices by multicast, at a discovery proxy (--proxy), and at other nodes ([kad])",
        );
    }
    if !network.entrances.is_empty() || network.config.is_some() {
        return refused(
            "--entrance",
            "write the [kad] of the file: chappe config sample",
        );
    }
    Ok(())
}

async fn search(network: &Network, json: bool, devices: &mut Vec<Device>) -> Outcome {
    let session = Session::start(network)?;
    output::progress(format_args!("searching for {:?}", network.timeout));
    let take = |answer: Answer| {
        let (name, reason) = match &answer.description {
            Ok(description) => (description.name().to_owned(), None),
            Err(error) => (answer.found.endpoint.clone(), Some(error.to_string())),
        };
        if !json {
            let state = if reason.is_none() {
                "usable   "
            } else {
                "attention"
            };
            output::line(format_args!("{state}  {}", clean(&name)));
        }
        devices.push(Device {
            name,
            endpoint: answer.found.endpoint,
            reason,
        });
        true
    };
    session
        .search(Vec::new(), Default::default(), |_| true, take)
        .await?;
    session.close().await;
    Ok(())
}

/// The file: at most twelve lines that are not comments.
fn text(flags: &Init, devices: &[Device]) -> Result<String, Failure> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = match flags.name.as_deref().unwrap_or(host.trim()) {
        "" => "node",
        name => name,
    };
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let port = free_port();
    let mut text = format!(
        "#:schema ./{SCHEMA_FILE}\n\
         # A node of Chappe. Start it: chappe up. Every key with its default: chappe config sample\n\
         name = {}\n\
         data_directory = \"data\" # key, log and registry; relative to this file\n\
         \n\
         [http]\n\
         # The console and REST, on this machine alone. Other machines: chappe config sample, [access].\n\
         listen = \"127.0.0.1:{port}\"\n\
         \n\
         [discovery]\n",
        quoted(name)
    );
    let count = devices.len();
    text.push_str(match count {
        0 => "# No device answered; the node finds them when they appear. Why: chappe doctor\n",
        _ => "# The node subscribes to each device that it finds. These answered:\n",
    });
    for device in devices.iter().take(LISTED_MAX) {
        let name = one_line(&device.name);
        let state = match &device.reason {
            None => String::new(),
            Some(reason) => format!(", not usable: {}", one_line(reason)),
        };
        match name == one_line(&device.endpoint) {
            true => text.push_str(&format!("#   {name}{state}\n")),
            false => text.push_str(&format!(
                "#   {name}, {}{state}\n",
                one_line(&device.endpoint)
            )),
        }
    }
    if count > LISTED_MAX {
        text.push_str(&format!(
            "#   and {} more: chappe find\n",
            count - LISTED_MAX
        ));
    }
    let list = |items: Vec<String>| {
        let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
        items.join(", ")
    };
    let interfaces = &flags.network.interfaces;
    match interfaces.is_empty() {
        true => text.push_str("interfaces = [] # all with multicast\n"),
        false => text.push_str(&format!("interfaces = [{}]\n", list(interfaces.clone()))),
    }
    let proxies: Vec<String> = flags
        .network
        .proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    if !proxies.is_empty() {
        text.push_str(&format!("proxies = [{}]\n", list(proxies)));
    }
    let tls = tls(&flags.network.tls)?;
    if !tls.is_empty() {
        text.push_str(&format!("\n[devices.tls]\n{tls}"));
    }
    Ok(text)
}

/// The keys of `[devices.tls]` for the flags of the search: the node trusts whom the search trusted.
fn tls(flags: &DeviceTls) -> Result<toml::Table, Failure> {
    let mut keys = toml::Table::new();
    for (key, file) in [
        ("authorities", &flags.device_authorities),
        ("certificate", &flags.certificate),
        ("key", &flags.key),
        ("revocation_lists", &flags.revocation_lists),
    ] {
        if let Some(file) = file {
            // A key names a file relative to the configuration, a flag relative to the working directory.
            let path = absolute(file)?.display().to_string();
            keys.insert(key.to_owned(), path.into());
        }
    }
    let list = |items: &[Usage]| items.iter().map(ToString::to_string).collect();
    let trusted = flags.device_fingerprints.iter().map(ToString::to_string);
    for (key, texts) in [
        ("fingerprints", trusted.collect::<Vec<_>>()),
        ("usages", list(&flags.usages)),
        ("proxy_usages", list(&flags.proxy_usages)),
    ] {
        if !texts.is_empty() {
            keys.insert(key.to_owned(), texts.into());
        }
    }
    if flags.any_name {
        keys.insert("any_name".to_owned(), true.into());
    }
    Ok(keys)
}

/// Text of a device for a comment: one line without invisible characters, and not longer than a line should be.
fn one_line(text: &str) -> String {
    clean(text).chars().take(80).collect()
}

/// The first port of the console that no program uses now.
fn free_port() -> u16 {
    let is_free =
        |port: &u16| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).is_ok();
    PORTS.into_iter().find(is_free).unwrap_or(*PORTS.start())
}

fn write(flags: &Init, text: &str) -> Outcome {
    let directory = &flags.directory;
    let writable = |failure: Failure| match &*failure.error_code {
        // It was written during the search.
        "file_exists" => failure.hint(existing(directory)),
        _ => failure.hint(WRITABLE),
    };
    output::folder(directory).map_err(writable)?;
    let schema = serde_json::to_string_pretty(&config::schema())?;
    output::file(&directory.join(SCHEMA_FILE), &schema).map_err(writable)?;
    let file = directory.join(FILE);
    let written = match flags.force {
        true => output::file(&file, text),
        false => output::new_file(&file, text),
    };
    written.map_err(writable)
}

/// What to do about a configuration that exists.
fn existing(directory: &Path) -> String {
    let directory = directory.display();
    format!("start it: chappe up {directory}; or add --force to overwrite it")
}

fn report(directory: &Path, devices: &[Device], json: bool) {
    let usable = devices
        .iter()
        .filter(|device| device.reason.is_none())
        .count();
    let file = directory.join(FILE);
    if json {
        let device = |device: &Device| -> Value {
            json!({ "name": device.name, "endpoint": device.endpoint, "reason": device.reason })
        };
        output::json(&json!({
            "file": file,
            "schema": directory.join(SCHEMA_FILE),
            "seen": devices.len(),
            "usable": usable,
            "devices": devices.iter().map(device).collect::<Vec<_>>(),
        }));
    } else {
        output::line(format_args!(
            "wrote {}: {} seen, {usable} usable",
            file.display(),
            counted(devices.len(), "device")
        ));
    }
    let at = match directory == Path::new(".") {
        true => String::new(),
        false => format!(" {}", directory.display()),
    };
    output::progress(format_args!("next: chappe up{at}"));
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn flags(arguments: &[&str]) -> Init {
        let all = ["chappe", "init"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Init(flags) => flags,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_file_is_short_valid_and_lists_what_answered() {
        let name = "Pump \"7\"\n[http]\u{202e}";
        let device = |reason: Option<&str>| Device {
            name: name.to_owned(),
            endpoint: "urn:uuid:1".to_owned(),
            reason: reason.map(str::to_owned),
        };
        let mut many: Vec<Device> = (0..30).map(|_| device(None)).collect();
        many.push(device(Some("it\nrefuses")));
        let given = [
            "--name",
            name,
            "--interface",
            "eth\"0",
            "--proxy",
            "http://192.0.2.7:8474/",
            "--device-authorities",
            "plant/ca.pem",
            "--any-name",
        ];
        for (flags, devices) in [(flags(&[]), &many[..0]), (flags(&given), &many[..])] {
            let text = text(&flags, devices).unwrap();
            assert!(text.starts_with("#:schema "), "{text}");
            let lines = text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            assert!(lines.count() <= 12, "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() <= 130),
                "{text}"
            );
            let read: toml::Table = toml::from_str(&text).unwrap();
            assert_eq!(
                read["discovery"]["interfaces"].as_array().unwrap().len(),
                flags.network.interfaces.len()
            );
            let tls = read.get("devices").map(|devices| &devices["tls"]);
            let authorities = tls.and_then(|tls| tls["authorities"].as_str());
            assert_eq!(
                authorities.map(|path| Path::new(path).is_absolute()),
                flags.network.tls.device_authorities.map(|_| true)
            );
        }
    }

    #[test]
    fn the_help_lists_no_flag_that_is_refused() {
        let mut all = <Cli as clap::CommandFactory>::command();
        let init = all.find_subcommand_mut("init").unwrap();
        let help = init.render_long_help().to_string();
        assert!(help.contains("--proxy"), "{help}");
        for refused in ["--host", "--entrance", "--config"] {
            assert!(!help.contains(refused), "{refused}: {help}");
        }
    }

    #[test]
    fn flags_that_a_node_has_no_key_for_are_refused() {
        assert!(
            refuse_one_time_flags(&flags(&["--proxy", "http://192.0.2.7:8474/"]).network).is_ok()
        );
        for refused in [&["--host", "192.0.2.7"], &["--entrance", "192.0.2.7:8473"]] {
            assert!(refuse_one_time_flags(&flags(refused).network).is_err());
        }
    }
}
