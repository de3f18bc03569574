//! Query options (18-088, clause 9.3).

use crate::fault::shown;
use crate::model::{EntityType, Link, is_id};
use crate::order::{Key, parse_order};
use crate::{Expression, Fault, decode_percent, parse_filter};

/// Bytes of a query; reason: servers and proxies refuse longer ones, too.
pub const QUERY_BYTES_MAX: usize = 16 << 10;
/// Bytes of a filter.
pub const FILTER_BYTES_MAX: usize = 8 << 10;
/// Levels of `$expand`; reason: each multiplies the entities of an answer.
const EXPAND_DEPTH_MAX: usize = 4;
/// Expanded links of one request.
const EXPANDS_MAX: usize = 24;
/// Names of `$select`.
const SELECT_MAX: usize = 32;

/// The query options of a request, or of an expanded link.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// `$filter`.
    pub filter: Option<Expression>,
    /// `$expand`.
    pub expand: Vec<Expand>,
    /// `$orderby`.
    pub order: Vec<Key>,
    /// `$select`: names of properties and links.
    pub select: Option<Vec<String>>,
    /// `$top`.
    pub top: Option<usize>,
    /// `$skip`.
    pub skip: usize,
    /// `$count`.
    pub count: bool,
    /// `$resultFormat=dataArray`.
    pub data_array: bool,
    /// `$skiptoken`: where the page before ended, as this service wrote it.
    pub skip_token: Option<String>,
    /// The options as they were given, decoded.
    pub texts: Vec<(String, String)>,
}

/// A link to expand.
#[derive(Debug, Clone, PartialEq)]
pub struct Expand {
    /// The link.
    pub link: Link,
    /// The options of the entities at its end.
    pub options: Options,
}

impl Options {
    /// Parses the query of a URL, for entities of type `kind`.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for an option that is malformed, unknown, given twice or beyond a limit;
    /// [`Fault::Unsupported`].
    pub fn parse(query: &str, kind: EntityType) -> Result<Self, Fault> {
        if query.len() > QUERY_BYTES_MAX {
            let detail = format!(
                "the query has {} bytes; the limit is {QUERY_BYTES_MAX}",
                query.len()
            );
            return Err(Fault::Invalid(detail));
        }
        let mut pairs = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode_percent(name, true)?, decode_percent(value, true)?));
        }
        let mut expands = 0;
        let options = Self::of_pairs(pairs, kind, 0, &mut expands)?;
        Ok(options)
    }

    /// The link of this name, if it is expanded.
    #[must_use]
    pub fn expanded(&self, link: &str) -> Option<&Self> {
        let mut expanded = self.expand.iter();
        let expanded = expanded.find(|expand| expand.link.name == link);
        expanded.map(|expand| &expand.options)
    }

    /// Whether a property or a link is in the answer.
    #[must_use]
    pub fn selects(&self, name: &str) -> bool {
        let same = |wanted: &String| wanted == name || is_id(wanted) && is_id(name);
        self.select
            .as_ref()
            .is_none_or(|select| select.iter().any(same))
    }

    fn of_pairs(
        pairs: Vec<(String, String)>,
        kind: EntityType,
        depth: usize,
        expands: &mut usize,
    ) -> Result<Self, Fault> {
        let mut options = Self::default();
        for (name, value) in pairs {
            // Others are for proxies and applications.
            if !name.starts_with('$') {
                continue;
            }
            if options.texts.iter().any(|(known, _)| *known == name) {
                return Err(Fault::Invalid(format!("{} is given twice", shown(&name))));
            }
            let number = || {
                let wrong =
                    || Fault::Invalid(format!("{name}: {:?} is not a number", shown(&value)));
                value.parse::<usize>().map_err(|_| wrong())
            };
            match name.as_str() {
                "$filter" => options.filter = Some(parse_filter(&value, kind)?),
                "$orderby" => options.order = parse_order(&value, kind)?,
                "$select" => options.select = Some(parse_select(&value, kind)?),
                "$expand" => options.expand = parse_expand(&value, kind, depth, expands)?,
                "$top" => options.top = Some(number()?),
                "$skip" => options.skip = number()?,
                "$count" => {
                    options.count = value.parse().map_err(|_| {
                        let shown = shown(&value);
                        Fault::Invalid(format!("$count: {shown:?} is neither true nor false"))
                    })?;
                }
                "$resultFormat" if value == "dataArray" && depth == 0 => options.data_array = true,
                "$resultFormat" => {
                    return Err(Fault::Unsupported(format!(
                        "$resultFormat: {:?} is not supported; dataArray is, for Observations",
                        shown(&value)
                    )));
                }
                "$skiptoken" if depth == 0 => options.skip_token = Some(value.clone()),
                _ => {
                    let detail = format!("there is no query option {:?}", shown(&name));
                    return Err(Fault::Invalid(detail));
                }
            }
            options.texts.push((name, value));
        }
        Ok(options)
    }
}

fn parse_select(text: &str, kind: EntityType) -> Result<Vec<String>, Fault> {
    let mut names = Vec::new();
    for name in text.split(',').map(str::trim) {
        if !kind.has_property(name) && kind.link(name).is_none() {
            let set = kind.set_name();
            let detail = format!("$select: {set} have no {:?}", shown(name));
            return Err(Fault::Invalid(detail));
        }
        names.push(name.to_owned());
    }
    match names.len() > SELECT_MAX {
        true => Err(Fault::Invalid(format!(
            "$select has at most {SELECT_MAX} names"
        ))),
        false => Ok(names),
    }
}

