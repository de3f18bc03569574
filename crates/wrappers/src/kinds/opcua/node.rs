//! Addresses of nodes: node ids, and paths of browse names from the root folder.

use std::fmt;

use opcua_types::{NodeId, QualifiedName, UAString};

/// Longest address in bytes; reason: a node id has at most 4,096 characters (part 3, section 8.2.4).
const ADDRESS_BYTES_MAX: usize = 4_096;
/// Most steps of a path; reason: far above the depth of an address space.
const STEPS_MAX: usize = 64;

/// How a file names a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NodeAddress {
    /// By its id: `ns=2;s=Boiler`.
    Id(NodeId),
    /// By browse names from the root folder: `/Objects/2:Boiler`.
    Path(Vec<QualifiedName>),
}

impl NodeAddress {
    /// The address in a text.
    ///
    /// # Errors
    /// Why it is none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(format!(
                "a node has at most {ADDRESS_BYTES_MAX} bytes, this one {}",
                text.len()
            ));
        }
        match text.strip_prefix('/') {
            Some(path) => Ok(Self::Path(steps(path)?)),
            None => text.parse().map(Self::Id).map_err(|_| {
                format!(
                    "{text:?} is neither a node id (ns=2;s=NAME, i=85) nor a path (/Objects/2:NAME)"
                )
            }),
        }
    }
}

/// The browse names of a path, without its first slash.
fn steps(path: &str) -> Result<Vec<QualifiedName>, String> {
    let (mut steps, mut name) = (Vec::new(), String::new());
    let mut namespace = None;
    let mut end = |name: &mut String, namespace: &mut Option<u16>| {
        if name.is_empty() || steps.len() == STEPS_MAX {
            return Err(format!(
                "/{path}: a path has 1 to {STEPS_MAX} names, none of them empty"
            ));
        }
        let name = UAString::from(std::mem::take(name));
        steps.push(QualifiedName::new(namespace.take().unwrap_or(0), name));
        Ok(())
    };
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '&' => name.push(letters.next().ok_or("a name ends with &")?),
            '/' => end(&mut name, &mut namespace)?,
            ':' if namespace.is_none() => {
                let number = name.parse();
                let number = number.map_err(|_| {
                    format!("{name:?} is not the number of a namespace; write &: for a colon")
                })?;
                namespace = Some(number);
                name.clear();
            }
            letter => name.push(letter),
        }
    }
    end(&mut name, &mut namespace)?;
    Ok(steps)
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = match self {
            Self::Id(id) => return write!(f, "{id}"),
            Self::Path(steps) => steps,
        };
        for step in steps {
            f.write_str("/")?;
            if step.namespace_index != 0 {
                write!(f, "{}:", step.namespace_index)?;
            }
            for letter in step.name.as_ref().chars() {
                if matches!(letter, '/' | ':' | '&') {
                    f.write_str("&")?;
                }
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_and_paths_are_read() {
        for text in [
            "i=2258",
            "ns=2;i=7",
            "ns=2;s=Boiler.Temp;1",
            "ns=3;b=aGk=",
            "ns=1;g=72962b91-fa75-4ae6-8d28-b404dc7daf63",
            "/Objects/2:Boiler/2:Temp",
            "/Objects/2:a&/b&:c&&",
        ] {
            let address = NodeAddress::parse(text).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(address.to_string(), text);
        }
        for wrong in [
            "",
            "s",
            "ns=70000;i=1",
            "ns=2;i=-1",
            "i=4294967296",
            "x=1",
            "/",
            "/a//b",
            "/x:b",
            "/a/",
            "/a&",
        ] {
            assert!(NodeAddress::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}|(ns=[0-9]{0,6};)?[isgb]=\\PC{0,40}|(/([0-9]{1,5}:)?[^\u{0}]{1,9}){1,5}") {
            if let Ok(address) = NodeAddress::parse(&text) {
                let again = NodeAddress::parse(&address.to_string());
                prop_assert_eq!(again, Ok(address));
            }
        }
    }
}
