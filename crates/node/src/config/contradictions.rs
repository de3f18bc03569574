//! Detects faults across keys: keys that contradict each other, and access that is open by
//! accident.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chappe_identity::Prefix;
use chappe_links::LinkError;

use super::error::Problem;
use super::layers::{Origin, Setting, deepest_line};
use super::{Config, DevicePattern, Read};

/// All contradictions of a configuration.
pub(super) fn contradictions(
    config: &Config,
    settings: &[Setting],
    lines: &BTreeMap<String, usize>,
) -> Vec<Problem> {
    let mut found = Vec::new();
    found.extend(exposed(config, settings));
    found.extend(tls(config, settings));
    found.extend(device_tls(config, settings));
    found.extend(signatures(config, settings));
    found.extend(exchange(config, settings));
    found.extend(exclusions(config, settings));
    found.extend(
        config
            .discovery
            .wrong_proxy()
            .map(|(message, hint)| at(settings, "discovery.proxies", message, hint)),
    );
    found.extend(postgres(config, settings));
    found.extend(mail(config, settings));
    let kad = config.kad.contradictions().into_iter();
    found.extend(kad.map(|(key, message, hint)| at(settings, key, message, hint)));
    found.extend(links(config, settings, lines));
    #[cfg(feature = "dds")]
    found.extend(dds(config, settings));
    found
}

/// A problem where `key` is set.
fn at(settings: &[Setting], key: &str, message: String, hint: &str) -> Problem {
    let origin = settings.iter().find(|setting| setting.key == key);
    let (location, line) = match origin.map(|setting| &setting.origin) {
        Some(Origin::File(path, line)) => (path.display().to_string(), Some(*line)),
        Some(other) => (other.to_string(), None),
        None => ("configuration".to_owned(), None),
    };
    Problem {
        location,
        line,
        key: Some(key.to_owned()),
        message,
        hint: Some(hint.to_owned()),
    }
}

/// Requires what every mail needs.
fn mail(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let mail = &config.mail;
    if mail.server.is_empty() {
        return None;
    }
    if mail.sender.is_empty() {
        let hint = "set it under [mail], such as \"chappe@example.org\"";
        let message = "mail.sender is not set".to_owned();
        return Some(at(settings, "mail.server", message, hint));
    }
    if !mail.user.is_empty() && mail.password_file.as_os_str().is_empty() {
        let hint = "write the password to a file, and name the file in mail.password_file";
        let message = "mail.password_file is not set".to_owned();
        return Some(at(settings, "mail.user", message, hint));
    }
    None
}

/// Requires a database for the store `postgres`, and a program that has this store.
fn postgres(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let registry = &config.registry;
    let url = registry.postgres.url.as_str();
    let user = url.split_once("://").map_or("", |(_, rest)| rest);
    let user = user.split_once('@').map_or("", |(user, _)| user);
    if user.contains(':') {
        let message = "the URL has a password, which `chappe config` would show".to_owned();
        let hint = "write it to a file, and name the file in registry.postgres.password_file";
        return Some(at(settings, "registry.postgres.url", message, hint));
    }
    if registry.store != super::RegistryStore::Postgres {
        return None;
    }
    let (key, message, hint) = match (cfg!(feature = "postgres"), url.is_empty()) {
        (false, _) => (
            "registry.store",
            "this program was built without PostgreSQL",
            "build it with `cargo build --release --features postgres`",
        ),
        (true, true) => (
            "registry.postgres.url",
            "the store postgres needs a database",
            "set it under [registry.postgres], such as \"postgres://chappe@localhost/chappe\"",
        ),
        (true, false) => return None,
    };
    Some(at(settings, key, message.to_owned(), hint))
}

/// Refuses an exclusion that would match every device, or has a rule for no scope.
fn exclusions(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let has_idle_rule = |one: &DevicePattern| one.match_by.is_some() && one.scope.is_none();
    let mut patterns = config.devices.exclude.iter();
    if let Some(place) = patterns.position(has_idle_rule) {
        let message = format!("entry {} has `match_by` without `scope`", place + 1);
        let hint = "give the scope, or remove `match_by`";
        return Some(at(settings, "devices.exclude", message, hint));
    }
    let mut patterns = config.devices.exclude.iter();
    let place = patterns.position(DevicePattern::is_empty)?;
    Some(at(
        settings,
        "devices.exclude",
        format!("entry {} matches no device", place + 1),
        "give an endpoint, a name, a type or a scope; `enabled = false` under [discovery] leaves out all devices",
    ))
}

