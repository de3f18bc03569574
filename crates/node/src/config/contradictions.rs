//! What no single key shows: keys that do not go together, and what is open without being meant to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chappe_identity::Prefix;
use chappe_links::LinkError;

use super::error::Problem;
use super::layers::{Origin, Setting, deepest};
use super::{Config, Read};

/// All that does not go together.
pub(super) fn contradictions(
    config: &Config,
    settings: &[Setting],
    lines: &BTreeMap<String, usize>,
) -> Vec<Problem> {
    let mut found = Vec::new();
    found.extend(exposed(config, settings));
    found.extend(tls(config, settings));
    found.extend(exchange(config, settings));
    let kad = config.kad.contradictions().into_iter();
    found.extend(kad.map(|(key, what, hint)| at(settings, key, what, hint)));
    found.extend(links(config, settings, lines));
    #[cfg(feature = "dds")]
    found.extend(dds(config, settings));
    found
}

/// A problem at the place that sets `key`.
fn at(settings: &[Setting], key: &str, what: String, hint: &str) -> Problem {
    let origin = settings.iter().find(|setting| setting.key == key);
    let (place, line) = match origin.map(|setting| &setting.origin) {
        Some(Origin::File(path, line)) => (path.display().to_string(), Some(*line)),
        Some(other) => (other.to_string(), None),
        None => ("configuration".to_owned(), None),
    };
    Problem {
        place,
        line,
        key: Some(key.to_owned()),
        what,
        hint: Some(hint.to_owned()),
    }
}

/// Refuses to listen beyond loopback while everyone may read, or the token goes in clear text.
fn exposed(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let listen = config.http.listen;
    if listen.ip().is_loopback() || config.access.insecure {
        return None;
    }
    let (what, hint) = if config.access.read == Read::Open {
        (
            format!("{listen} can be reached from other machines, and access.read is \"open\""),
            "add `read = \"token\"` under [access] in node.toml, or start with --set \
             access.read=token, with TLS ([http.tls]); to let everyone read, set \
             access.insecure=true in the same way",
        )
    } else if !config.http.tls.enabled() {
        (
            format!(
                "{listen} can be reached from other machines, and the token goes there in clear text"
            ),
            "set `self_signed = true` under [http.tls], or a certificate and its key; if something \
             else encrypts the way there, set access.insecure = true",
        )
    } else {
        return None;
    };
    Some(at(settings, "http.listen", what, hint))
}

/// All that works, but is most likely not what was meant.
pub(super) fn warnings(config: &Config, settings: &[Setting]) -> Vec<Problem> {
    let mut found = Vec::new();
    let http = &config.http;
    let names_loopback = config.exchange.contacts().any(|prefix| {
        prefix.contains(Ipv4Addr::LOCALHOST.into()) || prefix.contains(Ipv6Addr::LOCALHOST.into())
    });
    if http.listen.ip().is_loopback() && http.trusted_proxies.is_empty() {
        let hint = "name the proxy: trusted_proxies = [\"127.0.0.1\"] under [http]";
        if !http.hosts.is_empty() {
            let what = "clients that come through a proxy on this host count as this host itself";
            found.push(at(settings, "http.hosts", what.to_owned(), hint));
        }
        if names_loopback {
            let what =
                "clients that come through a proxy on this host can have any port of it called";
            found.push(at(settings, "exchange.contact", what.to_owned(), hint));
        }
    }
    let all: [[IpAddr; 2]; 2] = [
        [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()],
        [
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::from([0xff; 16]).into(),
        ],
    ];
    let everybody = |prefix: Prefix| {
        let mut all = all.iter();
        all.any(|ends| ends.iter().all(|address| prefix.contains(*address)))
    };
    if config.devices.max_streams >= config.log.max_streams {
        let what = "one device can take all the streams of log.max_streams";
        let hint = "set max_streams under [devices] to less than log.max_streams";
        found.push(at(settings, "devices.max_streams", what.to_owned(), hint));
    }
    if http.proxies().any(everybody) {
        let what = "a client at an address of it can claim to be any other";
        let hint = "name the addresses of the proxies alone";
        found.push(at(settings, "http.trusted_proxies", what.to_owned(), hint));
    }
    found
}

/// A certificate comes from files or is made, and files come in pairs.
fn tls(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let tls = &config.http.tls;
    let (certificate, key) = (
        !tls.certificate.as_os_str().is_empty(),
        !tls.key.as_os_str().is_empty(),
    );
    let (place, what) = match (certificate, key, tls.self_signed) {
        (true, false, _) => ("http.tls.certificate", "there is no http.tls.key to it"),
        (false, true, _) => ("http.tls.key", "there is no http.tls.certificate to it"),
        (true, true, true) => (
            "http.tls.self_signed",
            "there is an http.tls.certificate too",
        ),
        _ => return None,
    };
    let hint = "set certificate and key under [http.tls], or self_signed = true alone";
    Some(at(settings, place, what.to_owned(), hint))
}

/// Beyond loopback only those read whose key is named, unless `[exchange]` itself opens reading.
fn exchange(config: &Config, settings: &[Setting]) -> Vec<Problem> {
    let exchange = &config.exchange;
    let keys = !exchange.allowed_keys.is_empty();
    if keys && exchange.insecure {
        let what = "without CURVE nobody proves a key".to_owned();
        let hint = "remove exchange.insecure, or exchange.allowed_keys";
        return vec![at(settings, "exchange.insecure", what, hint)];
    }
    let hint = "name the nodes that may read: allowed_keys = [\"...\"] under [exchange], with what \
                `chappe key show` prints there; to let every node read, set allowed_keys = [\"*\"] \
                (encrypted) or exchange.insecure = true (in plain)";
    let open = keys || exchange.insecure;
    let exposed = exchange
        .addresses()
        .filter(|(_, address)| !address.ip().is_loopback() && !open);
    let told = exposed.map(|(key, address)| {
        let what = format!(
            "{address} can be reached from other machines, and exchange.allowed_keys is empty"
        );
        at(settings, key, what, hint)
    });
    told.collect()
}

/// Each link can be one, and no two have a name.
fn links(config: &Config, settings: &[Setting], lines: &BTreeMap<String, usize>) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for (index, link) in config.links.iter().enumerate() {
        let twice = !names.insert(&link.name);
        let error = match link.check() {
            Err(error) => error,
            Ok(()) if twice => LinkError::Exists(link.name.clone()),
            Ok(()) => continue,
        };
        let (key, what) = match &error {
            LinkError::Config { key, why } => (*key, why.clone()),
            other => ("name", other.to_string()),
        };
        let hint = error.hint();
        let hint = hint.unwrap_or_else(|| "`chappe config sample` shows a right one".to_owned());
        let path = ["links", &index.to_string(), key].map(str::to_owned);
        let mut problem = at(settings, "links", what, &hint);
        problem.key = Some(path.join("."));
        problem.line = deepest(lines, &path).or(problem.line);
        found.push(problem);
    }
    found
}

/// What is published and read can be.
#[cfg(feature = "dds")]
fn dds(config: &Config, settings: &[Setting]) -> Option<Problem> {
    let error = config.dds.check().err()?;
    let hint = error.hint().unwrap_or("docs/dds.md shows a right one");
    let read = !config.dds.subscribe.is_empty() && config.dds.publish.is_empty();
    let key = match read {
        true => "dds.subscribe",
        false => "dds.publish",
    };
    Some(at(settings, key, error.to_string(), hint))
}
