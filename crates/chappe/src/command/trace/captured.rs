//! Messages of a capture, printed in its order.

use std::fs::File;
use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use chappe_device::capture::{Capture, Carrier, Conversations, Frame, Losses, Message};
use chappe_soap::schema::format_date_time;
use chappe_terminal::counted;
use serde_json::json;

use super::message::{Decoded, Decoder};
use crate::cli::Trace;
use crate::command::find::clean;
use crate::output::{self, Failure, Outcome};

/// Prints the messages of a file; what was read before an error is printed.
pub(super) fn run(path: &Path, printer: Printer) -> Outcome {
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => {
            let file = File::open(path).map_err(|error| {
                Failure::new(format!("cannot open {}: {error}", path.display()))
                    .coded("file_unreadable")
            })?;
            Box::new(file)
        }
    };
    let read = read(BufReader::new(input), printer);
    read.map_err(|error| {
        let hint = error.hint;
        Failure::from(error).hint_if(hint)
    })
}

fn read(
    input: impl Read,
    mut printer: Printer,
) -> Result<(), chappe_device::capture::CaptureError> {
    let mut capture = Capture::open(input)?;
    let ended = loop {
        match capture.next_frame() {
            Ok(Some(frame)) => printer.frame(&frame),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    printer.end();
    ended
}

/// Decodes and prints messages.
pub(super) struct Printer {
    conversations: Conversations,
    decoder: Decoder,
    device: Option<IpAddr>,
    raw: bool,
    json: bool,
    messages: u64,
    dropped: u64,
    others: u64,
}

impl Printer {
    pub(super) fn new(flags: &Trace, json: bool) -> Result<Self, Failure> {
        Ok(Self {
            conversations: Conversations::new(),
            decoder: Decoder::new()?,
            device: flags.device,
            raw: flags.raw,
            json,
            messages: 0,
            dropped: 0,
            others: 0,
        })
    }

    pub(super) fn frame(&mut self, frame: &Frame) {
        let mut complete = Vec::new();
        self.conversations
            .take(frame, |message| complete.push(message));
        self.messages(complete);
    }

    fn messages(&mut self, complete: Vec<Message>) {
        for message in complete {
            let is_wanted = |device: IpAddr| [message.from.ip(), message.to.ip()].contains(&device);
            if !self.device.is_none_or(is_wanted) {
                continue;
            }
            if let Carrier::Gap { missing_bytes } = message.carrier {
                self.gap(&message, missing_bytes);
                continue;
            }
            match self.decoder.decode(&message) {
                Some(decoded) => self.print(&message, &decoded),
                None => self.others += 1,
            }
        }
    }

    /// Prints the messages that end with the capture, the counts, and what could not be read.
    pub(super) fn end(&mut self) {
        let mut complete = Vec::new();
        self.conversations.end(|message| complete.push(message));
        self.messages(complete);
        let losses = self.conversations.losses();
        let lost = losses_named(&losses);
        if self.json {
            let lost: serde_json::Map<_, _> = lost
                .iter()
                .map(|(name, count)| (name.replace(' ', "_"), json!(count)))
                .collect();
            output::json(&json!({
                "event": "summary", "messages": self.messages, "dropped": self.dropped,
                "other_messages": self.others, "lost": lost,
            }));
            return;
        }
        output::line(format_args!(
            "{}, {} dropped; {} of other protocols",
            counted(self.messages, "message"),
            self.dropped,
            self.others
        ));
        for (name, count) in lost.iter().filter(|(_, count)| *count > 0) {
            output::line(format_args!("    {count} {name}"));
        }
    }

    fn gap(&self, place: &Message, missing_bytes: u64) {
        let at = format_date_time(i64::try_from(place.at_ns).unwrap_or(i64::MAX));
        if self.json {
            output::json(&json!({
                "event": "gap", "at": at, "from": place.from, "to": place.to,
                "missing_bytes": missing_bytes,
            }));
            return;
        }
        output::line(format_args!(
            "{at}  {} > {}  gap: {missing_bytes} bytes are not in the capture",
            place.from, place.to
        ));
    }

    fn print(&mut self, message: &Message, decoded: &Decoded) {
        self.messages += 1;
        self.dropped += u64::from(decoded.dropped.is_some());
        let at = format_date_time(i64::try_from(message.at_ns).unwrap_or(i64::MAX));
        let (carrier, head, answer) = match &message.carrier {
            Carrier::Datagram => ("datagram", String::new(), None),
            Carrier::Request { method, target } => ("request", format!("{method} {target}"), None),
            Carrier::Answer { status, after } => ("answer", status.to_string(), *after),
            // Printed on its own.
            Carrier::Gap { .. } => return,
        };
        if self.json {
            let us = |time: Duration| time.as_secs_f64() * 1e6;
            let text = self.raw.then_some(&decoded.text);
            output::json(&json!({
                "event": "message", "at": at, "from": message.from, "to": message.to,
                "carrier": carrier, "head": head, "bytes": message.body.len(),
                "content_type": message.content_type, "coding": decoded.coding,
                "dialect": decoded.dialect, "action": decoded.action, "subjects": decoded.subjects,
                "message_id": decoded.message_id, "relates_to": decoded.relates_to,
                "fault": decoded.fault, "dropped": decoded.dropped, "detail": decoded.detail,
                "arrival_us": us(message.arrival), "decode_us": us(decoded.decoding),
                "answer_us": answer.map(us), "text": text,
            }));
            return;
        }
        let mut times = vec![format!("decoded in {:.1?}", decoded.decoding)];
        if !message.arrival.is_zero() {
            times.insert(0, format!("arrived in {:.1?}", message.arrival));
        }
        if let Some(answer) = answer {
            times.insert(0, format!("answered after {answer:.1?}"));
        }
        let dialect = decoded.dialect.unwrap_or("-");
        let action = decoded.action.as_deref().unwrap_or(&decoded.kind);
        let mut words = vec![at, format!("{} > {}", message.from, message.to)];
        words.extend([
            carrier.to_owned(),
            head,
            dialect.to_owned(),
            action.to_owned(),
        ]);
        words.retain(|word| !word.is_empty());
        output::line(clean(&words.join("  ")));
        if !decoded.subjects.is_empty() {
            output::line(format_args!("    {}", clean(&decoded.subjects.join("; "))));
        }
        if let Some(fault) = &decoded.fault {
            output::line(format_args!("    {}", clean(fault)));
        }
        if let Some(reason) = decoded.dropped {
            let detail = decoded.detail.as_deref().unwrap_or_default();
            output::line(format_args!("    dropped: {reason} {}", clean(detail)));
        }
        output::line(format_args!(
            "    {} bytes, {}",
            message.body.len(),
            times.join(", ")
        ));
        if self.raw {
            output::line(&decoded.text);
        }
    }
}

fn losses_named(losses: &Losses) -> [(&'static str, u64); 9] {
    [
        ("packets of other protocols", losses.other_packets),
        ("packets with broken headers", losses.broken_packets),
        ("packets captured in part", losses.cut_packets),
        (
            "datagrams without all fragments",
            losses.incomplete_datagrams,
        ),
        ("gaps in connections", losses.gaps),
        ("messages without their end", losses.incomplete_messages),
        ("connections without HTTP", losses.other_connections),
        ("broken or large messages", losses.broken_messages),
        ("connections forgotten", losses.forgotten),
    ]
}
