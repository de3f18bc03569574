//! Large numbers of occurrences are counted without a state for each, and streams do not show it.
//! For schemas with numbers of occurrences, documents with fewer, as many and more elements are
//! encoded; the bytes match those under the same schema with every occurrence written out, as the
//! specification defines it (8.5.4.1.5). Much larger numbers stay within small limits.

use std::fmt::Write as _;
use std::sync::Arc;

use chappe_exi::{Decoder, Encoder, HeaderOptions, Limits, Options, Schema, XsdSource, text};

fn schema(content: &str, mixed: bool, limits: &Limits) -> Result<Arc<Schema>, String> {
    let document = format!(
        r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="r">
        <xs:complexType mixed="{mixed}"><xs:sequence>{content}</xs:sequence><xs:attribute name="k"/>
        </xs:complexType></xs:element><xs:element name="h" type="xs:int"/>
        <xs:element name="m" type="xs:int" substitutionGroup="h"/></xs:schema>"#
    );
    let source = XsdSource {
        name: "r.xsd".into(),
        document: document.into_bytes(),
    };
    let made = Schema::from_xsd_within(vec![source], &mut |_, _| None, limits);
    made.map(Arc::new).map_err(|error| error.to_string())
}

/// A particle with its number of occurrences, or with each occurrence written out.
fn particle(start: &str, end: &str, min: u32, max: u32, written_out: bool) -> String {
    if !written_out {
        return format!("{start} minOccurs='{min}' maxOccurs='{max}'{end}");
    }
    let mut all = String::new();
    for at in 0..max {
        let least = u32::from(at < min);
        let _ = write!(all, "{start} minOccurs='{least}'{end}");
    }
    all
}

fn stream(schema: &Arc<Schema>, strict: bool, document: &str) -> Result<Vec<u8>, String> {
    let options = Options {
        strict,
        ..Options::default()
    };
    let mut encoder = Encoder::new(schema.clone());
    let header = HeaderOptions::default();
    let made = text::encode(&mut encoder, &options, header, document.as_bytes());
    let made = made.map_err(|error| error.to_string())?.to_vec();
    let mut decoder = Decoder::new(schema.clone());
    let read = text::decode(&mut decoder, &made, Some(&options));
    match document.contains("xmlns") {
        // Prefixes are not preserved.
        true => assert!(read.is_ok(), "{read:?}"),
        false => assert_eq!(read.as_deref(), Ok(document)),
    }
    Ok(made)
}