/// Refuses to listen beyond loopback while everyone may read, or while the token is sent in clear text.
fn exposed(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let listen = config.http.listen;
    if listen.ip().is_loopback() || config.access.insecure {
        return None;
    }
    let (message, hint) = if config.access.read == Read::Open {
        (
            format!("{listen} can be reached from other machines, and access.read is \"open\""),
            "add `read = \"token\"` under [access] in node.toml, or start with --set \
             access.read=token, with TLS ([http.tls]); to let everyone read, set \
             access.insecure=true in the same way",
        )
    } else if !config.http.tls.enabled() {
        (
            format!(
                "{listen} can be reached from other machines, and clients send the token in clear text"
            ),
            "set `self_signed = true` under [http.tls], or a certificate and its key; if something \
             else encrypts the connections, set access.insecure = true",
        )
    } else {
        return None;
    };
    Some(at(settings, "http.listen", message, hint))
}

/// Settings that are valid but most likely unintended.
pub(super) fn warnings(config: &Config, settings: &[Setting]) -> Vec<Problem> {
    let mut found = Vec::new();
    let http = &config.http;
    let names_loopback = config.exchange.contacts().any(|prefix| {
        prefix.contains(Ipv4Addr::LOCALHOST.into()) || prefix.contains(Ipv6Addr::LOCALHOST.into())
    });
    if http.listen.ip().is_loopback() && http.trusted_proxies.is_empty() {
        let hint = "name the proxy: trusted_proxies = [\"127.0.0.1\"] under [http]";
        if !http.hosts.is_empty() {
            let message = "clients of a proxy on this host are treated as this host itself";
            found.push(at(settings, "http.hosts", message.to_owned(), hint));
        }
        if names_loopback {
            let message = "clients of a proxy on this host can make the node call any local port";
            found.push(at(settings, "exchange.contact", message.to_owned(), hint));
        }
    }
    let all: [[IpAddr; 2]; 2] = [
        [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()],
        [
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::from([0xff; 16]).into(),
        ],
    ];
    let covers_all = |prefix: Prefix| {
        let mut all = all.iter();
        all.any(|ends| ends.iter().all(|address| prefix.contains(*address)))
    };
    if config.devices.max_streams >= config.log.max_streams {
        let message = "one device can use up all streams of log.max_streams";
        let hint = "set max_streams under [devices] to less than log.max_streams";
        found.push(at(
            settings,
            "devices.max_streams",
            message.to_owned(),
            hint,
        ));
    }
    if let Some((key, message)) = config.signatures.weaker() {
        let hint = "set it to \"required\" under [signatures], too";
        found.push(at(settings, key, message, hint));
    }
    if http.proxies().any(covers_all) {
        let message = "a prefix covers every address: any client can claim to be another";
        let hint = "list only the addresses of the proxies";
        found.push(at(
            settings,
            "http.trusted_proxies",
            message.to_owned(),
            hint,
        ));
    }
    found
}

/// Checks that the certificate is either self-signed or named together with its key.
fn tls(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let tls = &config.http.tls;
    let is_set = |path: &std::path::Path| !path.as_os_str().is_empty();
    let (certificate, key) = (is_set(&tls.certificate), is_set(&tls.key));
    let (at_key, message) = match (certificate, key, tls.self_signed) {
        (true, false, _) => ("http.tls.certificate", "http.tls.key is not set"),
        (false, true, _) => ("http.tls.key", "http.tls.certificate is not set"),
        (true, true, true) => (
            "http.tls.self_signed",
            "http.tls.certificate is set as well",
        ),
        (false, false, false) if is_set(&tls.client_authorities) => (
            "http.tls.client_authorities",
            "TLS is off: http.tls.certificate is not set",
        ),
        _ if is_set(&tls.client_revocation_lists) && !is_set(&tls.client_authorities) => {
            let message = "http.tls.client_authorities is not set, so no client has a certificate";
            let hint = "set client_authorities under [http.tls], too";
            let key = "http.tls.client_revocation_lists";
            return Some(at(settings, key, message.to_owned(), hint));
        }
        _ => return None,
    };
    let hint = "set certificate and key under [http.tls], or self_signed = true alone";
    Some(at(settings, at_key, message.to_owned(), hint))
}

