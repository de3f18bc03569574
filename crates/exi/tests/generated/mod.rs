//! Strategies that generate schemas, documents and options, for properties and for comparison with
//! another implementation.

use std::fmt::Write as _;

use chappe_exi::{Alignment, Float, Options, Preserve, QName, Representation};
use proptest::prelude::*;

/// The content of an element.
#[derive(Debug, Clone)]
pub(crate) enum Model {
    /// A value: the index of its datatype.
    Value(usize),
    /// Children with their minimum and maximum occurrences; true if text may come between them.
    Sequence(Vec<(Model, u32, u32)>, bool),
    Choice(Vec<Model>),
    All(Vec<Model>),
}

/// Datatypes: their definition in a schema, and lexical forms that the decoder writes back
/// unchanged.
const DATATYPES: [(&str, &[&str]); 13] = [
    (
        "<xs:restriction base='xs:string'/>",
        &["", " a  b ", "same", "\u{1f600}\u{e4}", "&lt;"],
    ),
    (
        "<xs:restriction base='xs:int'/>",
        &["0", "-1", "2147483647", "-300"],
    ),
    (
        "<xs:restriction base='xs:integer'/>",
        &["5", "-99999999999999999999999", "18446744073709551616"],
    ),
    (
        "<xs:restriction base='xs:unsignedByte'/>",
        &["0", "255", "17"],
    ),
    ("<xs:restriction base='xs:boolean'/>", &["true", "false"]),
    (
        "<xs:restriction base='xs:decimal'/>",
        &["1.5", "-0.05", "12345678901234567890123.25"],
    ),
    (
        "<xs:restriction base='xs:double'/>",
        &["1.5", "-2e9", "INF", "NaN"],
    ),
    (
        "<xs:restriction base='xs:dateTime'/>",
        &["2026-11-21T10:00:00.5Z", "0001-01-01T23:59:59-05:30"],
    ),
    (
        "<xs:restriction base='xs:date'/>",
        &["2026-11-21", "2000-02-29Z"],
    ),
    ("<xs:restriction base='xs:base64Binary'/>", &["AAEC", ""]),
    ("<xs:restriction base='xs:hexBinary'/>", &["00FF", ""]),
    (
        "<xs:restriction base='xs:string'><xs:pattern value='[a-e]*'/></xs:restriction>",
        &["abc", "", "xyz", "ee"],
    ),
    (
        "<xs:restriction base='xs:token'><xs:enumeration value='one'/><xs:enumeration value='two'/>\
         <xs:enumeration value='three'/></xs:restriction>",
        &["one", "two", "three"],
    ),
];

pub(crate) fn model() -> impl Strategy<Value = Model> {
    let leaf = (0..DATATYPES.len()).prop_map(Model::Value);
    leaf.prop_recursive(3, 24, 4, |inner| {
        let occurs = prop_oneof![
            Just((0, 1)),
            Just((1, 1)),
            Just((0, 9)),
            Just((2, 12)),
            Just((0, 2))
        ];
        let child = (inner.clone(), occurs).prop_map(|(model, (min, max))| (model, min, max));
        prop_oneof![
            (prop::collection::vec(child, 0..4), any::<bool>())
                .prop_map(|(children, mixed)| Model::Sequence(children, mixed)),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Model::Choice),
            prop::collection::vec(inner, 1..4).prop_map(Model::All),
        ]
    })
}

