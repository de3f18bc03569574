//! Queries of strangers, and the parts of answers.

use std::fmt;

/// Longest name in bytes, with the lengths of its labels and the root (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 255;
/// Longest label.
const LABEL_BYTES_MAX: usize = 63;
/// Bytes of the header.
const HEADER_BYTES: usize = 12;
/// Questions and known answers of one query; reason: a datagram of 1,500 bytes has no more.
const RECORDS_MAX: usize = 256;
/// The two bits that mark a pointer in place of a label (section 4.1.4).
const POINTER: u8 = 0xc0;
/// The top bit of a question's class: the answer may be sent in unicast (RFC 6762, section 5.4).
const UNICAST: u16 = 0x8000;
/// The top bit of a record's class: it replaces those before (section 10.2).
pub(super) const FLUSH: u16 = 0x8000;
/// The class of the Internet, and any class.
pub(super) const CLASS_IN: u16 = 1;
const CLASS_ANY: u16 = 255;
/// Types of records, and any type.
pub(super) const A: u16 = 1;
pub(super) const PTR: u16 = 12;
pub(super) const TXT: u16 = 16;
pub(super) const AAAA: u16 = 28;
pub(super) const SRV: u16 = 33;
pub(super) const ANY: u16 = 255;

/// A query cannot be read, with the offset in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It ends too early.
    #[error("the message ends within its parts")]
    Short,
    /// It is an answer, or another kind of request.
    #[error("the message is not a query")]
    NoQuery,
    /// A name is longer than 255 bytes.
    #[error("the name at byte {0} has more than {NAME_BYTES_MAX} bytes")]
    LongName(usize),
    /// A pointer leads to itself or forward, or a label has an unknown form.
    #[error("the label at byte {0} is neither text nor a pointer to an earlier name")]
    Label(usize),
    /// It has too many parts.
    #[error("the query has more than {RECORDS_MAX} parts")]
    Many,
}

/// A domain name: labels with their lengths, as in a message without pointers. Letters of ASCII are equal in either case.
#[derive(Clone, Eq)]
pub struct Name(Vec<u8>);

impl Name {
    /// A name of these labels. Those that are too long are cut, and those that do not fit are left out.
    #[must_use]
    pub fn of(labels: &[&str]) -> Self {
        let mut bytes = Vec::new();
        for label in labels {
            let mut end = label.len().min(LABEL_BYTES_MAX);
            while !label.is_char_boundary(end) {
                end -= 1;
            }
            let text = &label.as_bytes()[..end];
            if text.is_empty() || bytes.len() + text.len() + 2 > NAME_BYTES_MAX {
                continue;
            }
            bytes.push(u8::try_from(text.len()).unwrap_or_default());
            bytes.extend_from_slice(text);
        }
        bytes.push(0);
        Self(bytes)
    }

    /// Its form in a message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        // Lengths of labels are below all letters.
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// About which name.
    pub name: Name,
    /// The type of the records.
    pub record: u16,
    /// Whether the answer may be sent to the asker alone.
    pub may_be_unicast: bool,
}

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Its number, which an answer in unicast has.
    pub id: u16,
    /// Its questions about the Internet.
    pub questions: Vec<Question>,
    /// Pointers that the asker has for at least so many seconds: from where, to what.
    pub known: Vec<(Name, Name, u32)>,
}

