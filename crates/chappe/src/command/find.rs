//! `chappe find`: devices as they answer, and why some are not usable.

use std::collections::HashSet;

use chappe_device::client::{Description, Found, Way};
use chappe_dpws::discovery::MatchRule;
use chappe_terminal::counted;
use chappe_xml::Name;
use serde_json::{Value, json};

use super::network;
use super::session::{Answer, Session};
use crate::cli::Find;
use crate::output::{self, Failure, Outcome};

pub(crate) use crate::output::clean;

/// Searches, prints each device once it is described, and ends with the counts.
pub(crate) fn run(flags: Find, json: bool) -> Outcome {
    network::block_on(async move {
        let session = Session::start(&flags.network)?;
        let (types, local) = wanted_type(flags.device_type.as_deref())?;
        let scopes: Vec<String> = flags.scope.into_iter().collect();
        if flags.match_by == MatchRule::None && !scopes.is_empty() {
            return Err(Failure::new("--match-by none finds devices without scopes")
                .coded("argument_invalid")
                .hint("remove --scope"));
        }
        let wanted = |found: &Found| {
            local
                .as_ref()
                .is_none_or(|local| found.types.iter().any(|t| t.local == **local))
        };
        let mut usable = 0;
        let mut attention = 0;
        let mut printed_reasons = HashSet::new();
        let search = session.search(types, (scopes, flags.match_by), wanted, |answer| {
            let device = Device::new(&answer);
            if device.reason.is_none() {
                usable += 1
            } else {
                attention += 1
            }
            printed_reasons.extend(device.reason.clone());
            device.print(json);
            true
        });
        let silent = tokio::select! {
            result = search => result?,
            result = network::interrupted() => { result?; Vec::new() }
        };
        for endpoint in &silent {
            attention += 1;
            print_silent_device(endpoint, json);
        }
        let seen = usable + attention;
        print_drops(&session, &printed_reasons, json);
        print_proxies(&session, json);
        if json {
            output::json(&json!({
                "event": "summary", "seen": seen, "usable": usable, "attention": attention,
            }));
        } else {
            let needs = if attention == 1 { "needs" } else { "need" };
            output::line(format_args!(
                "seen {seen}, usable {usable}, {attention} {needs} attention"
            ));
        }
        session.close().await;
        if usable > 0 {
            return Ok(());
        }
        if seen == 0 && !json {
            output::note("no device answered; checks of the network (see also: chappe doctor):");
            super::doctor::quick(&flags.network.interfaces).await?;
        }
        Err(Failure::negative())
    })
}

/// A qualified type for the search, or a local name to filter answers by.
fn wanted_type(text: Option<&str>) -> Result<(Vec<Name>, Option<String>), Failure> {
    let Some(text) = text else {
        return Ok((Vec::new(), None));
    };
    match text.strip_prefix('{') {
        None => Ok((Vec::new(), Some(text.to_owned()))),
        Some(rest) => match rest.split_once('}') {
            Some((namespace, local)) if !local.is_empty() => {
                Ok((vec![Name::owned(namespace, local)], None))
            }
            _ => Err(Failure::new(format!("--type {text:?} is not a type"))
                .coded("argument_invalid")
                .hint("write it as {namespace}local or as a local name")),
        },
    }
}

/// Prints the discovery proxies in use.
fn print_proxies(session: &Session, json: bool) {
    for proxy in session.client.proxies() {
        let state = match (proxy.answers, proxy.is_trusted) {
            (true, true) => "asked instead of multicast",
            (true, false) => "announced itself, asked in addition to multicast",
            (false, true) => "does not answer: multicast was used",
            (false, false) => "announced itself, does not answer",
        };
        if json {
            output::json(&json!({
                "event": "proxy", "address": proxy.contact.to_string(),
                "trusted": proxy.is_trusted, "answers": proxy.answers,
            }));
        } else {
            let contact = clean(&proxy.contact.to_string());
            output::line(format_args!("proxy  {contact}: {state}"));
        }
    }
}

