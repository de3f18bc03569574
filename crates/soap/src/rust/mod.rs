//! Rust source for the messages of a service: its types with `#[derive(Message)]` and
//! `#[derive(Fault)]`, and the names of its operations and events.
//!
//! What the types of [`message`](crate::message) cannot express is written as a comment with its reason,
//! at the place where it would be.

mod names;
mod types;

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::schema::{NotFlatReason, Schemas};
use crate::wsdl::{Operation, OperationKind, OperationMessage, Wsdl};

use names::{Scope, comment, identifier, literal, named, pascal, plain, screaming, snake};
use types::Types;

/// Items of one module, and fields of one type. Default 4,096: an SDC provider has about 400.
const ITEMS_MAX: usize = 4_096;
/// Bytes of one module. Default 4 MiB: the types of an SDC provider have 300 kB.
const SOURCE_BYTES_MAX: usize = 4 << 20;

/// The type of no fault.
const INFALLIBLE: &str = "std::convert::Infallible";

/// The source cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The schemas refer to each other too often.
    #[error("the schemas of the service are too large or refer to each other too often")]
    Work,
    /// Too many items or bytes.
    #[error(
        "the service has more than {ITEMS_MAX} types and operations, or fields of one type, or {SOURCE_BYTES_MAX} bytes of them"
    )]
    TooLarge,
}

/// The reason why a message has no type.
enum Reason {
    Work,
    Other(String),
}

impl From<NotFlatReason> for Reason {
    fn from(reason: NotFlatReason) -> Self {
        match reason {
            NotFlatReason::Work => Self::Work,
            reason => Self::Other(reason.to_string()),
        }
    }
}

/// The modules of a device's services, which have different names.
#[derive(Debug)]
pub struct Modules {
    library: &'static str,
    names: Scope,
    source: String,
}

impl Modules {
    /// Source with the traits of this crate, in its module `message`: `chappe_soap`, or one that re-exports it.
    #[must_use]
    pub fn new(library: &'static str) -> Self {
        Self {
            library,
            names: Scope::default(),
            source: String::new(),
        }
    }

    /// Adds the module of a service, called `name`.
    ///
    /// # Errors
    /// [`SourceError`] if the service exceeds a limit.
    pub fn add(&mut self, name: &str, wsdl: &Wsdl, schemas: &Schemas) -> Result<(), SourceError> {
        let module = self.names.take(snake(name));
        let body = module_of(wsdl, schemas, self.library)?;
        if self.source.len() + body.len() > SOURCE_BYTES_MAX {
            return Err(SourceError::TooLarge);
        }
        let doc = comment(
            "///",
            &format!("The messages of the service {}.", named(name)),
        );
        // Writing to a string cannot fail.
        let _ = write!(
            self.source,
            "\n{}\npub mod {} {{\n",
            doc.join("\n"),
            identifier(&module)
        );
        for line in body.lines() {
            let indent = if line.is_empty() { "" } else { "    " };
            let _ = writeln!(self.source, "{indent}{line}");
        }
        self.source.push_str("}\n");
        Ok(())
    }

    /// The source file, whose first lines say what it is about. `about` is plain text, except the last part in backticks.
    #[must_use]
    pub fn finish(self, about: &str) -> String {
        let mut parts = about.rsplitn(3, '`');
        let about = match (parts.next(), parts.next(), parts.next()) {
            (Some(after), Some(code), Some(before)) => {
                format!("{}`{code}`{}", plain(before), plain(after))
            }
            _ => plain(about),
        };
        let head = comment("//!", &about).join("\n");
        format!("{head}\n{}", self.source)
    }
}

/// The body of a module.
fn module_of(wsdl: &Wsdl, schemas: &Schemas, library: &str) -> Result<String, SourceError> {
    let mut module = Module {
        wsdl,
        types: Types::new(schemas),
        constants: Scope::default(),
        operations: Vec::new(),
        names: HashSet::new(),
    };
    for (_, operation) in wsdl.operations() {
        if module.operations.len() > ITEMS_MAX {
            return Err(SourceError::TooLarge);
        }
        module.operation(operation)?;
    }
    let types = module.types.finish(library)?;
    let operations = module.operations.join("\n");
    Ok(format!("{types}\n{operations}"))
}

struct Module<'s> {
    wsdl: &'s Wsdl,
    types: Types<'s>,
    constants: Scope,
    operations: Vec<String>,
    /// The names of operations and events so far.
    names: HashSet<(&'s str, OperationKind)>,
}

