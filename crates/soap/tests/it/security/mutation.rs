//! Random changes of signed messages: of bytes, of whole elements (copied, moved, renamed, wrapped, doubled,
//! exchanged with those of another message), of identifiers, algorithms, certificates and declarations.
//!
//! Tests of endpoints include this file, too.

use chappe_xml::Limits;
use chappe_xml::canonical::{Scanner, Step};
use fastrand::Rng;

/// Where each element starts and ends, in the order of the ends.
fn elements(document: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let Ok(mut scanner) = Scanner::new(document.as_bytes(), Limits::default()) else {
        return found;
    };
    let mut open = Vec::new();
    while let Ok(Some(step)) = scanner.next_step() {
        match step {
            Step::Start { .. } => open.push(scanner.fragment_start()),
            Step::End => {
                let fragment = scanner.fragment(open.pop().unwrap()).unwrap();
                let start = fragment.bytes().as_ptr() as usize - document.as_ptr() as usize;
                found.push((start, start + fragment.bytes().len()));
            }
        }
    }
    found
}

fn pick<'e, T>(rng: &mut Rng, all: &'e [T]) -> Option<&'e T> {
    (!all.is_empty()).then(|| &all[rng.usize(..all.len())])
}

/// A position between tags: right before or after an element, or right after a start tag.
fn place(rng: &mut Rng, document: &str) -> Option<usize> {
    let (start, end) = *pick(rng, &elements(document))?;
    match rng.u8(..3) {
        0 => Some(start),
        1 => Some(end),
        _ => document[start..end].find('>').map(|tag| start + tag + 1),
    }
}

fn inserted(document: &str, at: usize, text: &str) -> String {
    [&document[..at], text, &document[at..]].concat()
}

fn without(document: &str, (start, end): (usize, usize)) -> String {
    [&document[..start], &document[end..]].concat()
}

/// Replaces one random occurrence.
fn replaced_once(rng: &mut Rng, document: &str, from: &str, to: &str) -> Option<String> {
    let all: Vec<usize> = document.match_indices(from).map(|(at, _)| at).collect();
    let at = *pick(rng, &all)?;
    Some([&document[..at], to, &document[at + from.len()..]].concat())
}

/// The values of attributes with this beginning.
fn values<'d>(document: &'d str, beginning: &str) -> Vec<&'d str> {
    let starts = document
        .match_indices(beginning)
        .map(|(at, _)| at + beginning.len());
    starts
        .filter_map(|at| {
            document[at..]
                .find('"')
                .map(|length| &document[at..at + length])
        })
        .collect()
}

const ALGORITHMS: &[&str] = &[
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
    "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256",
    "http://www.w3.org/2000/09/xmldsig#rsa-sha1",
    "http://www.w3.org/2000/09/xmldsig#hmac-sha1",
    "http://www.w3.org/2001/04/xmlenc#sha256",
    "http://www.w3.org/2000/09/xmldsig#sha1",
    "http://www.w3.org/2001/10/xml-exc-c14n#",
    "http://www.w3.org/2001/10/xml-exc-c14n#WithComments",
    "http://www.w3.org/TR/2001/REC-xml-c14n-20010315",
    "http://www.w3.org/TR/1999/REC-xpath-19991116",
    "http://www.w3.org/TR/1999/REC-xslt-19991116",
    "http://www.w3.org/2000/09/xmldsig#enveloped-signature",
    "",
];
const NAMESPACES: &[&str] = &[
    "http://www.w3.org/2003/05/soap-envelope",
    "http://schemas.xmlsoap.org/soap/envelope/",
    "http://www.w3.org/2005/08/addressing",
    "http://schemas.xmlsoap.org/ws/2004/08/addressing",
    "http://www.w3.org/2000/09/xmldsig#",
    "urn:x",
    "urn:types",
    "urn:other",
];
/// Names that elements get: of parts with a meaning, and one without.
const NAMES: &[&str] = &[
    "soap:Body",
    "soap:Header",
    "wsse:Security",
    "wsu:Timestamp",
    "ds:Signature",
    "ds:Object",
    "wsse:BinarySecurityToken",
    "wsa:To",
    "wsa:Action",
    "wsa:ReplyTo",
    "wsa:FaultTo",
    "x",
];
const TEXTS: &[&str] = &[
    "9",
    "<!--c-->",
    "<?p i?>",
    "<![CDATA[9]]>",
    "&#57;",
    " ",
    "\n",
    "<x/>",
    "&amp;",
    "\r\n",
    "<x xmlns='urn:x'/>",
    "<wsa:To xmlns:wsa='http://www.w3.org/2005/08/addressing'>urn:o</wsa:To>",
];

/// Messages of which mutants are made.
pub(crate) struct Material {
    pub(crate) documents: Vec<String>,
    /// Certificates in base64.
    pub(crate) tokens: Vec<String>,
}

impl Material {
    /// The original after one to three changes; it may be the same.
    pub(crate) fn mutant(&self, rng: &mut Rng, original: &str) -> String {
        let mut mutant = original.to_owned();
        for _ in 0..rng.u8(1..=3) {
            if let Some(changed) = self.change(rng, &mutant) {
                mutant = changed;
            }
        }
        mutant
    }

    /// One random change; `None` if it does not apply.
    fn change(&self, rng: &mut Rng, document: &str) -> Option<String> {
        match rng.u8(..6) {
            0 => change_of_bytes(rng, document),
            1 | 2 => change_of_elements(rng, document),
            3 => self.change_of_values(rng, document),
            4 => self.exchange(rng, document),
            _ => wrapped(rng, document),
        }
    }