fn parse_expand(
    text: &str,
    kind: EntityType,
    depth: usize,
    expands: &mut usize,
) -> Result<Vec<Expand>, Fault> {
    if depth >= EXPAND_DEPTH_MAX {
        let detail = format!("$expand has at most {EXPAND_DEPTH_MAX} levels");
        return Err(Fault::Invalid(detail));
    }
    let mut list = Vec::<Expand>::new();
    for item in split(text, ',')? {
        *expands += 1;
        if *expands > EXPANDS_MAX {
            let detail = format!("$expand has at most {EXPANDS_MAX} links");
            return Err(Fault::Invalid(detail));
        }
        let item = item.trim();
        let path_end = item.find(['(', '/']).unwrap_or(item.len());
        let (name, rest) = item.split_at(path_end);
        let link = kind.link(name.trim()).ok_or_else(|| {
            let set = kind.set_name();
            Fault::Invalid(format!("$expand: {set} have no link {:?}", shown(name)))
        })?;
        let mut pairs = Vec::new();
        if let Some(further) = rest.strip_prefix('/') {
            pairs.push(("$expand".to_owned(), further.to_owned()));
        } else if !rest.is_empty() {
            let inner = rest.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
            let inner = inner.ok_or_else(|| {
                Fault::Invalid(format!("$expand: {:?} is malformed", shown(item)))
            })?;
            for option in split(inner, ';')? {
                let (name, value) = option.split_once('=').unwrap_or((option, ""));
                if !name.trim().starts_with('$') {
                    let detail = format!("$expand: {:?} is not a query option", shown(option));
                    return Err(Fault::Invalid(detail));
                }
                pairs.push((name.trim().to_owned(), value.to_owned()));
            }
        }
        let options = Options::of_pairs(pairs, link.target, depth + 1, expands)?;
        match list.iter_mut().find(|known| known.link == link) {
            // `Datastreams/Sensor,Datastreams/Thing` expands one link in two ways.
            Some(known) if known.options.is_only_expand() && options.is_only_expand() => {
                known.options.merge(options);
            }
            Some(_) => {
                let detail = format!("$expand: {:?} is given twice", link.name);
                return Err(Fault::Invalid(detail));
            }
            None => list.push(Expand { link, options }),
        }
    }
    Ok(list)
}

impl Options {
    fn is_only_expand(&self) -> bool {
        self.texts.iter().all(|(name, _)| name == "$expand")
    }

    /// Expands also the links of another.
    fn merge(&mut self, other: Self) {
        for expand in other.expand {
            match self.expand.iter_mut().find(|it| it.link == expand.link) {
                Some(known) => known.options.merge(expand.options),
                None => self.expand.push(expand),
            }
        }
        for (name, text) in other.texts {
            match self.texts.first_mut() {
                Some((_, known)) => {
                    known.push(',');
                    known.push_str(&text);
                }
                None => self.texts.push((name, text)),
            }
        }
    }
}

/// The parts of a text, outside of quotes and parentheses.
pub(crate) fn split(text: &str, separator: char) -> Result<Vec<&str>, Fault> {
    let (mut parts, mut start, mut depth, mut is_quoted) = (Vec::new(), 0, 0_usize, false);
    for (at, character) in text.char_indices() {
        match character {
            '\'' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' => depth += 1,
            ')' => {
                depth = depth
                    .checked_sub(1)
                    .ok_or_else(|| Fault::invalid("a parenthesis is closed but not opened"))?;
            }
            _ if character == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + character.len_utf8();
            }
            _ => {}
        }
    }
    if is_quoted || depth > 0 {
        let detail = "a text or a parenthesis is not closed";
        return Err(Fault::invalid(detail));
    }
    if start < text.len() {
        parts.push(&text[start..]);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_with_those_of_expanded_links() {
        let query = "$filter=name%20eq%20'a%26b'&$top=5&$skip=2&$count=true&$orderby=name%20desc\
                     &$select=name,Datastreams&debug=1&$expand=Datastreams($select=id;$expand=\
                     Observations($top=1;$filter=result%20gt%201)),Locations";
        let options = Options::parse(query, EntityType::Thing).unwrap();
        assert_eq!(
            (options.top, options.skip, options.count),
            (Some(5), 2, true)
        );
        assert!(options.selects("name") && !options.selects("id"));
        let datastreams = options.expanded("Datastreams").unwrap();
        assert!(datastreams.selects("@iot.id"));
        let observations = datastreams.expanded("Observations").unwrap();
        assert_eq!(observations.top, Some(1));
        assert!(observations.filter.is_some());
        assert!(options.expanded("Locations").is_some());
    }

    #[test]
    fn a_link_may_be_expanded_along_several_paths() {
        let query = "$expand=Datastreams/Sensor,Datastreams/ObservedProperty";
        let options = Options::parse(query, EntityType::Thing).unwrap();
        let datastreams = options.expanded("Datastreams").unwrap();
        assert!(datastreams.expanded("Sensor").is_some());
        assert!(datastreams.expanded("ObservedProperty").is_some());
        assert_eq!(datastreams.texts[0].1, "Sensor,ObservedProperty");
    }

    #[test]
    fn what_is_no_option_is_refused() {
        for query in [
            "$nothing=1",
            "$top=-1",
            "$top=1&$top=2",
            "$count=yes",
            "$expand=Nothing",
            "$expand=Datastreams(",
            "$expand=Datastreams(top=1)",
            "$expand=Datastreams($top=1),Datastreams($top=2)",
            "$expand=Datastreams/Thing/Datastreams/Thing/Datastreams",
            "$select=nothing",
            "$orderby=name sideways",
            "$resultFormat=CSV",
            "$filter=%",
        ] {
            assert!(Options::parse(query, EntityType::Thing).is_err(), "{query}");
        }
        let long = format!("$filter={}", "a".repeat(QUERY_BYTES_MAX));
        assert!(Options::parse(&long, EntityType::Thing).is_err());
    }
}
