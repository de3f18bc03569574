//! How a device is made to deviate: what is changed on its way.

use super::super::wire::{Got, Post, Posted};

/// The part of the check in which a deviation shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Description,
    Messaging,
    HttpProbe,
    Eventing,
    Discovery,
}

/// What is changed on its way.
#[derive(Clone, Copy)]
pub(super) enum Tamper {
    /// The question: the device overlooks a part of it.
    Question(fn(&mut String)),
    /// The answer to a message by HTTP.
    Answer(fn(&Post, Got) -> Result<Got, String>),
    /// The answer to an HTTP GET.
    Document(fn(&mut Got)),
    /// The answers to a question by multicast.
    Datagrams(fn(&str, &mut Vec<String>)),
    /// An event.
    Notification(fn(&mut Posted)),
}

pub(super) struct Deviation {
    pub(super) clause: &'static str,
    pub(super) stage: Stage,
    pub(super) tamper: Tamper,
}

pub(super) const fn deviation(clause: &'static str, stage: Stage, tamper: Tamper) -> Deviation {
    Deviation {
        clause,
        stage,
        tamper,
    }
}

/// Replaces text in every answer to a message.
macro_rules! answers {
    ($from:expr, $to:expr) => {
        Tamper::Answer(|_, mut got| {
            got.body = got.body.replace($from, $to);
            Ok(got)
        })
    };
}

/// Answers with this status where the question or the answer has a text.
macro_rules! status {
    ($text:expr, $status:literal) => {
        Tamper::Answer(
            |post, got| match post.body.contains($text) || got.body.contains($text) {
                true => Ok(Got {
                    status: $status,
                    ..Got::default()
                }),
                false => Ok(got),
            },
        )
    };
}

/// Replaces text in every question.
macro_rules! question {
    ($($from:expr => $to:expr),*) => {
        Tamper::Question(|text| {
            $(*text = text.replace($from, $to);)*
        })
    };
}

/// Replaces text in every answer to a question with a text.
macro_rules! datagrams {
    ($question:expr, $from:expr, $to:expr) => {
        Tamper::Datagrams(|question, answers| {
            if question.contains($question) {
                for answer in answers {
                    *answer = answer.replace($from, $to);
                }
            }
        })
    };
}

macro_rules! document {
    ($from:expr, $to:expr) => {
        Tamper::Document(|got| got.body = got.body.replace($from, $to))
    };
}

macro_rules! notification {
    ($from:expr, $to:expr) => {
        Tamper::Notification(|posted| posted.body = posted.body.replace($from, $to))
    };
}

/// Removes an element, from `<name` to `</name>`.
pub(super) fn cut(text: &mut String, name: &str) {
    let close = format!("</{name}>");
    let range = text.find(&format!("<{name}")).zip(text.rfind(&close));
    if let Some((from, to)) = range.filter(|(from, to)| from < to) {
        text.replace_range(from..to + close.len(), "");
    }
}

/// Sets every value of an attribute.
pub(super) fn set_attribute(text: &str, name: &str, value: &str) -> String {
    let open = format!("{name}=\"");
    let mut parts = text.split(&open);
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once('"').map_or("", |(_, rest)| rest);
        changed.push_str(&format!("{open}{value}\"{rest}"));
    }
    changed
}

pub(super) fn without(name: &str, post: &Post, got: Got) -> Result<Got, String> {
    let is_without = !post.body.contains(name);
    Ok(if is_without {
        Got {
            status: 200,
            ..Got::default()
        }
    } else {
        got
    })
}

pub(super) use {answers, datagrams, document, notification, question, status};