    fn change_of_values(&self, rng: &mut Rng, document: &str) -> Option<String> {
        let (from, to) = match rng.u8(..6) {
            0 => {
                let to = *pick(rng, ALGORITHMS)?;
                (*pick(rng, &values(document, "Algorithm=\""))?, to)
            }
            1 => {
                let ids = values(document, "wsu:Id=\"");
                (*pick(rng, &ids)?, *pick(rng, &ids)?)
            }
            2 => {
                let all = values(document, "URI=\"#");
                (*pick(rng, &all)?, *pick(rng, &all)?)
            }
            3 => {
                let to = *pick(rng, NAMESPACES)?;
                (*pick(rng, NAMESPACES)?, to)
            }
            4 => {
                let lists = values(document, "PrefixList=\"");
                (
                    *pick(rng, &lists)?,
                    *pick(rng, &["", "soap", "t s", "#default"])?,
                )
            }
            _ => {
                let (start, end) = *pick(rng, &elements(document))?;
                let text = document[start..end].strip_prefix("<wsse:BinarySecurityToken")?;
                let text = &text[text.find('>')? + 1..text.find("</")?];
                (text, self.tokens[rng.usize(..self.tokens.len())].as_str())
            }
        };
        replaced_once(rng, document, from, to)
    }

    /// Takes an element of another message in place of, or next to, one of the same name.
    fn exchange(&self, rng: &mut Rng, document: &str) -> Option<String> {
        let other = pick(rng, &self.documents)?;
        let (start, end) = *pick(rng, &elements(other))?;
        let taken = &other[start..end];
        let name = &taken[..taken.find([' ', '>', '/'])?];
        let mut same = elements(document);
        same.retain(|(start, end)| document[*start..*end].starts_with(name));
        let (start, end) = *pick(rng, &same)?;
        match rng.bool() {
            true => Some(inserted(&without(document, (start, end)), start, taken)),
            false => Some(inserted(document, end, taken)),
        }
    }
}

fn change_of_bytes(rng: &mut Rng, document: &str) -> Option<String> {
    let mut bytes = document.as_bytes().to_vec();
    let at = rng.usize(..bytes.len());
    match rng.u8(..4) {
        0 => bytes[at] ^= 1 << rng.u8(..7),
        1 => {
            bytes.remove(at);
        }
        2 => bytes.insert(at, rng.u8(b' '..b'~')),
        _ => {
            let end = (at + rng.usize(1..40)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = rng.usize(..bytes.len());
            bytes.splice(to..to, copy);
        }
    }
    String::from_utf8(bytes).ok()
}

fn change_of_elements(rng: &mut Rng, document: &str) -> Option<String> {
    let element = *pick(rng, &elements(document))?;
    let text = &document[element.0..element.1];
    match rng.u8(..7) {
        0 => Some(inserted(document, place(rng, document)?, text)),
        1 => {
            let rest = without(document, element);
            let at = place(rng, &rest)?;
            Some(inserted(&rest, at, text))
        }
        2 => Some(without(document, element)),
        3 => {
            let name = *pick(rng, NAMES)?;
            let old = &text[1..text.find([' ', '>', '/'])?];
            let renamed = text.replacen(old, name, 1);
            let end = renamed
                .rfind(old)
                .filter(|end| renamed[..*end].ends_with("</"));
            let renamed = match end {
                Some(end) => [&renamed[..end], name, &renamed[end + old.len()..]].concat(),
                None => renamed,
            };
            Some(inserted(&without(document, element), element.0, &renamed))
        }
        4 => {
            let name = *pick(rng, NAMES)?;
            let wrapped = format!("<{name}>{text}</{name}>");
            Some(inserted(&without(document, element), element.0, &wrapped))
        }
        5 => {
            let other = *pick(rng, &elements(document))?;
            let (first, second) = (element.min(other), element.max(other));
            if first.1 > second.0 {
                return None;
            }
            let (one, two) = (&document[first.0..first.1], &document[second.0..second.1]);
            let (start, middle) = (&document[..first.0], &document[first.1..second.0]);
            Some([start, two, middle, one, &document[second.1..]].concat())
        }
        _ => Some(inserted(document, place(rng, document)?, pick(rng, TEXTS)?)),
    }
}

/// The attack itself: a changed copy takes the place of a signed part, which is hidden elsewhere.
fn wrapped(rng: &mut Rng, document: &str) -> Option<String> {
    let all = elements(document);
    let signed: Vec<_> = all
        .into_iter()
        .filter(|(start, end)| {
            let text = &document[*start..*end];
            text[..text.find('>').unwrap_or_default()].contains("wsu:Id=")
        })
        .collect();
    let part = *pick(rng, &signed)?;
    let text = &document[part.0..part.1];
    let id = *values(text, "wsu:Id=\"").first()?;
    let mut evil = match rng.bool() {
        true => text
            .replace(">70<", ">99<")
            .replace("urn:uuid:", "urn:uuid:9"),
        false => change_of_bytes(rng, text)?,
    };
    match rng.u8(..3) {
        0 => evil = evil.replacen(&format!(" wsu:Id=\"{id}\""), "", 1),
        1 => evil = evil.replacen(id, "other", 1),
        _ => {}
    }
    let name = *pick(rng, NAMES)?;
    let hidden = match rng.u8(..3) {
        0 => text.to_owned(),
        1 => format!("<{name}>{text}</{name}>"),
        _ => format!("<ds:Object Id=\"{id}\">{text}</ds:Object>"),
    };
    let rest = inserted(&without(document, part), part.0, &evil);
    let at = place(rng, &rest)?;
    Some(inserted(&rest, at, &hidden))
}
