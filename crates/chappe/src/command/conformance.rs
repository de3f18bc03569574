//! `chappe device check`: whether a device keeps the clauses of the profile.

use chappe_device::client::Found;
use chappe_device::conformance::{self, CLAUSES, Finding, Options, Report, State};
use chappe_identity::{AddressPolicy, Contact};
use serde_json::json;

use super::find::clean;
use super::network;
use super::session::{Session, failure, security};
use crate::cli::DeviceCheck;
use crate::output::{self, Failure, Outcome};

/// Finds the device, checks it, and prints what was found.
pub(crate) fn run(flags: DeviceCheck, json: bool) -> Outcome {
    let Some(device) = flags.device.as_deref().filter(|_| !flags.list) else {
        list(json);
        return Ok(());
    };
    network::block_on(async {
        let (contact, found) = locate(&flags, device).await?;
        let (tls, _) = security(&flags.network.tls)?;
        let options = Options {
            dialect: flags.dialect.or(found.as_ref().map(|found| found.dialect)),
            endpoint: found.map(|found| found.endpoint),
            events: flags.events,
            limit: flags.limit,
            tls: Some(tls),
            ..Options::new(contact.clone())
        };
        output::progress(format_args!("checking {contact}"));
        let report = tokio::select! {
            report = conformance::check(&options) => report.map_err(failure)?,
            result = network::interrupted() => {
                result?;
                return Err(Failure::new("interrupted before the end of the check").coded("interrupted"));
            }
        };
        print(&report, flags.messages, json);
        match report.is_conformant() {
            true => Ok(()),
            false => Err(Failure::negative()),
        }
    })
}

/// The transport address of the device, and how discovery found it.
async fn locate(flags: &DeviceCheck, device: &str) -> Result<(Contact, Option<Found>), Failure> {
    if device.contains("://") {
        let contact = Contact::parse(device, 0);
        let contact = contact.map_err(|refusal| {
            Failure::new(format!("{device}: {refusal}")).coded("argument_invalid")
        })?;
        return Ok((contact, None));
    }
    let session = Session::start(&flags.network)?;
    let found = session.found(device).await?;
    session.close().await;
    let policy = AddressPolicy::default();
    let contacts = found.xaddrs.iter();
    let contacts = contacts.map(|address| policy.check(address, found.from));
    let mut refused = None;
    for contact in contacts {
        match contact {
            Ok(contact) => return Ok((contact, Some(found))),
            Err(refusal) => refused = Some(refusal),
        }
    }
    Err(match refused {
        Some(refusal) => Failure::new(format!("{device} is not contacted: {refusal}"))
            .coded("address_refused")
            .hint_if(refusal.hint()),
        None => Failure::new(format!("{device} gives no transport address"))
            .coded("no_transport_address")
            .hint("name its URL instead, such as http://192.0.2.7:5357/device"),
    })
}

fn list(json: bool) {
    for clause in CLAUSES {
        if json {
            output::json(&json!({
                "event": "clause", "clause": clause.id, "source": clause.source,
                "severity": clause.severity.as_str(), "rule": clause.rule,
            }));
        } else {
            output::line(format_args!(
                "{:<22} {:<6} {}: {}",
                clause.id,
                clause.severity.as_str(),
                clause.source,
                clause.rule
            ));
        }
    }
}

fn print(report: &Report, messages: bool, json: bool) {
    for finding in report.findings() {
        if json {
            output::json(&as_json(finding));
        } else {
            print_finding(finding, messages);
        }
    }
    for note in &report.notes {
        match json {
            true => output::json(&json!({ "event": "note", "text": note })),
            false => output::line(format_args!("note     {}", clean(note))),
        }
    }
    let violated = |state: &State| state.violated > 0;
    let all: Vec<_> = report.clauses().collect();
    let seen = all.iter().filter(|(_, state)| state.is_some()).count();
    let violated = all
        .iter()
        .filter(|(_, state)| state.is_some_and(violated))
        .count();
    let unseen = all.iter().filter(|(_, state)| state.is_none());
    let unseen: Vec<_> = unseen.map(|(clause, _)| clause.id).collect();
    if json {
        output::json(&json!({
            "event": "summary", "conformant": report.is_conformant(), "kept": seen - violated,
            "violated": violated, "not_seen": unseen, "questions": report.questions,
        }));
        return;
    }
    if !unseen.is_empty() {
        output::line(format_args!("not seen {}", unseen.join(", ")));
    }
    output::line(format_args!(
        "{} clauses kept, {violated} violated, {} not seen, {} questions",
        seen - violated,
        unseen.len(),
        report.questions
    ));
}

fn print_finding(finding: &Finding, messages: bool) {
    let clause = finding.clause;
    output::line(format_args!(
        "{:<8} {} ({}): {}",
        clause.severity.as_str(),
        clause.id,
        clause.source,
        clause.rule
    ));
    output::line(format_args!("         sent: {}", clean(&finding.sent)));
    output::line(format_args!("         came: {}", clean(&finding.came)));
    output::line(format_args!("         {}", clean(&finding.problem)));
    if messages {
        for text in [&finding.request, &finding.response] {
            output::line(format_args!("         {}", clean(text)));
        }
    }
}

fn as_json(finding: &Finding) -> serde_json::Value {
    let clause = finding.clause;
    json!({
        "event": "finding", "clause": clause.id, "source": clause.source, "rule": clause.rule,
        "severity": clause.severity.as_str(), "problem": finding.problem, "sent": finding.sent,
        "came": finding.came, "request": finding.request, "response": finding.response,
    })
}
