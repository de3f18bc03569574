//! The documents and their schemas.

/// A document of text XML.
pub(super) struct Document {
    pub(super) name: &'static str,
    pub(super) text: String,
}

pub(super) const NOTIFICATION: &str = "notification";
pub(super) const INTEGERS: &str = "100 integers";
pub(super) const TEXT: &str = "64 kB text";

/// The schema that imports the others.
pub(super) const WHOLE: &str = "whole.xsd";

/// Schema documents by their file names.
pub(super) const SCHEMAS: [(&str, &str); 7] = [
    (WHOLE, include_str!("documents/whole.xsd")),
    ("plant.xsd", include_str!("documents/plant.xsd")),
    (
        "envelope.xsd",
        include_str!("../../../exi/schemas/envelope.xsd"),
    ),
    (
        "addressing.xsd",
        include_str!("../../../exi/schemas/addressing.xsd"),
    ),
    (
        "eventing.xsd",
        include_str!("../../../exi/schemas/eventing.xsd"),
    ),
    ("dpws.xsd", include_str!("../../../exi/schemas/dpws.xsd")),
    ("xml.xsd", include_str!("../../../exi/schemas/xml.xsd")),
];

/// Bytes of the long text.
const TEXT_BYTES: usize = 65_536;

const WORDS: [&str; 16] = [
    "pump",
    "valve",
    "opened",
    "closed",
    "temperature",
    "pressure",
    "exceeded",
    "limit",
    "at",
    "station",
    "motor",
    "started",
    "normal",
    "reading",
    "of",
    "the",
];

/// The documents; their numbers come from a seed.
pub(super) fn all(seed: u64) -> Vec<Document> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut counts = String::new();
    for _ in 0..100 {
        // Of all magnitudes.
        let count = random.i32(..) >> random.u32(0..28);
        counts += &format!("<p:Count>{count}</p:Count>");
    }
    let mut text = String::new();
    while text.len() < TEXT_BYTES {
        match random.u32(0..6) {
            0 => text += &format!("{} ", random.u32(..)),
            _ => text += &format!("{} ", WORDS[random.usize(0..WORDS.len())]),
        }
    }
    text.truncate(TEXT_BYTES);
    // No space at the end, which a reader might strip.
    text.pop();
    text.push('.');
    let document = |name, text| Document { name, text };
    vec![
        document(
            NOTIFICATION,
            include_str!("documents/notification.xml")
                .trim_end()
                .to_owned(),
        ),
        document(
            INTEGERS,
            envelope(&format!("<p:Counts>{counts}</p:Counts>")),
        ),
        document(TEXT, envelope(&format!("<p:Log>{text}</p:Log>"))),
    ]
}

fn envelope(body: &str) -> String {
    let soap = "http://www.w3.org/2003/05/soap-envelope";
    format!(
        "<s:Envelope xmlns:s=\"{soap}\" xmlns:p=\"urn:example:plant\"><s:Body>{body}</s:Body>\
         </s:Envelope>"
    )
}

#[cfg(test)]
mod tests {
    use super::super::recorded;
    use super::*;

    #[test]
    fn documents_are_of_their_sizes() {
        let documents = all(1);
        let sizes: Vec<usize> = documents.iter().map(|one| one.text.len()).collect();
        assert!((900..1_200).contains(&sizes[0]), "{sizes:?}");
        assert!(sizes[2] > TEXT_BYTES, "{sizes:?}");
        assert!(documents.iter().all(|one| recorded::is_document(&one.text)));
    }
}