/// Checks the fingerprints and usages of devices, and that what depends on trust has somebody to trust.
fn device_tls(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let tls = &config.devices.tls;
    if let Err((key, message)) = tls.files(&config.data_directory) {
        let hint = "fingerprints are 64 hexadecimal digits, usages numbers with dots";
        return Some(at(settings, key, message, hint));
    }
    let is_set = |path: &std::path::Path| !path.as_os_str().is_empty();
    let (key, message) = if !tls.usages.is_empty() && !is_set(&tls.authorities) {
        (
            "devices.tls.usages",
            "devices.tls.authorities is not set, so no authority is trusted",
        )
    } else if is_set(&tls.revocation_lists) && !is_set(&tls.authorities) {
        (
            "devices.tls.revocation_lists",
            "devices.tls.authorities is not set, so no authority is trusted",
        )
    } else if !tls.proxy_usages.is_empty() && !tls.trusts() {
        ("devices.tls.proxy_usages", "no certificate is trusted")
    } else if is_set(&tls.certificate) && !tls.trusts() {
        (
            "devices.tls.certificate",
            "no certificate is trusted, so it is not used",
        )
    } else {
        return None;
    };
    let hint = "set authorities or fingerprints under [devices.tls]";
    Some(at(settings, key, message.to_owned(), hint))
}

/// Checks that signatures have authorities if they count, that a certificate is named with its key, and that no
/// other interface publishes without the signature that one requires.
fn signatures(config: &Config, settings: &[Setting]) -> Option<Problem> {
    if let Some((key, message)) = config.signatures.way_around() {
        let hint = "set it to \"required\" under [signatures], or the others to \"accepted\"";
        return Some(at(settings, key, message, hint));
    }
    let rules = &config.signatures;
    let is_empty = |path: &std::path::Path| path.as_os_str().is_empty();
    let (at_key, message) = match (is_empty(&rules.certificate), is_empty(&rules.key)) {
        (false, true) => ("signatures.certificate", "signatures.key is not set"),
        (true, false) => ("signatures.key", "signatures.certificate is not set"),
        _ if rules.are_used() && is_empty(&rules.authorities) => (
            "signatures.authorities",
            "signatures are checked at an interface, but signatures.authorities is not set",
        ),
        _ => return None,
    };
    let hint = "set authorities under [signatures]; certificate and key together, or neither";
    Some(at(settings, at_key, message.to_owned(), hint))
}

/// Requires a list of allowed keys beyond loopback, unless `[exchange]` itself opens reading.
fn exchange(config: &Config, settings: &[Setting]) -> Vec<Problem> {
    let exchange = &config.exchange;
    let keys = !exchange.allowed_keys.is_empty();
    if keys && exchange.insecure {
        let message = "exchange.allowed_keys needs CURVE, which insecure turns off".to_owned();
        let hint = "remove exchange.insecure, or exchange.allowed_keys";
        return vec![at(settings, "exchange.insecure", message, hint)];
    }
    let hint = "list the nodes that may read: allowed_keys = [\"...\"] under [exchange], with the \
                keys that `chappe key show` prints on their hosts; to let every node read, set \
                allowed_keys = [\"*\"] (encrypted) or exchange.insecure = true (in clear text)";
    let open = keys || exchange.insecure;
    let exposed = exchange
        .addresses()
        .filter(|(_, address)| !address.ip().is_loopback() && !open);
    let problems = exposed.map(|(key, address)| {
        let message = format!(
            "{address} can be reached from other machines, and exchange.allowed_keys is empty"
        );
        at(settings, key, message, hint)
    });
    problems.collect()
}

/// Checks each link, and that no two share a name.
fn links(config: &Config, settings: &[Setting], lines: &BTreeMap<String, usize>) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for (index, link) in config.links.iter().enumerate() {
        let is_duplicate = !names.insert(&link.name);
        let error = match link.check() {
            Err(error) => error,
            Ok(()) if is_duplicate => LinkError::Exists(link.name.clone()),
            Ok(()) => continue,
        };
        let (key, message) = match &error {
            LinkError::Config { key, why } => (*key, why.clone()),
            other => ("name", other.to_string()),
        };
        let hint = error.hint();
        let hint = hint.unwrap_or_else(|| "`chappe config sample` shows an example".to_owned());
        let path = ["links", &index.to_string(), key].map(str::to_owned);
        let mut problem = at(settings, "links", message, &hint);
        problem.key = Some(path.join("."));
        problem.line = deepest_line(lines, &path).or(problem.line);
        found.push(problem);
    }
    found
}

/// Checks the DDS participant.
#[cfg(feature = "dds")]
fn dds(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let error = config.dds.check().err()?;
    let hint = error
        .hint()
        .unwrap_or("docs/reference/dds.md shows an example");
    Some(at(settings, &error.setting(), error.to_string(), hint))
}
