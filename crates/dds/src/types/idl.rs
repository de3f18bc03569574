//! Types from an IDL file (OMG IDL 4.2, DDS-XTypes 1.3 clause 7.3.1).
//!
//! Read are modules, structs with inheritance, enumerations, type definitions, whole-number constants, includes, and the
//! annotations that decide an encoding. Other annotations, and constants of other types, are skipped. Everything else is an
//! error with its line and column.
//!
//! The parser is our own because the crates for IDL generate source code and have no tree of types, and the one in Cyclone
//! DDS is 10,000 lines of C that report to standard error.

mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::tokens::{Token, Tokens};
use super::{DEPTH_MAX, Enumeration, Extensibility, MEMBERS_MAX, Member, Structure, Type};

/// The largest file; reason: the memory of what it defines, and no file of ROS 2 has a hundredth of it.
const FILE_BYTES_MAX: usize = 1 << 20;
/// The largest number of included files; reason: a chain of includes has to end.
const FILES_MAX: usize = 256;

/// A fault of an IDL file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct IdlError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The fault.
    pub message: String,
}

/// Returns the text of an included file.
pub type Include<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// The structs that an IDL file and those that it includes define, each after those that it needs.
///
/// ```
/// let text = "module lab { @final struct Pose { @key string robot; double at[2]; }; };";
/// let types = chappe_dds::types::idl("pose.idl", text, &mut |file| Err(format!("no {file}")))?;
/// assert_eq!(types[0].name, "lab::Pose");
/// assert_eq!(types[0].members[1].of.to_string(), "double[2]");
/// # Ok::<(), chappe_dds::types::IdlError>(())
/// ```
///
/// # Errors
/// The first fault.
pub fn idl(
    file: &str,
    text: &str,
    include: &mut Include<'_>,
) -> Result<Vec<Arc<Structure>>, IdlError> {
    let mut parser = Parser {
        names: BTreeMap::new(),
        structures: Vec::new(),
        scope: Vec::new(),
        files: Vec::new(),
        members: 0,
        include,
    };
    parser.file(file, text)?;
    Ok(parser.structures)
}

/// What a name stands for.
#[derive(Clone)]
enum Meaning {
    Type(Type),
    Constant(i64),
}

struct Parser<'a> {
    /// By scoped names.
    names: BTreeMap<String, Meaning>,
    structures: Vec<Arc<Structure>>,
    scope: Vec<String>,
    /// The files that were read.
    files: Vec<String>,
    members: usize,
    include: &'a mut Include<'a>,
}

/// The annotations before a definition or member that matter here.
#[derive(Default)]
struct Annotations {
    extensibility: Option<Extensibility>,
    is_key: bool,
    is_optional: bool,
    id: Option<u32>,
    value: Option<i32>,
    bit_bound: Option<u8>,
}

type Parsed<T> = Result<T, IdlError>;