#[test]
fn counted_particles_encode_as_written_out() {
    let leaves = [
        ("<xs:element name='a' type='xs:int'", "/>", "<a>5</a>"),
        ("<xs:element ref='h'", "/>", "<m>5</m>"),
        (
            "<xs:any namespace='u:w' processContents='skip'",
            "/>",
            "<w:h xmlns:w='u:w'>5</w:h>",
        ),
        (
            "<xs:choice",
            "><xs:element name='a' type='xs:int'/><xs:element name='b' type='xs:int'/></xs:choice>",
            "<a>5</a>",
        ),
        (
            "<xs:sequence",
            "><xs:element name='a' type='xs:int'/><xs:element name='b' type='xs:int' minOccurs='0'/></xs:sequence>",
            "<a>5</a>",
        ),
    ];
    for (start, end, instance) in leaves {
        for (min, max) in [(0, 9), (1, 9), (2, 9), (5, 12), (9, 9), (12, 13), (0, 40)] {
            for mixed in [false, true] {
                let limits = Limits::default();
                let after = "<xs:element name='z' type='xs:int' minOccurs='0'/>";
                let make = |written_out| {
                    let content = particle(start, end, min, max, written_out) + after;
                    schema(&content, mixed, &limits).expect("it is a schema")
                };
                let (counted, written_out) = (make(false), make(true));
                for number in [0, 1, 2, min, min + 1, max - 1, max, max + 1] {
                    for last in ["", "<z>7</z>"] {
                        let children = instance.repeat(number as usize);
                        let document = match children.is_empty() && last.is_empty() {
                            true => "<r/>".to_owned(),
                            false => format!("<r>{children}{last}</r>"),
                        };
                        for strict in [false, true] {
                            let one = stream(&counted, strict, &document);
                            let other = stream(&written_out, strict, &document);
                            assert_eq!(
                                one.is_ok(),
                                other.is_ok(),
                                "{document} {min} {max} {start}"
                            );
                            // Copies of a group share the order of their leaves, others do not.
                            let leaf = end == "/>";
                            if let (Ok(one), Ok(other), true) = (one, other, leaf) {
                                assert_eq!(one, other, "{document} {min} {max} {start}");
                            }
                            let valid = (min..=max).contains(&number);
                            if strict {
                                assert_eq!(stream(&counted, true, &document).is_ok(), valid);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn counted_particles_may_repeat() {
    let limits = Limits::default();
    for outer in [
        "<xs:sequence maxOccurs='unbounded'>",
        "<xs:sequence maxOccurs='3'>",
        "<xs:choice maxOccurs='unbounded'>",
    ] {
        let inner = "<xs:element name='a' type='xs:int' minOccurs='0' maxOccurs='20'/>\
            <xs:element name='b' type='xs:int' minOccurs='0'/>";
        let close = if outer.contains("choice") {
            "</xs:choice>"
        } else {
            "</xs:sequence>"
        };
        let schema = schema(&format!("{outer}{inner}{close}"), false, &limits);
        let schema = schema.expect("it is a schema");
        // The sequence occurs three times with up to twenty elements, or any number of times.
        let most = if outer.contains('3') { 20 } else { 41 };
        for number in [1, 19, 20, 21, 40, 41]
            .into_iter()
            .filter(|one| *one <= most)
        {
            let children = "<a>5</a>".repeat(number);
            stream(
                &schema,
                true,
                &format!("<r>{children}<b>6</b>{children}</r>"),
            )
            .expect("it is valid");
        }
    }
}

#[test]
fn large_occurrences_need_few_states() {
    let limits = Limits {
        grammar_states: 400,
        ..Limits::default()
    };
    let large = "<xs:element name='a' type='xs:int' minOccurs='3' maxOccurs='4000000000'/>";
    let schema = schema(large, false, &limits).expect("it is within the limit");
    for (number, valid) in [(2, false), (3, true), (10_000, true)] {
        let document = format!("<r>{}</r>", "<a>5</a>".repeat(number));
        assert_eq!(stream(&schema, true, &document).is_ok(), valid);
    }
}

#[test]
fn large_group_occurrences_need_few_states() {
    let limits = Limits {
        grammar_states: 400,
        ..Limits::default()
    };
    let group = "<xs:sequence minOccurs='3' maxOccurs='4000000000'><xs:element name='a' type='xs:int'/>\
        <xs:choice minOccurs='0'><xs:element name='b' type='xs:int'/><xs:element name='c' type='xs:int'/>\
        </xs:choice></xs:sequence><xs:element name='z' type='xs:int'/>";
    for mixed in [false, true] {
        let schema = schema(group, mixed, &limits).expect("it is within the limit");
        for (number, valid) in [(2, false), (3, true), (10_000, true)] {
            let text = if mixed { "x" } else { "" };
            let document = format!("<r>{}{text}<z>5</z></r>", "<a>5</a><c>6</c>".repeat(number));
            assert_eq!(stream(&schema, true, &document).is_ok(), valid, "{number}");
            let wrong = document.replace("</c><z>", "</c><b>6</b><z>");
            assert!(stream(&schema, true, &wrong).is_err() || mixed);
        }
    }
}

#[test]
fn too_many_states_are_refused() {
    let limits = Limits {
        grammar_states: 400,
        ..Limits::default()
    };
    // The sequence that a child belongs to depends on the following elements.
    let group = "<xs:sequence maxOccurs='unbounded'><xs:sequence maxOccurs='4000000000'>\
        <xs:element name='a' type='xs:int'/><xs:element name='b' type='xs:int'/></xs:sequence>\
        </xs:sequence>";
    let refused = schema(group, false, &limits).expect_err("too many states");
    assert!(
        refused.starts_with("r.xsd, line 2: limit grammar_states of 400 is exceeded"),
        "{refused}"
    );
}

/// A chain of types, each of which extends the next one by an optional element.
fn chain(types: usize, limits: &Limits) -> Result<Arc<Schema>, String> {
    let mut document = format!(
        r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="r" type="t0"/>
        <xs:complexType name="t{types}"><xs:sequence/></xs:complexType>"#
    );
    for at in 0..types {
        let _ = write!(
            document,
            r#"<xs:complexType name="t{at}"><xs:complexContent><xs:extension base="t{}"><xs:sequence>
            <xs:element name="e{at}" type="xs:int" minOccurs="0"/></xs:sequence></xs:extension>
            </xs:complexContent></xs:complexType>"#,
            at + 1
        );
    }
    document.push_str("</xs:schema>");
    let source = XsdSource {
        name: "r.xsd".into(),
        document: document.into_bytes(),
    };
    let made = Schema::from_xsd_within(vec![source], &mut |_, _| None, limits);
    made.map(Arc::new).map_err(|error| error.to_string())
}

#[test]
fn long_derivations_have_a_bound_of_work() {
    // The limit for schemas of strangers.
    let limits = Limits {
        grammar_states: 20_000,
        ..Limits::default()
    };
    let schema = chain(32, &limits).expect("it is within the limit");
    for (document, valid) in [
        ("<r/>", true),
        ("<r><e31>5</e31><e0>6</e0></r>", true),
        ("<r><e0>6</e0><e31>5</e31></r>", false),
    ] {
        assert_eq!(stream(&schema, true, document).is_ok(), valid, "{document}");
    }
    let refused = chain(120, &limits).expect_err("the work grows with the cube of the length");
    assert!(
        refused.contains("limit grammar_states of 20000 is exceeded"),
        "{refused}"
    );
}