/// Prints dropped messages, which may explain a missing device, except reasons already printed.
fn print_drops(session: &Session, printed_reasons: &HashSet<String>, json: bool) {
    for dropped in session.client.drops().entries() {
        // Multicast returns our own searches and delivers those of other programs.
        if dropped.reason == "own"
            || dropped.reason == "other_role"
            || dropped.reason == "duplicate"
            || printed_reasons.contains(&dropped.detail)
        {
            continue;
        }
        if json {
            output::json(&json!({
                "event": "dropped", "hop": dropped.hop.as_str(), "reason": dropped.reason,
                "peer": dropped.peer, "count": dropped.count, "detail": dropped.detail,
                "hint": dropped.hint,
            }));
            continue;
        }
        output::line(format_args!(
            "dropped  {} from {}: {} ({} times)",
            dropped.reason,
            clean(&dropped.peer),
            clean(&dropped.detail),
            dropped.count
        ));
        if let Some(hint) = dropped.hint {
            output::line(format_args!("         hint: {}", clean(&hint)));
        }
    }
}

/// The printed form of a device.
struct Device {
    json: Value,
    head: String,
    lines: Vec<String>,
    reason: Option<String>,
    hint: Option<String>,
}

impl Device {
    fn new(answer: &Answer) -> Self {
        let found = &answer.found;
        let types: Vec<_> = found.types.iter().map(ToString::to_string).collect();
        let mut json = json!({
            "event": "device", "endpoint": found.endpoint, "dialect": network::dialect(found.dialect),
            "types": types, "scopes": found.scopes, "addresses": found.xaddrs,
            "from": found.from.to_string(), "found_by": found.way.as_str(),
        });
        let words: Vec<_> = found
            .types
            .iter()
            .map(|name| name.local.to_string())
            .collect();
        let mut lines = vec![format!("{}  {}", found.endpoint, words.join(" "))];
        let (name, reason, hint) = match &answer.description {
            Ok(description) => {
                json["name"] = description.name().into();
                json["offers"] = offers(description).into();
                lines.push(format!("{}  {}", description.contact, offers(description)));
                if found.way == Way::Kad {
                    lines.push("found in the distributed hash table".to_owned());
                }
                if found.way == Way::Proxy {
                    lines.push("found at a discovery proxy".to_owned());
                }
                for note in &description.notes {
                    lines.push(format!("note: {} {}", note.reason, note.detail));
                }
                (description.name().to_owned(), None, None)
            }
            Err(error) => (
                found.endpoint.clone(),
                Some(error.to_string()),
                error.hint(),
            ),
        };
        let (state, head) = match &reason {
            None => ("usable", format!("usable     {name}")),
            Some(_) => ("attention", format!("attention  {name}")),
        };
        json["state"] = state.into();
        json["reason"] = reason.clone().into();
        json["hint"] = hint.clone().into();
        Self {
            json,
            head,
            lines,
            reason,
            hint,
        }
    }

    fn print(&self, json: bool) {
        if json {
            output::json(&self.json);
            return;
        }
        output::line(clean(&self.head));
        for line in &self.lines {
            output::line(format_args!("           {}", clean(line)));
        }
        if let Some(reason) = &self.reason {
            output::line(format_args!("           {}", clean(reason)));
        }
        if let Some(hint) = &self.hint {
            output::line(format_args!("           hint: {}", clean(hint)));
        }
    }
}

/// Prints a device that answers searches without a transport address.
fn print_silent_device(endpoint: &str, json: bool) {
    let reason = "it gives no transport address and does not answer Resolve";
    let hint = "restart it; if it is behind a router, name its host with --host";
    if json {
        output::json(&json!({
            "event": "device", "endpoint": endpoint, "state": "attention", "reason": reason,
            "hint": hint,
        }));
    } else {
        output::line(format_args!("attention  {}", clean(endpoint)));
        output::line(format_args!("           {reason}\n           hint: {hint}"));
    }
}

/// A device's services, events and operations in words.
fn offers(description: &Description) -> String {
    let events: usize = description
        .services
        .iter()
        .map(|service| service.events().len())
        .sum();
    let all: usize = description
        .services
        .iter()
        .map(|service| service.wsdl.operations().count())
        .sum();
    let services = description.services.len();
    let words = format!(
        "{}, {}, {}",
        counted(services, "service"),
        counted(events, "event"),
        counted(all.saturating_sub(events), "operation")
    );
    if events == 0 {
        format!("{words}: no events to stream")
    } else {
        words
    }
}