/// Writes the type definition of an element; children are named by consecutive numbers.
fn declare(model: &Model, next: &mut u32, xsd: &mut String) {
    let mut child = |model: &Model, min: u32, max: u32, xsd: &mut String| {
        let name = *next;
        *next += 1;
        let _ = write!(
            xsd,
            "<xs:element name='e{name}' minOccurs='{min}' maxOccurs='{max}'>"
        );
        declare(model, next, xsd);
        xsd.push_str("</xs:element>");
    };
    let mut open = |mixed: bool, group: &str| {
        let _ = write!(xsd, "<xs:complexType mixed='{mixed}'><xs:{group}>");
    };
    let group = match model {
        Model::Value(datatype) => {
            let derivation = DATATYPES[*datatype].0;
            let _ = write!(xsd, "<xs:simpleType>{derivation}</xs:simpleType>");
            return;
        }
        Model::Sequence(children, mixed) => {
            open(*mixed, "sequence");
            for (model, min, max) in children {
                child(model, *min, *max, xsd);
            }
            "sequence"
        }
        Model::Choice(children) => {
            open(false, "choice");
            children.iter().for_each(|model| child(model, 1, 1, xsd));
            "choice"
        }
        Model::All(children) => {
            open(false, "all");
            children.iter().for_each(|model| child(model, 0, 1, xsd));
            "all"
        }
    };
    let _ = write!(
        xsd,
        "</xs:{group}><xs:attribute name='k' type='xs:int'/><xs:attribute name='s'/></xs:complexType>"
    );
}

/// A schema whose element `r` has the model.
pub(crate) fn xsd(model: &Model) -> String {
    let mut xsd = String::from(
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='r'>",
    );
    declare(model, &mut 0, &mut xsd);
    xsd.push_str("</xs:element></xs:schema>");
    xsd
}

/// Draws from a list of numbers in a cycle.
struct Draw<'d> {
    from: &'d [u16],
    at: usize,
}

impl Draw<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.at += 1;
        let drawn = self.from[self.at % self.from.len()];
        (usize::from(drawn).wrapping_add(self.at / self.from.len())) % bound.max(1)
    }
}

/// Writes a document of a model, and the text that decoding it gives under the options.
struct Document<'d> {
    draw: Draw<'d>,
    options: &'d Options,
    /// The document may deviate from the schema.
    deviate: bool,
    sent: String,
    back: String,
}

impl Document<'_> {
    fn both(&mut self, text: &str) {
        self.sent.push_str(text);
        self.back.push_str(text);
    }

    /// Content that may occur anywhere within an element.
    fn misc(&mut self) {
        match self.draw.below(12) {
            0 => {
                self.sent.push_str("<!-- c -->");
                if self.options.preserve.comments {
                    self.back.push_str("<!-- c -->");
                }
            }
            1 => {
                self.sent.push_str("<?p some text?>");
                if self.options.preserve.pis {
                    self.back.push_str("<?p some text?>");
                }
            }
            2 if self.deviate => self.both("<u v=\"1\">undeclared<w/></u>"),
            3 if self.deviate && self.options.preserve.prefixes => {
                self.both("<p:u xmlns:p=\"u:p\" xmlns:q=\"u:q\" q:v=\"1\"><p:w/></p:u>");
            }
            _ => {}
        }
    }

    fn element(&mut self, name: &str, model: &Model, next: &mut u32) {
        let first = *next;
        self.both(&format!("<{name}"));
        if !matches!(model, Model::Value(_)) {
            let number = ["7", "-12"][self.draw.below(2)];
            match self.draw.below(6) {
                0 => self.both(&format!(" k=\"{number}\"")),
                1 => self.both(&format!(" k=\"{number}\" s=\"same\"")),
                2 if self.deviate => self.both(" k=\"none\" s=\"same\" z=\"undeclared\""),
                3 if self.deviate => self.both(" a=\"undeclared\""),
                _ => {}
            }
        }
        let (sent, back) = (self.sent.len(), self.back.len());
        self.both(">");
        self.children(model, next);
        // An element without content is written as an empty-element tag.
        match self.back.len() == back + 1 {
            true => {
                self.back.truncate(back);
                self.back.push_str("/>");
            }
            false => {
                let _ = write!(self.back, "</{name}>");
            }
        }
        debug_assert!(self.sent.len() > sent);
        let _ = write!(self.sent, "</{name}>");
        // Names continue as in the schema, regardless of the parts that occur.
        *next = first;
        skip(model, next);
    }

    fn children(&mut self, model: &Model, next: &mut u32) {
        match model {
            Model::Value(datatype) => {
                let forms = DATATYPES[*datatype].1;
                let mut form = forms[self.draw.below(forms.len())].to_owned();
                if self.deviate && self.draw.below(5) == 0 {
                    form = "no value!".to_owned();
                } else if let (6, Some(value)) = (*datatype, Float::parse(&form)) {
                    form = value.to_string();
                }
                self.both(&form);
            }
            Model::Sequence(children, mixed) => {
                for (model, min, max) in children {
                    let number = min + self.draw.below((max - min) as usize + 1) as u32;
                    for _ in 0..number {
                        self.misc();
                        if *mixed && self.draw.below(3) == 0 {
                            self.both("text ");
                        }
                        self.child(model, *next);
                    }
                    *next += 1;
                    skip(model, next);
                }
                self.misc();
            }
            Model::Choice(children) => {
                let chosen = self.draw.below(children.len());
                for (at, model) in children.iter().enumerate() {
                    if at == chosen {
                        self.child(model, *next);
                    }
                    *next += 1;
                    skip(model, next);
                }
            }
            Model::All(children) => {
                let mut places = Vec::new();
                for model in children {
                    places.push((model, *next));
                    *next += 1;
                    skip(model, next);
                }
                let turn = self.draw.below(places.len());
                places.rotate_left(turn);
                for (model, name) in places {
                    if self.draw.below(3) > 0 {
                        self.child(model, name);
                    }
                }
            }
        }
    }

    fn child(&mut self, model: &Model, name: u32) {
        self.element(&format!("e{name}"), model, &mut (name + 1));
    }
}