impl<'s> Module<'s> {
    fn operation(&mut self, operation: &'s Operation) -> Result<(), SourceError> {
        let key = (operation.name.as_str(), operation.kind);
        if !self.names.insert(key) {
            let why =
                "an operation of another port type has this name, and is the one that it calls";
            self.left_out(operation, why);
            return Ok(());
        }
        let described = match self.described(operation) {
            Err(Reason::Work) => return Err(SourceError::Work),
            Err(Reason::Other(reason)) => {
                self.left_out(operation, &reason);
                return Ok(());
            }
            Ok(described) => described,
        };
        let constant = self.constants.take(screaming(&operation.name));
        let doc = operation.documentation.as_deref().unwrap_or_default();
        let described = described.replace("{name}", &constant);
        let mut lines = comment("///", &plain(doc));
        if !lines.is_empty() {
            lines.push("///".to_owned());
        }
        lines.extend(comment("///", &described));
        let value = literal(&operation.name);
        lines.push(format!(
            "pub const {}: &str = {value};\n",
            identifier(&constant)
        ));
        self.operations.push(lines.join("\n"));
        Ok(())
    }

    /// An operation without constant.
    fn left_out(&mut self, operation: &Operation, why: &str) {
        let kind = match operation.kind {
            OperationKind::Notification | OperationKind::SolicitResponse => "Event",
            OperationKind::OneWay | OperationKind::RequestResponse => "Operation",
        };
        let text = format!("{kind} {} has no types: {why}.", operation.name);
        self.operations.push(comment("//", &text).join("\n") + "\n");
    }

    /// How the operation is called, with its types.
    fn described(&mut self, operation: &Operation) -> Result<String, Reason> {
        Ok(match operation.kind {
            OperationKind::RequestResponse => {
                let request = self.message(operation.input.as_ref())?;
                let answer = self.message(operation.output.as_ref())?;
                let faults = self.faults(operation)?;
                format!(
                    "Operation: `client.invoke::<{request}, {answer}, {faults}>(service, {{name}}, &request)`."
                )
            }
            OperationKind::OneWay => {
                let request = self.message(operation.input.as_ref())?;
                format!(
                    "Operation without answer: `client.send::<{request}>(service, {{name}}, &request)`."
                )
            }
            OperationKind::Notification => {
                let event = self.message(operation.output.as_ref())?;
                format!("Event: `client.events::<{event}>(service, {{name}})`.")
            }
            OperationKind::SolicitResponse => {
                return Err(Reason::Other("the event waits for an answer".to_owned()));
            }
        })
    }

    /// The type of a message.
    fn message(&mut self, message: Option<&OperationMessage>) -> Result<String, Reason> {
        let element = message.and_then(|message| self.wsdl.element(message));
        let without =
            || Reason::Other("a message has no element (style RPC, or no parts)".to_owned());
        Ok(self.types.element(element.ok_or_else(without)?)?)
    }

    /// The type of an operation's faults.
    fn faults(&mut self, operation: &Operation) -> Result<String, Reason> {
        if operation.faults.is_empty() {
            return Ok(INFALLIBLE.to_owned());
        }
        let mut variants = Scope::default();
        let (mut lines, mut elements) = (Vec::new(), HashSet::new());
        for fault in &operation.faults {
            let Some(element) = self.wsdl.element(fault) else {
                let what = fault.name.as_deref().unwrap_or(&fault.message.local);
                let text = format!("Fault {what} has no element, so it has no type.");
                lines.extend(comment("    //", &text));
                continue;
            };
            if !elements.insert(element) {
                continue;
            }
            let variant = variants.take(pascal(&element.local));
            let detail = match self.types.element(element) {
                Err(NotFlatReason::Work) => return Err(Reason::Work),
                Err(reason) => {
                    let text = format!("Fault {}: {reason}.", element.local);
                    lines.extend(comment("    //", &text));
                    continue;
                }
                Ok(detail) => detail,
            };
            if variant != *element.local {
                lines.push(format!("    #[name({})]", literal(&element.local)));
            }
            lines.push(match &*detail {
                "()" => format!("    {variant},"),
                detail => format!("    {variant}({detail}),"),
            });
        }
        let is_empty = !lines.iter().any(|line| line.ends_with(','));
        if is_empty {
            self.operations
                .push(lines.join("\n").replace("    //", "//"));
            return Ok(INFALLIBLE.to_owned());
        }
        let doc = format!("The faults of {}.", named(&operation.name));
        let name = format!("{}Fault", pascal(&operation.name));
        Ok(self.types.faults(&name, &doc, &lines))
    }
}