/// Reads a query with its known answers.
///
/// # Errors
/// It is no query, or cannot be read.
pub fn read_query(message: &[u8]) -> Result<Query, MessageError> {
    let mut reader = Reader { message, at: 0 };
    let id = reader.number()?;
    let flags = reader.number()?;
    // An answer, or another operation.
    if flags & 0xf800 != 0 {
        return Err(MessageError::NoQuery);
    }
    let [questions, answers] = [reader.number()?, reader.number()?].map(usize::from);
    if questions + answers > RECORDS_MAX {
        return Err(MessageError::Many);
    }
    reader.at = HEADER_BYTES;
    let mut query = Query {
        id,
        questions: Vec::new(),
        known: Vec::new(),
    };
    for _ in 0..questions {
        let (name, record, class) = (reader.name()?, reader.number()?, reader.number()?);
        if matches!(class & !UNICAST, CLASS_IN | CLASS_ANY) {
            query.questions.push(Question {
                name,
                record,
                may_be_unicast: class & UNICAST != 0,
            });
        }
    }
    for _ in 0..answers {
        let (name, record, _) = (reader.name()?, reader.number()?, reader.number()?);
        let ttl_s = u32::from(reader.number()?) << 16 | u32::from(reader.number()?);
        let length = usize::from(reader.number()?);
        let end = reader.at + length;
        if end > message.len() {
            return Err(MessageError::Short);
        }
        if record == PTR {
            let target = reader.name()?;
            query.known.push((name, target, ttl_s));
        }
        reader.at = end;
    }
    Ok(query)
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u16, MessageError> {
        let bytes = self.message.get(self.at..self.at + 2);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        self.at += 2;
        bytes.map(u16::from_be_bytes).ok_or(MessageError::Short)
    }

    /// A name. Each pointer has to lead to before all that was read of the name, so it ends.
    fn name(&mut self) -> Result<Name, MessageError> {
        let (start, mut at) = (self.at, self.at);
        let (mut earliest, mut end, mut bytes) = (start, None, Vec::new());
        loop {
            let length = *self.message.get(at).ok_or(MessageError::Short)?;
            match length {
                0 => break,
                1..=63 => {
                    let next = at + 1 + usize::from(length);
                    let label = self.message.get(at..next).ok_or(MessageError::Short)?;
                    if bytes.len() + label.len() >= NAME_BYTES_MAX {
                        return Err(MessageError::LongName(start));
                    }
                    bytes.extend_from_slice(label);
                    at = next;
                }
                POINTER.. => {
                    let low = *self.message.get(at + 1).ok_or(MessageError::Short)?;
                    let target = usize::from(length & !POINTER) << 8 | usize::from(low);
                    if target >= earliest {
                        return Err(MessageError::Label(at));
                    }
                    end.get_or_insert(at + 2);
                    (earliest, at) = (target, target);
                }
                _ => return Err(MessageError::Label(at)),
            }
        }
        bytes.push(0);
        self.at = end.unwrap_or(at + 1);
        Ok(Name(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(questions: u16, answers: u16, rest: &[u8]) -> Vec<u8> {
        let mut message = vec![0, 7, 0, 0];
        for count in [questions, answers, 0, 0] {
            message.extend_from_slice(&count.to_be_bytes());
        }
        message.extend_from_slice(rest);
        message
    }

    #[test]
    fn a_query_is_read_with_its_pointers_and_known_answers() {
        let name = b"\x04_wot\x04_tcp\x05local\x00";
        // The target: a label, and a pointer to the name of the question.
        let known = b"\xc0\x0c\x00\x0c\x00\x01\x00\x00\x0e\x10\x00\x04\x01n\xc0\x0c";
        let rest = [&name[..], b"\x00\x0c\x80\x01", known].concat();
        let read = read_query(&query(1, 1, &rest)).unwrap();
        let service = Name::of(&["_WOT", "_tcp", "local"]);
        assert_eq!(read.id, 7);
        assert_eq!(
            read.questions,
            [Question {
                name: service.clone(),
                record: PTR,
                may_be_unicast: true
            }]
        );
        let target = Name::of(&["n", "_wot", "_tcp", "local"]);
        assert_eq!(read.known, [(service, target, 3_600)]);
    }

    #[test]
    fn names_that_loop_or_are_too_long_are_refused() {
        let refused = |rest: &[u8]| read_query(&query(1, 0, rest)).unwrap_err();
        assert_eq!(
            refused(b"\xc0\x0c\x00\x01\x00\x01"),
            MessageError::Label(12)
        );
        // Forward, and to the middle of itself.
        assert_eq!(
            refused(b"\xc0\x0e\x00\x00\x01\x00\x01"),
            MessageError::Label(12)
        );
        assert_eq!(
            refused(b"\x01a\xc0\x0c\x00\x01\x00\x01"),
            MessageError::Label(14)
        );
        assert_eq!(
            refused(b"\x40a\x00\x00\x01\x00\x01"),
            MessageError::Label(12)
        );
        assert_eq!(refused(b"\x05a"), MessageError::Short);
        assert_eq!(refused(b""), MessageError::Short);
        let label = [&[63][..], &[b'a'; 63]].concat();
        assert_eq!(refused(&label.repeat(4)), MessageError::LongName(12));
        assert_eq!(read_query(&query(200, 200, b"")), Err(MessageError::Many));
        let mut answer = query(0, 0, b"");
        answer[2] = 0x84;
        assert_eq!(read_query(&answer), Err(MessageError::NoQuery));
    }

    #[test]
    fn a_name_fits_a_message() {
        let long = "ä".repeat(200);
        assert_eq!(
            Name::of(&[&long, "local"]).bytes().len(),
            1 + 62 + 1 + 5 + 1
        );
        let labels = vec!["abcdefghij"; 40];
        assert!(Name::of(&labels).bytes().len() <= NAME_BYTES_MAX);
        assert_eq!(Name::of(&["A", ""]), Name::of(&["a"]));
    }
}