/// A document of the model: the text to encode and the text that decoding gives.
pub(crate) fn document(model: &Model, options: &Options, drawn: &[u16]) -> (String, String) {
    let mut document = Document {
        draw: Draw { from: drawn, at: 0 },
        options,
        deviate: !options.strict,
        sent: String::new(),
        back: String::new(),
    };
    if options.preserve.dtd && !options.fragment {
        document.both("<!DOCTYPE r>\n");
    }
    document.element("r", model, &mut 0);
    (document.sent, document.back)
}

/// Skips the names within a model.
fn skip(model: &Model, next: &mut u32) {
    let mut one = |model: &Model| {
        *next += 1;
        skip(model, next);
    };
    match model {
        Model::Value(_) => {}
        Model::Sequence(children, _) => children.iter().for_each(|(model, ..)| one(model)),
        Model::Choice(children) | Model::All(children) => children.iter().for_each(one),
    }
}

pub(crate) fn options() -> impl Strategy<Value = Options> {
    let flags = prop::collection::vec(any::<bool>(), 9);
    let small = || prop::option::of(0..4u32);
    (0..4u8, flags, small(), small(), 0..3usize).prop_map(
        |(layout, flags, capacity, length, block)| {
            let channels = layout >= 2;
            let strict = flags[0];
            let name = |namespace: &str, local: &str| QName {
                namespace: namespace.into(),
                local: local.into(),
            };
            let as_string = ["decimal", "boolean"].map(|local| Representation {
                datatype: name("http://www.w3.org/2001/XMLSchema", local),
                representation: name("http://www.w3.org/2009/exi", "string"),
            });
            Options {
                alignment: match layout {
                    1 => Alignment::ByteAligned,
                    2 => Alignment::PreCompression,
                    _ => Alignment::BitPacked,
                },
                compression: layout == 3,
                strict,
                fragment: flags[1],
                self_contained: flags[2] && !strict && !channels,
                preserve: Preserve {
                    comments: flags[3] && !strict,
                    pis: flags[4] && !strict,
                    dtd: flags[5] && !strict,
                    prefixes: flags[6] && !strict,
                    lexical_values: flags[7],
                },
                datatype_representation_map: if flags[8] {
                    as_string.to_vec()
                } else {
                    Vec::new()
                },
                block_size: [1, 3, Options::BLOCK_SIZE][block],
                value_partition_capacity: capacity,
                value_max_length: length,
                ..Options::default()
            }
        },
    )
}