impl Parser<'_> {
    fn file(&mut self, file: &str, text: &str) -> Parsed<()> {
        let mut input = Tokens::new(file, text);
        if text.len() > FILE_BYTES_MAX || self.files.len() >= FILES_MAX {
            return Err(input.fault(format!(
                "a file has at most {FILE_BYTES_MAX} bytes, and includes {FILES_MAX} others"
            )));
        }
        self.files.push(file.to_owned());
        while *input.peek()? != Token::End {
            self.definition(&mut input)?;
        }
        Ok(())
    }

    fn definition(&mut self, input: &mut Tokens<'_>) -> Parsed<()> {
        if let Token::Include(name) = input.peek()?.clone() {
            let fault = input.fault(format!("cannot include {name:?}"));
            input.next()?;
            if self.files.contains(&name) {
                return Ok(());
            }
            let text = (self.include)(&name).map_err(|why| IdlError {
                message: format!("{}: {why}", fault.message),
                ..fault
            })?;
            return self.file(&name, &text);
        }
        let annotations = self.annotations(input)?;
        let fault = input.fault("expected a module, struct, enum, typedef or const".into());
        match input.name()?.as_str() {
            "module" => self.module(input)?,
            "struct" => self.structure(input, &annotations)?,
            "enum" => self.enumeration(input, &annotations)?,
            "typedef" => self.typedef(input)?,
            "const" => return self.constant(input),
            word @ ("union" | "bitset" | "bitmask" | "interface" | "valuetype" | "native") => {
                return Err(IdlError {
                    message: format!("a {word} is not supported"),
                    ..fault
                });
            }
            _ => return Err(fault),
        }
        input.expect(';')
    }

    fn module(&mut self, input: &mut Tokens<'_>) -> Parsed<()> {
        let name = input.name()?;
        if self.scope.len() >= DEPTH_MAX {
            return Err(input.fault("modules are too deep within each other".into()));
        }
        self.scope.push(name);
        input.expect('{')?;
        while !input.has('}')? {
            self.definition(input)?;
        }
        self.scope.pop();
        Ok(())
    }

    fn structure(&mut self, input: &mut Tokens<'_>, annotations: &Annotations) -> Parsed<()> {
        let place = input.fault(String::new());
        let name = self.scoped(&input.name()?);
        if *input.peek()? == Token::Mark(';') {
            // Announced, and defined later.
            return Ok(());
        }
        let mut members = Vec::new();
        if input.has(':')? {
            let Type::Structure(base) = self.named(input)? else {
                return Err(input.fault("the base type is not a struct".into()));
            };
            self.count(input, base.members.len())?;
            members.clone_from(&base.members);
        }
        input.expect('{')?;
        while !input.has('}')? {
            self.member(input, &mut members)?;
        }
        let structure = Structure {
            name: name.clone(),
            extensibility: annotations.extensibility.unwrap_or_default(),
            is_extensibility_stated: annotations.extensibility.is_some(),
            members,
        };
        structure.check().map_err(|error| IdlError {
            message: error.to_string(),
            ..place.clone()
        })?;
        let structure = Arc::new(structure);
        self.structures.push(structure.clone());
        self.define(name, Meaning::Type(Type::Structure(structure)), place)
    }

    fn member(&mut self, input: &mut Tokens<'_>, members: &mut Vec<Member>) -> Parsed<()> {
        let annotations = self.annotations(input)?;
        let of = self.type_of(input, 0)?;
        loop {
            let place = input.fault(String::new());
            let name = input.name()?;
            let of = self.dimensions(input, of.clone())?;
            let fault = |message: String| IdlError {
                message,
                ..place.clone()
            };
            if members.iter().any(|member| member.name == name) {
                return Err(fault(format!("{name} is a second member of this name")));
            }
            self.count(input, 1)?;
            let next = members.last().map_or(0, |last| last.id.wrapping_add(1));
            members.push(Member {
                name,
                id: annotations.id.unwrap_or(next),
                is_key: annotations.is_key,
                is_optional: annotations.is_optional,
                of,
            });
            if !input.has(',')? {
                return input.expect(';');
            }
        }
    }

    /// Counts members of the file, those of base types included.
    fn count(&mut self, input: &mut Tokens<'_>, members: usize) -> Parsed<()> {
        self.members += members;
        match self.members > MEMBERS_MAX {
            true => Err(input.fault(format!("there are more than {MEMBERS_MAX} members"))),
            false => Ok(()),
        }
    }

    fn enumeration(&mut self, input: &mut Tokens<'_>, annotations: &Annotations) -> Parsed<()> {
        let place = input.fault(String::new());
        let name = self.scoped(&input.name()?);
        input.expect('{')?;
        let mut literals: Vec<(i32, String)> = Vec::new();
        loop {
            let value = self.annotations(input)?.value;
            let next = literals.last().map_or(0, |(last, _)| last.wrapping_add(1));
            let value = value.unwrap_or(next);
            let literal = input.name()?;
            let meaning = Meaning::Constant(value.into());
            self.define(self.scoped(&literal), meaning, place.clone())?;
            literals.push((value, literal));
            if !input.has(',')? {
                break;
            }
        }
        input.expect('}')?;
        let bytes = match annotations.bit_bound.unwrap_or(32) {
            0..=8 => 1,
            9..=16 => 2,
            _ => 4,
        };
        let enumeration = Enumeration::new(name.clone(), bytes, literals);
        let of = Type::Enumeration(Arc::new(enumeration));
        self.define(name, Meaning::Type(of), place)
    }

    fn typedef(&mut self, input: &mut Tokens<'_>) -> Parsed<()> {
        self.annotations(input)?;
        let of = self.type_of(input, 0)?;
        loop {
            let place = input.fault(String::new());
            let name = self.scoped(&input.name()?);
            let of = self.dimensions(input, of.clone())?;
            self.define(name, Meaning::Type(of), place)?;
            if !input.has(',')? {
                return Ok(());
            }
        }
    }

    fn constant(&mut self, input: &mut Tokens<'_>) -> Parsed<()> {
        let of = self.type_of(input, 0)?;
        let place = input.fault(String::new());
        let name = self.scoped(&input.name()?);
        input.expect('=')?;
        if matches!(of, Type::Integer { .. }) {
            let value = self.whole(input)?;
            self.define(name, Meaning::Constant(value), place)?;
            return input.expect(';');
        }
        while !input.has(';')? {
            if input.next()? == Token::End {
                return Err(input.fault("expected ;".into()));
            }
        }
        Ok(())
    }

    /// The dimensions after a name.
    fn dimensions(&mut self, input: &mut Tokens<'_>, of: Type) -> Parsed<Type> {
        let mut count: Option<u32> = None;
        while input.has('[')? {
            let bound = u32::try_from(self.whole(input)?).ok();
            let product = bound.and_then(|bound| count.unwrap_or(1).checked_mul(bound));
            let Some(product) = product.filter(|product| *product > 0) else {
                return Err(input.fault("an array has 1 to 2^32 - 1 elements".into()));
            };
            count = Some(product);
            input.expect(']')?;
        }
        Ok(match count {
            Some(count) => Type::Array(Arc::new(of), count),
            None => of,
        })
    }

    fn type_of(&mut self, input: &mut Tokens<'_>, depth: usize) -> Parsed<Type> {
        if depth > DEPTH_MAX {
            return Err(input.fault("types are too deep within each other".into()));
        }
        let integer = |bytes, is_signed| Type::Integer { bytes, is_signed };
        let Token::Name(word) = input.peek()?.clone() else {
            return self.named(input);
        };
        let found = match word.as_str() {
            "boolean" => Type::Boolean,
            "char" => Type::Char,
            "octet" | "uint8" => integer(1, false),
            "int8" => integer(1, true),
            "short" | "int16" => integer(2, true),
            "uint16" => integer(2, false),
            "int32" => integer(4, true),
            "uint32" => integer(4, false),
            "int64" => integer(8, true),
            "uint64" => integer(8, false),
            "float" => Type::Float { bytes: 4 },
            "double" => Type::Float { bytes: 8 },
            "wchar" => Type::Unsupported("wide character"),
            "long" | "unsigned" | "string" | "wstring" | "sequence" | "map" => {
                input.next()?;
                return self.compound(input, &word, depth);
            }
            _ => return self.named(input),
        };
        input.next()?;
        Ok(found)
    }

    /// A type of several words, or with parameters, after its first word.
    fn compound(&mut self, input: &mut Tokens<'_>, word: &str, depth: usize) -> Parsed<Type> {
        let integer = |bytes, is_signed| Type::Integer { bytes, is_signed };
        match word {
            "long" if input.has_name("double")? => Ok(Type::Unsupported("number of 128 bits")),
            "long" if input.has_name("long")? => Ok(integer(8, true)),
            "long" => Ok(integer(4, true)),
            "unsigned" => match input.name()?.as_str() {
                "short" => Ok(integer(2, false)),
                "long" if input.has_name("long")? => Ok(integer(8, false)),
                "long" => Ok(integer(4, false)),
                _ => Err(input.fault("expected short or long after unsigned".into())),
            },
            "sequence" => {
                input.expect('<')?;
                let element = self.type_of(input, depth + 1)?;
                if input.has(',')? {
                    self.whole(input)?;
                }
                input.expect('>')?;
                Ok(Type::Sequence(Arc::new(element)))
            }
            "map" => Err(input.fault("a map is not supported".into())),
            _ => {
                if input.has('<')? {
                    self.whole(input)?;
                    input.expect('>')?;
                }
                Ok(match word {
                    "string" => Type::Text,
                    _ => Type::Unsupported("wide text"),
                })
            }
        }
    }

    /// The type of a scoped name.
    fn named(&mut self, input: &mut Tokens<'_>) -> Parsed<Type> {
        let fault = input.fault(String::new());
        let name = input.scoped_name()?;
        let message = match self.meaning(&name) {
            Some(Meaning::Type(of)) => return Ok(of.clone()),
            Some(Meaning::Constant(_)) => format!("{name} is not a type"),
            None => format!("{name} is not defined before"),
        };
        Err(IdlError { message, ..fault })
    }

    /// A whole number or the name of one.
    fn whole(&mut self, input: &mut Tokens<'_>) -> Parsed<i64> {
        let mut is_negative = false;
        while input.has('-')? {
            is_negative = !is_negative;
        }
        let fault = input.fault("expected a whole number or the name of one".into());
        let number = match input.peek()?.clone() {
            Token::Number(number) => {
                input.next()?;
                Ok(number)
            }
            Token::Name(_) | Token::Mark(':') => match self.meaning(&input.scoped_name()?) {
                Some(Meaning::Constant(value)) => Ok(*value),
                _ => Err(fault),
            },
            _ => Err(fault),
        };
        match is_negative {
            true => number.map(i64::wrapping_neg),
            false => number,
        }
    }

    fn annotations(&mut self, input: &mut Tokens<'_>) -> Parsed<Annotations> {
        let mut found = Annotations::default();
        while input.has('@')? {
            let fault = input.fault(String::new());
            let name = input.scoped_name()?;
            let word = match input.peek()? {
                Token::Mark('(') => Some(input.parameters()?),
                _ => None,
            };
            let number = word
                .as_deref()
                .and_then(|word| word.trim().parse::<i64>().ok());
            let is_true = word.as_deref() != Some("FALSE");
            match (&*name, word.as_deref()) {
                ("final", _) | ("extensibility", Some("FINAL")) => {
                    found.extensibility = Some(Extensibility::Final);
                }
                ("appendable", _) | ("extensibility", Some("APPENDABLE")) => {
                    found.extensibility = Some(Extensibility::Appendable);
                }
                ("mutable", _) | ("extensibility", Some("MUTABLE")) => {
                    found.extensibility = Some(Extensibility::Mutable);
                }
                ("key", _) => found.is_key = is_true,
                ("optional", _) => found.is_optional = is_true,
                ("id", _) => found.id = number.and_then(|id| u32::try_from(id).ok()),
                ("value", _) => found.value = number.and_then(|it| i32::try_from(it).ok()),
                ("bit_bound", _) => found.bit_bound = number.and_then(|it| u8::try_from(it).ok()),
                ("hashid" | "autoid", _) if word.as_deref() != Some("SEQUENTIAL") => {
                    return Err(IdlError {
                        message: format!("@{name} is not supported"),
                        ..fault
                    });
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn scoped(&self, name: &str) -> String {
        let mut scope = self.scope.clone();
        scope.push(name.to_owned());
        scope.join("::")
    }

    /// What a name stands for, from the innermost scope outwards.
    fn meaning(&self, name: &str) -> Option<&Meaning> {
        if let Some(whole) = name.strip_prefix("::") {
            return self.names.get(whole);
        }
        (0..=self.scope.len()).rev().find_map(|depth| {
            let mut path = self.scope[..depth].to_vec();
            path.push(name.to_owned());
            self.names.get(&path.join("::"))
        })
    }

    fn define(&mut self, name: String, meaning: Meaning, place: IdlError) -> Parsed<()> {
        if self.names.contains_key(&name) {
            let message = format!("{name} is defined before");
            return Err(IdlError { message, ..place });
        }
        if let Meaning::Type(of) = &meaning
            && depth(of) > DEPTH_MAX
        {
            let message = format!(
                "{name} has types that are too deep within each other; the limit is {DEPTH_MAX}"
            );
            return Err(IdlError { message, ..place });
        }
        self.names.insert(name, meaning);
        Ok(())
    }
}

/// How deep sequences and arrays are within each other; the depth of a struct is checked when it is defined.
fn depth(mut of: &Type) -> usize {
    let mut depth = 0;
    while let Type::Sequence(element) | Type::Array(element, _) = of {
        of = element;
        depth += 1;
    }
    depth
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Vec<Arc<Structure>>, String> {
        idl("a.idl", text, &mut |file| match file {
            "b.idl" => Ok("module b { typedef long Size; };".into()),
            _ => Err("there is no such file".into()),
        })
        .map_err(|error| error.to_string())
    }

    #[test]
    fn definitions_are_read() {
        let text = r#"
            #include "b.idl"
            // Of a robot.
            module lab {
              const unsigned long COUNT = 3;
              @bit_bound(8) enum Mode { IDLE, @value(7) FAILED };
              typedef sequence<double, 10> Ranges;
              struct Base { @key string<16> robot; };
              @verbatim(language="c", text="; }")
              @mutable struct Pose : Base {
                Mode mode; @id(9) b::Size size, more; Ranges ranges;
                @optional unsigned long long total; float at[COUNT][2];
              };
            };
        "#;
        let types = parse(text).unwrap();
        let pose = types.last().unwrap();
        assert_eq!(
            (&*pose.name, pose.extensibility),
            ("lab::Pose", Extensibility::Mutable)
        );
        let members = pose
            .members
            .iter()
            .map(|it| (&*it.name, it.id, it.of.to_string()));
        let members: Vec<_> = members.collect();
        let expected = [
            ("robot", 0, "string"),
            ("mode", 1, "lab::Mode"),
            ("size", 9, "int32"),
            ("more", 9, "int32"),
            ("ranges", 10, "sequence<double>"),
            ("total", 11, "uint64"),
            ("at", 12, "float[6]"),
        ];
        let expected: Vec<_> = expected
            .map(|(name, id, of)| (name, id, of.to_owned()))
            .into();
        assert_eq!(members, expected);
        assert!(pose.members[0].is_key && pose.members[5].is_optional);
    }

    #[test]
    fn faults_have_their_line_and_column() {
        let cases = [
            (
                "struct A {\n  Unknown x;\n};",
                "a.idl:2:3: Unknown is not defined before",
            ),
            ("struct A { long x };", "a.idl:1:19: expected ;"),
            (
                "union U switch (long) {};",
                "a.idl:1:1: a union is not supported",
            ),
            (
                "struct A { long x; double x; };",
                "a.idl:1:27: x is a second member",
            ),
            (
                "#include \"c.idl\"\n",
                "a.idl:1:1: cannot include \"c.idl\": there is no such file",
            ),
            (
                "struct A { wstring x; };",
                "a.idl:1:8: member x is a wide text",
            ),
            ("struct A { /* ", "a.idl:1:12: a comment does not end"),
            ("const long A = --;", "a.idl:1:18: expected a whole number"),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_a_small_file_defines_is_bounded() {
        let minus = format!(
            "const long A = {}3; struct B {{ long a[A]; }};",
            "-".repeat(100_000)
        );
        assert_eq!(
            parse(&minus).unwrap()[0].members[0].of.to_string(),
            "int32[3]"
        );
        let mut arrays = "typedef long T0[1];".to_owned();
        let mut structures = "struct S0 { long a; };".to_owned();
        for n in 1..10_000 {
            arrays += &format!("typedef T{} T{n}[1];", n - 1);
            structures += &format!("struct S{n} {{ S{} a; }};", n - 1);
        }
        for text in [arrays, structures] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains("too deep within each other"), "{error}");
        }
        let members: String = (0..1_000).map(|n| format!("long m{n};")).collect();
        let mut heirs = format!("struct A {{ {members} }};");
        for n in 0..9_000 {
            heirs += &format!("struct B{n} : A {{}};");
        }
        let error = parse(&heirs).unwrap_err();
        assert!(error.ends_with("members"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            words in prop::collection::vec(
                prop::sample::select(&["struct", "A", "{", "}", ";", "long", "sequence", "<", ">", "[", "3", "]",
                    "@key", "(", ")", "module", "::", "enum", ",", "\"", "/*", "#include \"b.idl\"\n", "-", "é"][..]), 0..40),
        ) {
            let _ = parse(&words.concat());
            let _ = parse(&words.join(" "));
        }
    }
}
