//! Templates of names and keys: `climate.{line}`.

/// Longest template in bytes; reason: people write it.
pub(crate) const TEMPLATE_BYTES_MAX: usize = 512;

/// Longest value of a placeholder, and longest key, in bytes; reason: a key identifies, and every element of
/// the stream carries it.
pub const VALUE_BYTES_MAX: usize = 256;

/// Longest name of a placeholder.
const PLACEHOLDER_BYTES_MAX: usize = 64;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    Literal(String),
    Placeholder(String),
}

impl Template {
    /// Parses a template; the error is the reason.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("it has 1 to {TEMPLATE_BYTES_MAX} bytes"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let open = rest.find(['{', '}']).unwrap_or(rest.len());
            if open > 0 {
                parts.push(TemplatePart::Literal(rest[..open].to_owned()));
            }
            rest = &rest[open..];
            if rest.starts_with('}') {
                return Err("a brace is not opened".to_owned());
            }
            if let Some(inner) = rest.strip_prefix('{') {
                let (name, after) = inner.split_once('}').ok_or("a brace is not closed")?;
                if !is_placeholder(name) {
                    return Err(format!("{{{name}}} is not a name of a placeholder"));
                }
                parts.push(TemplatePart::Placeholder(name.to_owned()));
                rest = after;
            }
        }
        Ok(Self { parts })
    }

    /// The names of its placeholders.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Placeholder(name) => Some(name.as_str()),
            TemplatePart::Literal(_) => None,
        })
    }

    /// Its text, with `sample` for each placeholder.
    pub(crate) fn sample(&self, sample: &str) -> String {
        let parts = self.parts.iter().map(|part| match part {
            TemplatePart::Literal(text) => text.as_str(),
            TemplatePart::Placeholder(_) => sample,
        });
        parts.collect()
    }
}

/// Whether a text may name a placeholder.
pub(crate) fn is_placeholder(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= PLACEHOLDER_BYTES_MAX
        && !name.contains(['{', '}', '/'])
        && !name.ends_with("...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found() {
        let template = Template::parse("climate.{line}-{machine}").unwrap();
        assert_eq!(
            template.placeholders().collect::<Vec<_>>(),
            ["line", "machine"]
        );
        assert_eq!(template.sample("0"), "climate.0-0");
        for (wrong, word) in [
            ("", "bytes"),
            ("a{b", "closed"),
            ("a}b", "opened"),
            ("{}", "name"),
        ] {
            assert!(
                Template::parse(wrong).unwrap_err().contains(word),
                "{wrong}"
            );
        }
    }
}
